//! Libraries that are preloaded into a program to change its system calls.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds a library from a C source into a directory, for `LD_PRELOAD`. Returns its path. Rust needs `cc` too, as a
/// linker.
///
/// # Errors
/// When `cc` fails. The error contains its output.
pub fn preloaded_library(source: &Path, folder: &Path) -> Result<PathBuf> {
    let name = source.file_stem().context("the source has a name")?;
    let library = folder.join(name).with_extension("so");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
    let built = command.args(["-ldl", "-lpthread"]).output().context("starting cc")?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(library)
}
