//! The transcripts of README and docs: the commands print what the pages show. The files of the tutorial are those of the
//! example `alpacas`.
//!
//! Without kubectl, and without `go` to build it, the commands are reported as ignored. With `REQUIRE_CONTROL_PLANE`
//! set, they fail instead. With `TUTORIAL_CRATES` set to a directory of crates, the project of the tutorial is built from
//! these crates, outside of this workspace, at each step: `scripts/package` does so with the packaged crates.

#![allow(clippy::unwrap_used)] // all of it is a test

#[path = "transcripts/output.rs"]
mod output;
#[path = "transcripts/page.rs"]
mod page;
#[path = "transcripts/shell.rs"]
mod shell;
#[path = "transcripts/tutorial.rs"]
mod tutorial;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use page::Step;
use shell::{Program, Shell};
use test_cluster::Programs;

/// The time in which a read shows what the page shows.
const PATIENCE: Duration = Duration::from_secs(30);

const TUTORIAL: &str = "docs/tutorial.md";

/// Pages whose commands use farm-operator with `examples/farm.yaml`.
const FARM_PAGES: &[&str] = &["README.md", "docs/guides/kinds.md", "docs/guides/versions.md"];

fn main() {
    let arguments = Arguments::from_args();
    let files = || tutorial::files_are_the_example(&read(TUTORIAL)?);
    let mut trials =
        vec![Trial::test("the_files_of_the_tutorial_are_the_example", move || failed(files()))];
    let programs = if arguments.list { None } else { Some(Programs::find()) };
    let required = test_cluster::is_required();
    for page in [TUTORIAL].iter().chain(FARM_PAGES) {
        let name = format!("{page}_shows_what_its_commands_print");
        trials.push(match &programs {
            Some(Ok(programs)) => {
                let programs = programs.clone();
                Trial::test(name, move || failed(run(page, &programs)))
            }
            missing => {
                let reason = missing.as_ref().and_then(|found| found.as_ref().err());
                let reason = reason.map(|error| format!("{error:#}")).unwrap_or_default();
                let trial = Trial::test(name, || Err(reason.into()));
                trial.with_kind("no control plane").with_ignored_flag(!required)
            }
        });
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn failed(result: Result<()>) -> Result<(), Failed> {
    result.map_err(|error| format!("{error:#}").into())
}

/// The directory of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(page: &str) -> Result<String> {
    std::fs::read_to_string(root().join(page)).with_context(|| page.to_owned())
}

/// Writes the files of a page, runs its commands in order, and compares what they print.
fn run(page: &str, programs: &Programs) -> Result<()> {
    let program = if page == TUTORIAL { tutorial::program()? } else { Program::farm_operator() };
    let mut shell = Shell::new(program, programs)?;
    for step in page::steps(&read(page)?)? {
        match step {
            Step::File { name, content } => shell.write(&name, &content)?,
            Step::Command { command, expected } => {
                let mut printed = shell.run(&command, &expected);
                // Usage of Pods is polled, so it is shown some moments after the start.
                let start = Instant::now();
                while command.starts_with("kubectl get")
                    && printed.as_ref().is_ok_and(|text| !output::is_alike(&expected, text))
                    && start.elapsed() < PATIENCE
                {
                    std::thread::sleep(Duration::from_millis(100));
                    printed = shell.run(&command, &expected);
                }
                let printed = printed.with_context(|| format!("$ {command}"))?;
                ensure!(
                    output::is_alike(&expected, &printed),
                    "$ {command}\nthe page shows:\n{expected}\nit printed:\n{printed}"
                );
            }
        }
    }
    Ok(())
}
