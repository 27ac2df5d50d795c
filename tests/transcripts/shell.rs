//! The terminal of a reader: a temporary directory, and the server that its commands use.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use test_cluster::{Process, Programs};

use crate::root;

/// The time for a server to print its kubeconfig.
const START: Duration = Duration::from_secs(60);

/// The program that `cargo run` starts.
pub enum Program {
    /// A program of this workspace.
    Built(PathBuf),
    /// The project in the directory, with crates from another directory, `NAME-VERSION` each.
    Project { crates: PathBuf },
}

impl Program {
    pub fn farm_operator() -> Self {
        Self::Built(env!("CARGO_BIN_EXE_farm-operator").into())
    }

    /// An example, which `cargo test` builds.
    pub fn example(name: &str) -> Result<Self> {
        test_cluster::example(name).map(Self::Built)
    }
}

pub struct Shell {
    directory: TempDir,
    program: Program,
    kubectl: PathBuf,
    server: Option<Process>,
}

impl Shell {
    pub fn new(program: Program, programs: &Programs) -> Result<Self> {
        let directory = TempDir::new()?;
        std::fs::create_dir(directory.path().join("src"))?;
        std::os::unix::fs::symlink(root().join("examples"), directory.path().join("examples"))?;
        Ok(Self { directory, program, kubectl: programs.path("kubectl"), server: None })
    }

    pub fn write(&self, name: &str, content: &str) -> Result<()> {
        std::fs::write(self.directory.path().join(name), content)?;
        match &self.program {
            Program::Project { crates } if name == "Cargo.toml" => self.use_crates(crates),
            _ => Ok(()),
        }
    }

    /// Runs a command of a page, and returns what it prints, or the expectation if that cannot be compared.
    pub fn run(&mut self, command: &str, expected: &str) -> Result<String> {
        let is_served = self.server.is_some();
        match command.split(' ').collect::<Vec<_>>()[..] {
            // The directory exists.
            ["cargo", "new", _] | ["cd", _] => Ok(expected.to_owned()),
            ["cargo", "test"] => self.test().map(|()| expected.to_owned()),
            // The page may show the output on a terminal, which a unit test of standalone-apiserver checks.
            ["cargo", "run", "--", "--standalone", ref more @ ..] => {
                self.serve(more).map(|()| expected.to_owned())
            }
            ["cargo", "run", "--", ref arguments @ ..] => {
                self.shell(&format!("{} {}", self.program()?.display(), arguments.join(" ")))
            }
            // A file that the reader has written.
            ["cat", file] => self.write(file, expected).map(|()| expected.to_owned()),
            ["kubectl", ..] if !is_served => {
                self.serve(&["--load", "examples/farm.yaml"])?;
                self.shell(command)
            }
            _ => self.shell(command),
        }
    }

    /// Starts the server in the place of the one before.
    fn serve(&mut self, arguments: &[&str]) -> Result<()> {
        drop(self.server.take());
        let log = self.directory.path().join("server.log");
        // It contains the output of the server before.
        let _ = std::fs::remove_file(&log);
        let mut command = Command::new(self.program()?);
        command.args(["--standalone", "--secure-port=0", "--write-kubeconfig"]);
        command.arg(self.kubeconfig()).args(arguments).current_dir(self.directory.path());
        let server = self.server.insert(Process::spawn(&command, &log)?);
        server.wait_until_printed("export KUBECONFIG=", START)
    }

    fn shell(&self, command: &str) -> Result<String> {
        let path = std::env::var("PATH")?;
        let programs = self.kubectl.parent().context("kubectl is in a directory")?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{command} 2>&1")]).current_dir(self.directory.path());
        shell.env("PATH", format!("{}:{path}", programs.display()));
        shell.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.directory.path());
        Ok(String::from_utf8(shell.stdin(Stdio::null()).output()?.stdout)?)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// The path of the program. A project is built.
    fn program(&self) -> Result<PathBuf> {
        match &self.program {
            Program::Built(program) => Ok(program.clone()),
            Program::Project { .. } => {
                self.cargo(&["build"])?;
                Ok(target().join("debug/alpacas"))
            }
        }
    }

    /// Runs the tests of a project. `tests/standalone.rs` runs the tests of the examples.
    fn test(&self) -> Result<()> {
        match self.program {
            Program::Built(_) => Ok(()),
            Program::Project { .. } => self.cargo(&["test"]),
        }
    }

    fn cargo(&self, arguments: &[&str]) -> Result<()> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments).current_dir(self.directory.path());
        let output = cargo.env("CARGO_TARGET_DIR", target()).output()?;
        if !output.status.success() {
            bail!("cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Replaces the crates of this repository in `Cargo.toml`.
    fn use_crates(&self, crates: &Path) -> Result<()> {
        let file = self.directory.path().join("Cargo.toml");
        let mut manifest = std::fs::read_to_string(&file)?;
        manifest.push_str("\n[patch.crates-io]\n");
        for entry in std::fs::read_dir(crates)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir()
                && let Some((name, _)) = name.rsplit_once('-')
            {
                manifest.push_str(&format!("{name} = {{ path = {path:?} }}\n"));
            }
        }
        Ok(std::fs::write(file, manifest)?)
    }
}

/// The build directory of the project.
fn target() -> PathBuf {
    root().join("target/tutorial")
}
