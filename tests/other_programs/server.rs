//! The program without a cluster.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use test_cluster::Process;

/// The timeout of any step, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// farm-operator on its own port. Dropping it stops the program.
pub struct Server {
    pub kubeconfig: PathBuf,
    // Fields are dropped in this order: first the process, which writes to the directory.
    process: Process,
    folder: tempfile::TempDir,
}

impl Server {
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
        command.args(["--standalone", "--secure-port=0", "--write-kubeconfig"]).arg(&kubeconfig);
        command.args(arguments);
        command.env_remove("KUBECONFIG").env_remove("RUST_LOG");
        let mut process = Process::spawn(&command, &folder.path().join("farm-operator.log"))?;
        // The program prints this line once it is ready.
        process.wait_until_printed("export KUBECONFIG=", PATIENCE)?;
        Ok(Self { kubeconfig, process, folder })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The last lines of its output.
    pub fn log(&self) -> String {
        let printed = self.process.printed();
        let lines: Vec<&str> = printed.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}
