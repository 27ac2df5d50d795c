//! The project of the tutorial, in a temporary directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use test_cluster::{Process, Programs};

/// The time for a server to print its kubeconfig.
const START: Duration = Duration::from_secs(60);

/// The project and its running server.
pub struct Project {
    directory: TempDir,
    kubectl: PathBuf,
    /// Crates from which the project is built; without them the example `alpacas` is run.
    crates: Option<PathBuf>,
    server: Option<Process>,
}

impl Project {
    pub fn new(programs: &Programs) -> Result<Self> {
        let directory = TempDir::new()?;
        std::fs::create_dir(directory.path().join("src"))?;
        let crates = std::env::var_os("TUTORIAL_CRATES").map(PathBuf::from);
        Ok(Self { directory, kubectl: programs.path("kubectl"), crates, server: None })
    }

    pub fn write(&self, name: &str, content: &str) -> Result<()> {
        std::fs::write(self.directory.path().join(name), content)?;
        if name == "Cargo.toml"
            && let Some(crates) = &self.crates
        {
            self.use_crates(crates)?;
        }
        Ok(())
    }

    /// Runs a command of the page, and returns what it prints; `None` if that is not comparable.
    pub fn run(&mut self, command: &str) -> Result<Option<String>> {
        match command {
            // The directory exists.
            "cargo new alpacas" | "cd alpacas" => Ok(None),
            "cargo run -- --standalone" => self.serve(),
            "cargo test" => self.test(),
            command => match command.strip_prefix("cargo run -- ") {
                Some(arguments) => {
                    self.shell(&format!("{} {arguments}", self.program()?.display()))
                }
                None => self.shell(command),
            },
        }
    }

    /// Starts the server in the place of the one before.
    fn serve(&mut self) -> Result<Option<String>> {
        drop(self.server.take());
        let log = self.directory.path().join("server.log");
        // It contains the output of the server before.
        let _ = std::fs::remove_file(&log);
        let mut command = Command::new(self.program()?);
        command.args(["--standalone", "--secure-port=0", "--write-kubeconfig"]);
        command.arg(self.kubeconfig()).current_dir(self.directory.path());
        let server = Process::spawn(&command, &log)?;
        let server = self.server.insert(server);
        let start = Instant::now();
        while !server.printed().contains("export KUBECONFIG=") {
            server.ensure_running()?;
            ensure!(start.elapsed() < START, "the server is not ready: {}", server.printed());
            std::thread::sleep(Duration::from_millis(20));
        }
        // The page shows the output on a terminal, which a unit test of standalone-apiserver checks.
        Ok(None)
    }

    fn shell(&self, command: &str) -> Result<Option<String>> {
        let path = std::env::var("PATH")?;
        let programs = self.kubectl.parent().context("kubectl is in a directory")?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{command} 2>&1")]).current_dir(self.directory.path());
        shell.env("PATH", format!("{}:{path}", programs.display()));
        shell.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.directory.path());
        Ok(Some(String::from_utf8(shell.stdin(Stdio::null()).output()?.stdout)?))
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// The program: the example, or the project of the page after it was built.
    fn program(&self) -> Result<PathBuf> {
        if self.crates.is_some() {
            self.cargo(&["build"])?;
            return Ok(self.target().join("debug/alpacas"));
        }
        let test = std::env::current_exe()?;
        let target = test.parent().and_then(Path::parent).context("tests are in a directory")?;
        let example = target.join("examples/alpacas");
        ensure!(example.is_file(), "`cargo build --examples` builds {}", example.display());
        Ok(example)
    }

    fn test(&self) -> Result<Option<String>> {
        // Otherwise `cargo test` runs the tests of the example.
        if self.crates.is_some() {
            self.cargo(&["test"])?;
        }
        Ok(None)
    }

    fn cargo(&self, arguments: &[&str]) -> Result<()> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments).current_dir(self.directory.path());
        cargo.env("CARGO_TARGET_DIR", self.target());
        let output = cargo.output()?;
        if !output.status.success() {
            bail!("cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    fn target(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tutorial")
    }

    /// Replaces the crates of this repository by those of a directory, `NAME-VERSION` each.
    fn use_crates(&self, crates: &Path) -> Result<()> {
        let file = self.directory.path().join("Cargo.toml");
        let mut manifest = std::fs::read_to_string(&file)?;
        manifest.push_str("\n[patch.crates-io]\n");
        for entry in std::fs::read_dir(crates)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some((name, _)) = name.rsplit_once('-')
                && path.is_dir()
            {
                manifest.push_str(&format!("{name} = {{ path = {path:?} }}\n"));
            }
        }
        Ok(std::fs::write(file, manifest)?)
    }
}
