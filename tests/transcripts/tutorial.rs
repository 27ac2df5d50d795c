//! The project of the tutorial.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::page::{self, Step};
use crate::root;
use crate::shell::Program;

/// The program: the example, or the project of the page, which is built from the crates of `TUTORIAL_CRATES`.
pub fn program() -> Result<Program> {
    match std::env::var_os("TUTORIAL_CRATES") {
        Some(crates) => Ok(Program::Project { crates: PathBuf::from(crates) }),
        None => Program::example("alpacas"),
    }
}

/// The last version of each Rust file on the page is the file of the example.
pub fn files_are_the_example(page: &str) -> Result<()> {
    let mut files = BTreeMap::new();
    for step in page::steps(page)? {
        if let Step::File { name, content } = step
            && let Some(name) = name.strip_prefix("src/")
        {
            files.insert(name.to_owned(), content);
        }
    }
    let directory = root().join("examples/alpacas");
    ensure!(files.len() == std::fs::read_dir(&directory)?.count(), "{:?}", files.keys());
    for (name, content) in files {
        let example = std::fs::read_to_string(directory.join(&name))?;
        ensure!(example == content, "examples/alpacas/{name} is not the file on the page");
    }
    Ok(())
}
