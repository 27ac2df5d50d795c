//! A bare control plane to look at: prints its kubeconfig, and lives until
//! its standard input ends.

use std::io::Read;

use test_cluster::{ControlPlane, Programs};

fn main() -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let control_plane = ControlPlane::start(&programs, &[])?;
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
