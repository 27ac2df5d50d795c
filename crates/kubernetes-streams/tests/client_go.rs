//! The executors and port forwarders of client-go, against the server of the example: directly, and behind the code of
//! kube-apiserver. The same tests run against the code of kubelet, for comparison.
//!
//! The tests are reported as ignored if this machine cannot build programs in Go. With `REQUIRE_CONTROL_PLANE` set,
//! they fail then.

#[path = "client_go/exec.rs"]
mod exec;
#[path = "client_go/forward.rs"]
mod forward;
#[path = "client_go/refusals.rs"]
mod refusals;
#[path = "../examples/pod/server.rs"]
mod server;
#[path = "client_go/world.rs"]
mod world;

use std::sync::Arc;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use test_cluster::{Missing, is_required};

use world::{Test, World};

fn main() {
    let arguments = Arguments::from_args();
    // Nothing is built to list the tests.
    let world = |start: fn() -> Result<World>| (!arguments.list).then(start);
    let ours = [exec::TESTS, forward::TESTS, refusals::TESTS, forward::OURS].concat();
    let proxied = [exec::TESTS, forward::TESTS, forward::OURS].concat();
    let theirs = [exec::TESTS, forward::TESTS, refusals::TESTS].concat();
    let mut trials = trials_of("pod", world(World::ours), &ours);
    trials.extend(trials_of("proxied", world(World::proxied), &proxied));
    trials.extend(trials_of("kubelet", world(World::kubelet), &theirs));
    libtest_mimic::run(&arguments, trials).exit();
}

fn trials_of(server: &str, world: Option<Result<World>>, tests: &[(&str, Test)]) -> Vec<Trial> {
    let missing = |error: &anyhow::Error| error.is::<Missing>() && !is_required();
    let is_ignored = matches!(&world, Some(Err(error)) if missing(error));
    let world = Arc::new(world);
    let trial = |&(name, test): &(&str, Test)| {
        let world = Arc::clone(&world);
        let run = move || match &*world {
            Some(Ok(world)) => test(world).map_err(|error| format!("{error:#}").into()),
            Some(Err(error)) => Err(format!("{error:#}").into()),
            None => Ok(()),
        };
        let kind = if is_ignored { "no go" } else { "" };
        let trial = Trial::test(format!("{server}::{name}"), run);
        trial.with_kind(kind).with_ignored_flag(is_ignored)
    };
    tests.iter().map(trial).collect()
}
