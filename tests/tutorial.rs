//! The tutorial, step by step: its files are those of the example `alpacas`, and its commands print what the page shows.
//!
//! Without kubectl, and without `go` to build it, the commands are reported as ignored. With `REQUIRE_CONTROL_PLANE`
//! set, they fail instead. With `TUTORIAL_CRATES` set to a directory of crates, the project of the page is built from
//! these crates, outside of this workspace, at each step: `scripts/package` does so with the packaged crates.

#![allow(clippy::unwrap_used)] // all of it is a test

#[path = "tutorial/output.rs"]
mod output;
#[path = "tutorial/page.rs"]
mod page;
#[path = "tutorial/project.rs"]
mod project;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Trial};
use page::Step;
use project::Project;
use test_cluster::Programs;

const PAGE: &str = include_str!("../docs/tutorial.md");

fn main() {
    let arguments = Arguments::from_args();
    let files = Trial::test("the_files_of_the_tutorial_are_the_example", || {
        files_are_the_example().map_err(|error| format!("{error:#}").into())
    });
    let required = std::env::var_os("REQUIRE_CONTROL_PLANE").is_some();
    let name = "the_commands_of_the_tutorial_print_what_it_shows";
    let commands = match if arguments.list { None } else { Some(Programs::find()) } {
        Some(Ok(programs)) => Trial::test(name, move || {
            commands_print_what_it_shows(&programs).map_err(|error| format!("{error:#}").into())
        }),
        missing => {
            let reason = missing.and_then(Result::err).map(|error| format!("{error:#}"));
            let trial = Trial::test(name, || Err(reason.unwrap_or_default().into()));
            trial.with_kind("no control plane").with_ignored_flag(!required)
        }
    };
    libtest_mimic::run(&arguments, vec![files, commands]).exit();
}

/// The last version of each Rust file on the page is the file of the example.
fn files_are_the_example() -> Result<()> {
    let mut files = BTreeMap::new();
    for step in page::steps(PAGE)? {
        if let Step::File { name, content } = step
            && let Some(name) = name.strip_prefix("src/")
        {
            files.insert(name.to_owned(), content);
        }
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/alpacas");
    ensure!(files.len() == std::fs::read_dir(&directory)?.count(), "{:?}", files.keys());
    for (name, content) in files {
        let example = std::fs::read_to_string(directory.join(&name))?;
        ensure!(example == content, "examples/alpacas/{name} is not the file on the page");
    }
    Ok(())
}

fn commands_print_what_it_shows(programs: &Programs) -> Result<()> {
    let mut project = Project::new(programs)?;
    for step in page::steps(PAGE)? {
        match step {
            Step::File { name, content } => project.write(&name, &content)?,
            Step::Command { command, expected } => {
                let printed = project.run(&command).with_context(|| format!("$ {command}"))?;
                let printed = printed.unwrap_or_else(|| expected.clone());
                ensure!(
                    output::is_alike(&expected, &printed),
                    "$ {command}\nthe page shows:\n{expected}\nit printed:\n{printed}"
                );
            }
        }
    }
    Ok(())
}
