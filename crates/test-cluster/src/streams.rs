//! Remote commands and port forwarding with client-go, in the same way as kubectl.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::Programs;

/// The timeout of a program, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program `streams`, which uses client-go.
#[derive(Clone, Debug)]
pub struct StreamClient {
    program: PathBuf,
    kubeconfig: Option<PathBuf>,
}

/// The result of a remote command.
#[derive(Debug)]
pub struct Ran {
    /// The exit code of the command, or [`StreamClient::FAILED`].
    pub code: i32,
    /// The output of the command.
    pub stdout: Vec<u8>,
    /// The error output of the command, or a message after `error: `.
    pub stderr: String,
}

/// A process with pipes for its input and output. It is killed when this value is dropped.
#[derive(Debug)]
pub struct PipedProcess(Child);

impl StreamClient {
    /// The exit code if the result of a command is an error.
    pub const FAILED: i32 = 125;

    /// Builds the program unless it exists.
    ///
    /// # Errors
    /// [`Missing`](crate::Missing) when it does not exist and there is no `go`.
    pub fn build() -> Result<Self> {
        Ok(Self { program: Programs::streams()?, kubeconfig: None })
    }

    /// The same client, with the CA and the credentials of a kubeconfig.
    #[must_use]
    pub fn with_kubeconfig(&self, kubeconfig: &Path) -> Self {
        Self { program: self.program.clone(), kubeconfig: Some(kubeconfig.to_owned()) }
    }

    /// Executes a command. If the query of the URL contains `tty`, the client has a terminal.
    ///
    /// # Errors
    /// When the program cannot be started or does not end.
    pub fn exec(&self, transport: &str, url: &str, input: &[u8]) -> Result<Ran> {
        let mut command = self.command(&["exec", transport, url]);
        if url.contains("tty") {
            command.arg("tty");
        }
        run(command, input).with_context(|| format!("{transport} {url}"))
    }

    /// Starts to forward a port. Returns the program and the local address.
    ///
    /// # Errors
    /// When the program cannot be started or does not forward.
    pub fn forward(
        &self,
        dialer: &str,
        url: &str,
        port: u16,
    ) -> Result<(PipedProcess, SocketAddr)> {
        let mut program =
            PipedProcess::spawn(self.command(&["forward", dialer, url, &port.to_string()]))?;
        let line = program.first_line()?;
        let Ok(port) = line.parse::<u16>() else {
            let (code, stderr) = program.ended()?;
            return Err(anyhow!("{dialer}: {line:?}, {code} {stderr}"));
        };
        Ok((program, ([127, 0, 0, 1], port).into()))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_remove("KUBECONFIG").stderr(Stdio::piped());
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
    }
}

impl PipedProcess {
    /// Starts a program. Its error output is not changed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(command.spawn().with_context(|| format!("{command:?}"))?))
    }

    /// Reads the first line of the output, and closes the output.
    ///
    /// # Errors
    /// When the output was read before, or cannot be read.
    pub fn first_line(&mut self) -> Result<String> {
        let output: ChildStdout = self.0.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Closes the input, and waits until the program has ended. Returns its exit code and error output.
    ///
    /// # Errors
    /// When the program does not end, or was killed.
    pub fn end(mut self) -> Result<(i32, String)> {
        drop(self.0.stdin.take());
        self.ended()
    }

    /// Waits until the program has ended. Returns its exit code and error output.
    ///
    /// # Errors
    /// When the program does not end, or was killed.
    pub fn ended(mut self) -> Result<(i32, String)> {
        let code = wait(&mut self.0)?;
        let mut stderr = String::new();
        self.0.stderr.take().context("no error output")?.read_to_string(&mut stderr)?;
        Ok((code, stderr))
    }
}

impl Drop for PipedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends data to an echo server, and compares what the server returns.
///
/// # Errors
/// When the connection fails, or the server returns something else.
pub fn echo(address: SocketAddr, data: &[u8]) -> Result<()> {
    let connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let received = thread::scope(|scope| {
        scope.spawn(|| {
            (&connection).write_all(data)?;
            connection.shutdown(Shutdown::Write)
        });
        let mut received = Vec::new();
        (&connection).read_to_end(&mut received).map(|_| received)
    })?;
    ensure!(received == data, "{} of {} bytes", received.len(), data.len());
    Ok(())
}

fn wait(child: &mut Child) -> Result<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return status.code().context("killed by a signal");
        }
        ensure!(Instant::now() < deadline, "the program does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

fn run(command: Command, input: &[u8]) -> Result<Ran> {
    let mut child = PipedProcess::spawn(command)?;
    let child = &mut child.0;
    let mut stdin = child.stdin.take().context("no input")?;
    let mut stdout = child.stdout.take().context("no output")?;
    let mut stderr = child.stderr.take().context("no error output")?;
    thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        let stdout = scope.spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        });
        let stderr = scope.spawn(move || io::read_to_string(&mut stderr));
        let code = wait(child);
        if code.is_err() {
            let _ = child.kill();
        }
        let stdout = stdout.join().map_err(|_| anyhow!("a thread panicked"))??;
        let stderr = stderr.join().map_err(|_| anyhow!("a thread panicked"))??;
        Ok(Ran { code: code.context(stderr.clone())?, stdout, stderr })
    })
}
