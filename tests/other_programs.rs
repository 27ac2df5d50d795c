//! Programs in other languages with the standalone server: clients, which must get the same results as from a real
//! kube-apiserver, and a real kube-controller-manager.
//!
//! A test whose programs are missing on this machine is reported as ignored. With `REQUIRE_CONTROL_PLANE` set, programs
//! that Go builds must exist.

#[path = "other_programs/clients.rs"]
mod clients;
#[path = "other_programs/controllers.rs"]
mod controllers;
#[path = "other_programs/watches.rs"]
mod watches;

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use test_cluster::{Missing, Programs};

use clients::Clients;
use controllers::Controllers;

const PROGRAM: &str = env!("CARGO_BIN_EXE_farm-operator");
/// The timeout of any step, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn main() {
    let arguments = Arguments::from_args();
    let required = test_cluster::is_required();
    // Nothing is built to list the tests.
    let found = if arguments.list { Err("not wanted".to_owned()) } else { programs() };
    let (reason, programs) = match found {
        Ok(programs) => (None, Some(programs)),
        Err(reason) => (Some(reason), None),
    };
    let clients = Arc::new(Clients::new(programs.clone()));
    let controllers = Arc::new(Controllers::new(programs));
    let mut trials = Vec::new();
    for &(name, test) in controllers::TESTS {
        let controllers = Arc::clone(&controllers);
        let trial = Trial::test(name, move || controllers.run(test).map_err(failed));
        trials.push(trial.with_kind(if reason.is_some() { "no control plane" } else { "" }));
    }
    for &(name, program) in clients::TESTS {
        let missing = if arguments.list { None } else { program.is_missing() };
        let left_out = missing.is_some() && !(required && program.is_required());
        let clients = Arc::clone(&clients);
        let trial = Trial::test(name, move || clients.compare(&program).map_err(failed));
        let kind = missing.or(reason.as_ref().map(|_| "no control plane")).unwrap_or_default();
        trials.push(trial.with_kind(kind).with_ignored_flag(left_out));
    }
    let without_go = !arguments.list && watches::is_missing();
    let watches = watches::TESTS.iter().map(|&(name, protocol)| {
        let trial = Trial::test(name, move || watches::run(protocol).map_err(failed));
        let kind = if without_go { "no go" } else { "" };
        trial.with_kind(kind).with_ignored_flag(without_go && !required)
    });
    let ignore = |trial: Trial| {
        if reason.is_some() && !required { trial.with_ignored_flag(true) } else { trial }
    };
    let trials = trials.into_iter().map(ignore).chain(watches).collect();
    if let Some(reason) = reason.as_ref().filter(|_| !arguments.list) {
        eprintln!("the tests of this file need a control plane: {reason}");
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Everything is stopped and removed before the process ends.
    clients.end();
    controllers.end();
    conclusion.exit();
}

/// The programs of a control plane, or the reason why this machine has none. A broken installation is an error, not a
/// reason to ignore tests.
fn programs() -> Result<Programs, String> {
    match Programs::find() {
        Ok(programs) => Ok(programs),
        Err(error) if error.is::<Missing>() => Err(error.to_string()),
        Err(error) => {
            eprintln!("the programs of a control plane cannot be built: {error:?}");
            std::process::exit(1);
        }
    }
}

fn failed(error: anyhow::Error) -> libtest_mimic::Failed {
    format!("{error:#}").into()
}
