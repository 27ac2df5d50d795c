//! A child process that never outlives this process.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// A child process. It is killed when this value is dropped. If `setpriv` is installed, the kernel also kills it when
/// this process is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output is appended to the file `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: &Command, log: &Path) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let file = File::options().create(true).append(true).open(log)?;
        let mut command = bound_to_us(command);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = spawn(command).with_context(|| format!("starting {name}"))?;
        Ok(Self { child, name, log: log.to_owned() })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the whole output.
    pub fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the process has printed this text.
    ///
    /// # Errors
    /// When the process ends first, or the text is missing after `patience`. The error contains the output.
    pub fn wait_until_printed(&mut self, text: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !self.printed().contains(text) {
            self.ensure_running()?;
            let printed = self.printed();
            ensure!(Instant::now() < deadline, "{} has not printed {text:?}: {printed}", self.name);
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Fails if the process has ended.
    ///
    /// # Errors
    /// When the process has ended. The error contains the end of its output.
    pub fn ensure_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let printed = self.printed();
            let lines: Vec<&str> = printed.lines().collect();
            let end = lines[lines.len().saturating_sub(20)..].join("\n");
            bail!("{} has ended: {status}\n{end}", self.name);
        }
        Ok(())
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// When there is no shell, or the process has ended.
    pub fn terminate(&self) -> Result<()> {
        self.signal("TERM")
    }

    /// Sends SIGSTOP: the process stops responding, and its connections stay open.
    ///
    /// # Errors
    /// Same as [`Process::terminate`].
    pub fn suspend(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Sends SIGCONT, so that a suspended process continues.
    ///
    /// # Errors
    /// Same as [`Process::terminate`].
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let kill = format!("kill -s {name} {}", self.id());
        let status = Command::new("sh").args(["-c", &kill]).status()?;
        if !status.success() {
            bail!("{} cannot be sent SIG{name}: {status}", self.name);
        }
        Ok(())
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// When its status cannot be read.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the lines of a program's output as they are written. A thread reads them until the output ends or the
/// receiver is dropped.
pub fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

type Request = (Command, Sender<io::Result<Child>>);

/// Starts a program on a thread that lives as long as this process: with `setpriv`, the kernel kills a child when the
/// thread that started it ends.
fn spawn(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, answered) = channel();
    spawner.send((command, answer)).context("the spawner is gone")?;
    Ok(answered.recv()??)
}

/// Returns the same command, which the kernel kills when this process ends.
fn bound_to_us(command: &Command) -> Command {
    let has_setpriv = has_setpriv();
    let program = command.get_program();
    let mut bound = if has_setpriv {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--pdeathsig", "KILL", "--"]).arg(program);
        setpriv
    } else {
        Command::new(program)
    };
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    if has_setpriv {
        // With a process group of its own, the child does not receive SIGINT from Ctrl-C; this process ends it. Without
        // `setpriv` the child could outlive this process, so it must receive the signal too.
        bound.process_group(0);
    }
    bound
}

/// Whether an installed `setpriv` supports `--pdeathsig`; some versions do not.
fn has_setpriv() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let probe = Command::new("setpriv").args(["--pdeathsig", "KILL", "true"]).output();
        probe.is_ok_and(|output| output.status.success())
    })
}

/// Returns the path where `cargo test` builds an example of the package under test.
///
/// # Errors
/// When the example was not built.
pub fn example(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.parent().and_then(Path::parent).context("tests are in a directory")?;
    let program = target.join("examples").join(name);
    ensure!(program.is_file(), "`cargo build --examples` builds {}", program.display());
    Ok(program)
}
