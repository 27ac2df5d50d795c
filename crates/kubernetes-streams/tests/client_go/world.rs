//! The servers, and the program with client-go.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use test_cluster::{PipedProcess, Programs, Ran, StreamClient};
use tokio::runtime::Runtime;

use crate::server;

pub type Test = fn(&World) -> Result<()>;

/// The timeout of a program, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The exit code of the program if the result of a command is an error.
pub const FAILED: i32 = StreamClient::FAILED;

/// A server, and the program with client-go.
pub struct World {
    client: StreamClient,
    address: SocketAddr,
    _server: Server,
}

enum Server {
    Ours {
        _runtime: Runtime,
    },
    Kubelet {
        _process: PipedProcess,
    },
    /// A proxy, and the server behind it.
    Proxied {
        _process: PipedProcess,
        _ours: Box<World>,
    },
}

impl World {
    /// Starts the server of the example.
    ///
    /// # Errors
    /// `Missing` if this machine cannot build the program with client-go.
    pub fn ours() -> Result<Self> {
        let client = StreamClient::build()?;
        let runtime = Runtime::new()?;
        let (listener, address) = runtime.block_on(server::listen())?;
        runtime.spawn(server::run(listener));
        Ok(Self { client, address, _server: Server::Ours { _runtime: runtime } })
    }

    /// Starts a server with the code of kubelet, which ends with this process.
    ///
    /// # Errors
    /// Same as [`World::ours`].
    pub fn kubelet() -> Result<Self> {
        let client = StreamClient::build()?;
        let (_process, address) = kubelet(&[])?;
        Ok(Self { client, address, _server: Server::Kubelet { _process } })
    }

    /// Starts the server of the example behind the code of kube-apiserver.
    ///
    /// # Errors
    /// Same as [`World::ours`].
    pub fn proxied() -> Result<Self> {
        let ours = Self::ours()?;
        let (_process, address) = kubelet(&[&ours.address.to_string()])?;
        let client = ours.client.clone();
        Ok(Self { client, address, _server: Server::Proxied { _process, _ours: ours.into() } })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Executes a command of the Pod.
    pub fn exec(&self, transport: &str, query: &str, input: &[u8]) -> Result<Ran> {
        let url = format!("http://{}/exec?{query}", self.address);
        self.client.exec(transport, &url, input)
    }

    /// Starts to forward a port. Returns the program and the local port.
    pub fn forward(&self, dialer: &str, port: u16) -> Result<(PipedProcess, SocketAddr)> {
        let url = format!("http://{}/portforward", self.address);
        self.client.forward(dialer, &url, port)
    }
}

fn kubelet(arguments: &[&str]) -> Result<(PipedProcess, SocketAddr)> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubelet");
    let package = "aggregated-apiserver.dev/kubernetes-streams/kubelet";
    let program = Programs::built(&module, package, &["go.mod", "go.sum", "main.go"])?;
    let mut command = Command::new(program);
    command.args(arguments).stderr(Stdio::null());
    let mut process = PipedProcess::spawn(command)?;
    let address = process.first_line()?.parse()?;
    Ok((process, address))
}
