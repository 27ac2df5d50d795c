//! A wrong clock.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use test_cluster::preloaded_library;

/// A library that shifts the clock of a process.
pub struct Clock {
    library: PathBuf,
    seconds: i64,
}

impl Clock {
    /// Builds the library in a directory.
    pub fn build(folder: &Path, seconds: i64) -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replicas/clock.c");
        Ok(Self { library: preloaded_library(&source, folder)?, seconds })
    }

    /// The shift of the clock, in seconds.
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    /// Applies the clock to the process of a command.
    pub fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("CLOCK_OFFSET", self.seconds.to_string());
    }
}
