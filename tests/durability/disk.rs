//! A small disk, visible only to commands that are created here.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A disk in memory, in a mount namespace that a process holds.
pub struct Disk {
    folder: TempDir,
    holder: Child,
}

impl Disk {
    /// Creates a disk of this size. Returns `None` if the system does not let unprivileged users mount anything.
    pub fn new(bytes: u64) -> Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs -o size=$0,nr_inodes=2000 tmpfs $1 && echo mounted && exec sleep infinity";
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(bytes.to_string()).arg(folder.path());
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let skipped = || {
            eprintln!("skipped: unprivileged users cannot mount a file system");
            Ok(None)
        };
        let Ok(mut holder) = spawned else { return skipped() };
        let mut line = String::new();
        let said = holder.stdout.take().context("a pipe")?;
        BufReader::new(said).read_line(&mut line)?;
        let disk = Self { folder, holder };
        if line == "mounted\n" { Ok(Some(disk)) } else { skipped() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A command that sees the disk.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--mount", "--preserve-credentials", "--target"]);
        command.arg(self.holder.id().to_string()).arg(program);
        command
    }

    fn other(&self) -> PathBuf {
        self.path().join("other")
    }

    /// Fills the rest of the disk.
    pub fn fill(&self) -> Result<()> {
        let filled =
            self.command("sh").args(["-c", "cat /dev/zero > $0"]).arg(self.other()).output()?;
        ensure!(!filled.status.success(), "there was no end of it");
        Ok(())
    }

    /// Frees this number of bytes.
    pub fn free_some(&self, bytes: u64) -> Result<()> {
        let mut command = self.command("truncate");
        command.arg(format!("--size=-{bytes}")).arg(self.other());
        ensure!(command.status()?.success());
        Ok(())
    }

    /// Uses up all inodes of the disk.
    pub fn fill_names(&self) -> Result<()> {
        let script = "mkdir -p $0 && cd $0 && seq 1 100000 | xargs touch";
        let filled = self.command("sh").args(["-c", script]).arg(self.names()).output()?;
        ensure!(!filled.status.success(), "there was no end of them");
        Ok(())
    }

    /// Frees the inodes.
    pub fn free_names(&self) -> Result<()> {
        ensure!(self.command("rm").arg("-r").arg(self.names()).status()?.success());
        Ok(())
    }

    fn names(&self) -> PathBuf {
        self.path().join("names")
    }

    /// Frees the filled space.
    pub fn free(&self) -> Result<()> {
        ensure!(self.command("rm").arg(self.other()).status()?.success());
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
