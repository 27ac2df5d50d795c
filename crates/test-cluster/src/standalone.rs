//! A program that serves without a cluster, in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::Process;

/// The largest time until the program is ready, also on a busy machine.
const START: Duration = Duration::from_secs(90);

/// A program with the flag `--standalone`, which is ready. Dropping it kills the process.
pub struct Standalone {
    /// The path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    // Fields are dropped in this order: first the process, which writes to the directory.
    /// The process.
    pub process: Process,
    folder: TempDir,
}

impl Standalone {
    /// Starts a program on a free port, and waits until it is ready.
    ///
    /// # Errors
    /// When it ends first. The error contains the end of its output.
    pub fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["--standalone", "--secure-port=0"]).args(arguments);
        Self::spawn(command, tempfile::tempdir()?)
    }

    /// Starts a program that may use files of this directory, and waits until it is ready. The files that it leaves when
    /// it is killed are also in the directory.
    ///
    /// # Errors
    /// Same as [`Standalone::start`].
    pub fn spawn(mut command: Command, folder: TempDir) -> Result<Self> {
        const READY: &str = "export KUBECONFIG=";
        // The messages of errors must not contain a backtrace.
        command.env("TMPDIR", folder.path()).env("RUST_BACKTRACE", "0");
        command.env_remove("KUBECONFIG").env_remove("RUST_LOG");
        let mut process = Process::spawn(&command, &folder.path().join("log"))?;
        process.wait_until_printed(READY, START)?;
        let printed = process.printed();
        let path = printed.lines().find_map(|line| line.trim().strip_prefix(READY));
        Ok(Self { kubeconfig: path.unwrap_or_default().into(), process, folder })
    }

    /// Returns the temporary directory of the program.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the last lines of the output.
    pub fn end_of_log(&self) -> String {
        let printed = self.process.printed();
        let lines: Vec<&str> = printed.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}
