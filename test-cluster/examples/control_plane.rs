//! A bare control plane to look at: prints its kubeconfig, and lives until
//! its standard input ends. With the argument `--without-controllers` nothing
//! happens in it by itself.

use std::io::Read;

use test_cluster::{ControlPlane, Programs};

fn main() -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let bare = std::env::args().any(|argument| argument == "--without-controllers");
    let control_plane = match bare {
        true => ControlPlane::start_without_controllers(&programs)?,
        false => ControlPlane::start(&programs, &[])?,
    };
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
