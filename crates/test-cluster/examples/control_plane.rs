//! A bare control plane to look at: prints its kubeconfig, and lives until
//! its standard input ends. With the argument `--without-controllers` nothing
//! happens in it by itself; with a file as argument, an audit policy, it is audited, too.

use std::io::Read;

use test_cluster::{ControlPlane, Programs};

fn main() -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let control_plane = match std::env::args().nth(1).as_deref() {
        None => ControlPlane::start(&programs, &[])?,
        Some("--without-controllers") => ControlPlane::start_without_controllers(&programs)?,
        Some(policy) => {
            let policy = std::fs::read_to_string(policy)?;
            ControlPlane::start_audited(&programs, &policy)?
        }
    };
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
