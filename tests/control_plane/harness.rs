//! Runs tests sequentially in one world, and several worlds concurrently.

use std::process::exit;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use test_cluster::{Missing, Programs};

/// The environment that tests share: a control plane with farm-operator.
pub trait Shared: Sized + Send + 'static {
    fn start(programs: &Programs) -> Result<Self>;

    /// The log of farm-operator.
    fn server_log(&self) -> String;

    /// Reverts the changes that a failed test has left.
    fn mend(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The outcome of a test.
type Outcome = Result<(), String>;

pub type Test<W> = fn(&mut W) -> Result<()>;

/// Checks a requirement of a test that not every machine meets. Returns the reason why the test is ignored.
pub type Needs = fn() -> Option<&'static str>;

/// The tests of one world, in the order in which they run.
pub type Group<W> = &'static [(&'static str, Test<W>)];

/// Runs the tests that the command line selects, and ends the process. Each group has its own world and runs
/// concurrently with the others. After a failed test, its world is repaired for the next one.
pub fn run<W: Shared>(groups: &[Group<W>], needs: &[(&str, Needs)]) {
    let mut arguments = Arguments::from_args();
    // The trials wait for the results of the groups.
    arguments.test_threads = Some(1);
    let required = test_cluster::is_required();
    let wanted = |name: &str| !arguments.list && is_wanted(&arguments, name);
    let programs = if groups.iter().copied().flatten().any(|(name, _)| wanted(name)) {
        find_programs()
    } else {
        Err("not wanted".to_owned())
    };
    let (mut trials, mut threads) = (Vec::new(), Vec::new());
    for &group in groups {
        let mut tests = Vec::new();
        for &(name, test) in group {
            // Checking a requirement may take a build, so it is skipped for tests that are only listed or filtered out.
            let need = needs.iter().find(|(of, _)| *of == name && wanted(name));
            let missing = need.and_then(|(_, why)| why());
            let missing = programs.as_ref().map_or(Some("no control plane"), |_| missing);
            let ignored = missing.is_some() && !required;
            let asked =
                if arguments.ignored { ignored } else { !ignored || arguments.include_ignored };
            let (told, found) = channel();
            match &programs {
                Ok(_) if wanted(name) && asked => tests.push((test, told)),
                Ok(_) => {}
                Err(reason) => drop(told.send(Err(reason.clone()))),
            }
            let trial = Trial::test(name, move || {
                found
                    .recv()
                    .unwrap_or_else(|_| Err("a test of this world has panicked".to_owned()))?;
                Ok(())
            });
            trials.push(trial.with_kind(missing.unwrap_or_default()).with_ignored_flag(ignored));
        }
        if let (Ok(programs), false) = (&programs, tests.is_empty()) {
            let programs = programs.clone();
            threads.push(thread::spawn(move || run_in_one_world::<W>(&programs, tests)));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Everything is stopped and removed before the process ends.
    for thread in threads {
        let _ = thread.join();
    }
    conclusion.exit();
}

fn is_wanted(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| {
        if arguments.exact { filter == name } else { name.contains(filter.as_str()) }
    };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

/// The programs of a control plane, or the reason why this machine has none. A broken installation is an error, not a
/// reason to ignore tests.
fn find_programs() -> Result<Programs, String> {
    match Programs::find() {
        Ok(programs) => Ok(programs),
        Err(error) if error.is::<Missing>() => {
            eprintln!("the tests of this file need a control plane: {error}");
            Err(error.to_string())
        }
        Err(error) => broken(&error),
    }
}

fn broken(error: &anyhow::Error) -> ! {
    eprintln!("the world of the tests cannot be made: {error:?}");
    exit(1);
}

fn run_in_one_world<W: Shared>(programs: &Programs, tests: Vec<(Test<W>, Sender<Outcome>)>) {
    let mut world = W::start(programs).unwrap_or_else(|error| broken(&error));
    for (test, told) in tests {
        let outcome = test(&mut world);
        let failed = outcome.is_err();
        let _ = told.send(outcome.map_err(|error| {
            let log = world.server_log();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(30)..].join("\n");
            format!("{error:#}\n\nthe end of farm-operator's log:\n{end}")
        }));
        if failed && let Err(error) = world.mend() {
            eprintln!("what a failed test has left cannot be mended: {error:#}");
        }
    }
}
