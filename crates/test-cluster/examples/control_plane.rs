//! Starts a control plane for manual tests: prints its kubeconfig, and runs until its standard input is closed. With
//! the argument `--without-controllers` it runs no kube-controller-manager. Another argument is the path of an audit
//! policy, which the control plane then uses.

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
