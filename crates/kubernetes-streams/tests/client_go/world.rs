//! The servers, and the program with client-go.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use test_cluster::Programs;
use tokio::runtime::Runtime;

use crate::server;

pub type Test = fn(&World) -> Result<()>;

/// The timeout of a program, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The exit code of the program if the result of a command is an error.
pub const FAILED: i32 = 125;

/// A server, and the program with client-go.
pub struct World {
    program: PathBuf,
    address: SocketAddr,
    _server: Server,
}

enum Server {
    Ours {
        _runtime: Runtime,
    },
    Kubelet {
        _process: Killed,
    },
    /// A proxy, and the server behind it.
    Proxied {
        _process: Killed,
        _ours: Box<World>,
    },
}

/// The result of a program.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl World {
    /// Starts the server of the example.
    ///
    /// # Errors
    /// `Missing` if this machine cannot build the program with client-go.
    pub fn ours() -> Result<Self> {
        let program = Programs::streams()?;
        let runtime = Runtime::new()?;
        let (listener, address) = runtime.block_on(server::listen())?;
        runtime.spawn(server::run(listener));
        Ok(Self { program, address, _server: Server::Ours { _runtime: runtime } })
    }

    /// Starts a server with the code of kubelet, which ends with this process.
    ///
    /// # Errors
    /// Same as [`World::ours`].
    pub fn kubelet() -> Result<Self> {
        let program = Programs::streams()?;
        let (_process, address) = kubelet(&[])?;
        Ok(Self { program, address, _server: Server::Kubelet { _process } })
    }

    /// Starts the server of the example behind the code of kube-apiserver.
    ///
    /// # Errors
    /// Same as [`World::ours`].
    pub fn proxied() -> Result<Self> {
        let ours = Self::ours()?;
        let (_process, address) = kubelet(&[&ours.address.to_string()])?;
        let program = ours.program.clone();
        Ok(Self { program, address, _server: Server::Proxied { _process, _ours: ours.into() } })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Executes a command of the Pod.
    pub fn exec(&self, transport: &str, query: &str, input: &[u8]) -> Result<Ran> {
        let url = format!("http://{}/exec?{query}", self.address);
        let mut command = Command::new(&self.program);
        command.args(["exec", transport, &url]);
        if query.contains("tty") {
            command.arg("tty");
        }
        run(command, input).with_context(|| format!("{transport} {query}"))
    }

    /// Starts to forward a port. Returns the program and the local port.
    pub fn forward(&self, dialer: &str, port: u16) -> Result<(Killed, SocketAddr)> {
        let url = format!("http://{}/portforward", self.address);
        let mut command = Command::new(&self.program);
        command.args(["forward", dialer, &url, &port.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Killed(command.spawn()?);
        let port = first_line(child.0.stdout.take())?;
        let port: u16 = port.parse().with_context(|| format!("{dialer}: {port:?}"))?;
        Ok((child, ([127, 0, 0, 1], port).into()))
    }
}

fn kubelet(arguments: &[&str]) -> Result<(Killed, SocketAddr)> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubelet");
    let package = "aggregated-apiserver.dev/kubernetes-streams/kubelet";
    let program = Programs::built(&module, package, &["go.mod", "go.sum", "main.go"])?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Killed(command.spawn()?);
    let address = first_line(process.0.stdout.take())?.parse()?;
    Ok((process, address))
}

/// A process that is killed when it is dropped.
pub struct Killed(Child);

impl Killed {
    /// Closes the input, and waits until the program has ended. Returns its exit code and error output.
    pub fn end(mut self) -> Result<(i32, String)> {
        drop(self.0.stdin.take());
        self.ended()
    }

    /// Waits until the program has ended. Returns its exit code and error output.
    pub fn ended(mut self) -> Result<(i32, String)> {
        let code = wait(&mut self.0)?;
        let mut stderr = String::new();
        self.0.stderr.take().context("no error output")?.read_to_string(&mut stderr)?;
        Ok((code, stderr))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn first_line(output: Option<ChildStdout>) -> Result<String> {
    let mut line = String::new();
    BufReader::new(output.context("no output")?).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn wait(child: &mut Child) -> Result<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return status.code().context("killed by a signal");
        }
        ensure!(Instant::now() < deadline, "the program does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn run(mut command: Command, input: &[u8]) -> Result<Ran> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn()?);
    let child = &mut child.0;
    let mut stdin = child.stdin.take().context("no input")?;
    let mut stdout = child.stdout.take().context("no output")?;
    let mut stderr = child.stderr.take().context("no error output")?;
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        let stdout = scope.spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        });
        let stderr = scope.spawn(move || std::io::read_to_string(&mut stderr));
        let code = wait(child);
        if code.is_err() {
            let _ = child.kill();
        }
        let stdout = stdout.join().map_err(|_| anyhow!("a thread panicked"))??;
        let stderr = stderr.join().map_err(|_| anyhow!("a thread panicked"))??;
        Ok(Ran { code: code.context(stderr.clone())?, stdout, stderr })
    })
}
