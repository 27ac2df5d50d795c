//! A Go program that opens a thousand concurrent watches over a few HTTP clients. It opens a connection for each
//! waiting watch, and fails if the server closes one of them.

use std::process::Command;

use anyhow::{Result, ensure};
use test_cluster::{Missing, Programs, Standalone};

use crate::PROGRAM;

pub const TESTS: &[(&str, &str)] =
    &[("a_thousand_watches_over_http2", "h2"), ("a_thousand_watches_over_http1", "http1")];

const CLIENTS: &str = "16";
const WATCHES: &str = "1000";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const LEASE: &str =
    r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"},"spec":{}}"#;

/// Whether this machine cannot build the program.
pub fn is_missing() -> bool {
    Programs::watches().is_err_and(|error| error.is::<Missing>())
}

/// Runs the program over this protocol: each of its watches is served.
pub fn run(protocol: &str) -> Result<()> {
    let server = Standalone::start(PROGRAM, &[])?;
    let mut command = Command::new(Programs::watches()?);
    command.arg(&server.kubeconfig).args([protocol, CLIENTS, WATCHES, LEASES, LEASE]);
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
