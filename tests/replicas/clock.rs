//! A wrong clock.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// A library that shifts the clock of a process.
pub struct Clock {
    library: PathBuf,
    seconds: i64,
}

impl Clock {
    /// Builds the library in a directory; `None` if there is no C compiler.
    pub fn build(folder: &Path, seconds: i64) -> Result<Option<Self>> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replicas/clock.c");
        let library = folder.join("clock.so");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        let Ok(built) = command.output() else {
            println!("left out: there is no C compiler for a clock that is wrong");
            return Ok(None);
        };
        ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Ok(Some(Self { library, seconds }))
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
