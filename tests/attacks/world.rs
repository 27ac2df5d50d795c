//! A new process of the program with its own cluster, and the clients that connect to it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::body::{Body, Bytes};
use http::Request;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use test_cluster::{Authority, Certificate, Process, ServerFiles, free_port};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cluster::Cluster;

/// The environment variable that names another program than the one of this build.
const PROGRAM: &str = "FARM_OPERATOR";
/// The timeout for the program to become ready.
const START: Duration = Duration::from_secs(60);
/// The timeout of an attacker's connection.
const CONNECT: Duration = Duration::from_secs(15);
/// The address of attackers. All other clients connect from 127.0.0.1.
const ATTACKER: [u8; 4] = [127, 0, 0, 2];
/// The number of users in a crowd.
const CROWD: usize = 100;
pub const GROUP: &str = "/apis/farm.example.com/v1alpha";

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A client without a certificate.
    Stranger,
    /// eve, who is allowed to do everything, with a client certificate.
    Eve,
    /// The front proxy with requests of users; in an attack, those of eve.
    FrontProxy,
    /// A hundred users with certificates. Each connection belongs to the next user and comes from another address.
    Crowd,
    /// An honest user with a client certificate.
    Honest,
    /// An honest user with a token and no certificate.
    HonestWithToken,
    /// The front proxy with requests of an honest user.
    HonestFrontProxy,
}

/// The program and its environment.
pub struct World {
    pub cluster: Cluster,
    pub address: SocketAddr,
    program: Mutex<Process>,
    before: AtomicUsize,
    configs: Configs,
    pub files: ServerFiles,
}

struct Configs {
    stranger: Arc<ClientConfig>,
    eve: Arc<ClientConfig>,
    proxy: Arc<ClientConfig>,
    honest: Arc<ClientConfig>,
    /// The TLS configurations of the crowd, created on first use, and the number of its next user.
    crowd: OnceLock<Vec<Arc<ClientConfig>>>,
    next_of_crowd: AtomicUsize,
}

impl World {
    /// Starts the program, and waits until it is ready.
    pub async fn start() -> Result<Arc<Self>> {
        let cluster = Cluster::start()?;
        let files = ServerFiles::new(&format!("http://{}", cluster.address))?;
        let (eve, honest) = (files.client("eve", None)?, files.client("honest", None)?);
        let config = |certificate| config(&files.authority, certificate);
        let configs = Configs {
            stranger: config(None)?,
            eve: config(Some(&eve))?,
            proxy: config(Some(&files.front_proxy))?,
            honest: config(Some(&honest))?,
            crowd: OnceLock::new(),
            next_of_crowd: AtomicUsize::new(0),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let program =
            std::env::var_os(PROGRAM).unwrap_or_else(|| env!("CARGO_BIN_EXE_farm-operator").into());
        let mut command = Command::new(program);
        files.configure(&mut command, address.port());
        command.args(["--requestheader-allowed-names", "front-proxy"]);
        let program = Process::spawn(&command, &files.path().join("log"))?;
        let program = Mutex::new(program);
        let before = AtomicUsize::new(0);
        let world = Self { cluster, address, program, before, configs, files };
        world.wait_until_ready().await?;
        Ok(Arc::new(world))
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            self.ensure_alive()?;
            let asked = async {
                let mut client = self.client(Who::Stranger).await?;
                client.ask("GET", "/readyz", "").await
            };
            match asked.await {
                Ok((200, _)) => return Ok(()),
                outcome if Instant::now() > deadline => bail!("never ready: {outcome:?}"),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Fails if the program has ended.
    pub fn ensure_alive(&self) -> Result<()> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).ensure_running()
    }

    /// The output of the program.
    pub fn printed(&self) -> String {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).printed()
    }

    /// Marks the start of the attack: resets the peak of the program's memory.
    pub fn begin(&self) -> Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.id()), "5")?;
        self.before.store(self.status("VmRSS")?, Ordering::Relaxed);
        Ok(())
    }

    /// The largest growth since `begin`, in MiB.
    pub fn grown(&self) -> Result<usize> {
        Ok(self.status("VmHWM")?.saturating_sub(self.before.load(Ordering::Relaxed)) >> 10)
    }

    /// A value of `/proc/PID/status`, in KiB.
    fn status(&self, name: &str) -> Result<usize> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no number")?;
        Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
    }

    fn id(&self) -> u32 {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    /// Opens a TCP connection without sending anything.
    pub async fn tcp(&self, who: Who) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if matches!(who, Who::Stranger | Who::Eve) {
            socket.bind((IpAddr::from(ATTACKER), 0).into())?;
        }
        Ok(timeout(CONNECT, socket.connect(self.address)).await??)
    }

    /// Opens a TLS connection.
    pub async fn tls(&self, who: Who, alpn: &str) -> Result<TlsStream<TcpStream>> {
        let config = match who {
            Who::Crowd => return self.tls_of_crowd(alpn).await,
            Who::Stranger | Who::HonestWithToken => &self.configs.stranger,
            Who::Eve => &self.configs.eve,
            Who::FrontProxy | Who::HonestFrontProxy => &self.configs.proxy,
            Who::Honest => &self.configs.honest,
        };
        self.tls_with(who, config, alpn).await
    }

    /// Opens a connection of the next user of the crowd.
    async fn tls_of_crowd(&self, alpn: &str) -> Result<TlsStream<TcpStream>> {
        let made = || {
            let one = |number: usize| {
                let name = format!("user-{number}");
                let certificate = self.files.client(&name, None)?;
                self.config(Some(&certificate))
            };
            (0..CROWD).map(one).collect::<Result<Vec<_>>>()
        };
        let crowd = match self.configs.crowd.get() {
            Some(crowd) => crowd,
            None => {
                let made = made()?;
                self.configs.crowd.get_or_init(|| made)
            }
        };
        let number = self.configs.next_of_crowd.fetch_add(1, Ordering::Relaxed) % CROWD;
        let socket = TcpSocket::new_v4()?;
        let address = [127, 0, 1, u8::try_from(number)?];
        socket.bind((IpAddr::from(address), 0).into())?;
        let tcp = timeout(CONNECT, socket.connect(self.address)).await??;
        Self::tls_over(tcp, &crowd[number], alpn).await
    }

    /// Opens a TLS connection with this configuration.
    pub async fn tls_with(
        &self,
        who: Who,
        config: &Arc<ClientConfig>,
        alpn: &str,
    ) -> Result<TlsStream<TcpStream>> {
        Self::tls_over(self.tcp(who).await?, config, alpn).await
    }

    async fn tls_over(
        tcp: TcpStream,
        config: &Arc<ClientConfig>,
        alpn: &str,
    ) -> Result<TlsStream<TcpStream>> {
        tcp.set_nodelay(true)?;
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost")?;
        Ok(timeout(CONNECT, connector.connect(name, tcp)).await??)
    }

    /// The configuration of a client with a certificate that the test authority signed, or without one.
    pub fn config(&self, certificate: Option<&Certificate>) -> Result<Arc<ClientConfig>> {
        config(&self.files.authority, certificate)
    }

    /// A client that conforms to the protocol.
    pub async fn client(&self, who: Who) -> Result<Client> {
        self.client_with(who, http2::Builder::new(TokioExecutor::new())).await
    }

    /// A client that conforms to the protocol, with these HTTP/2 settings.
    pub async fn client_with(
        &self,
        who: Who,
        builder: http2::Builder<TokioExecutor>,
    ) -> Result<Client> {
        let stream = self.tls(who, "h2").await?;
        let handshake = builder.handshake(TokioIo::new(stream));
        let (sender, connection) = timeout(CONNECT, handshake).await??;
        tokio::spawn(connection);
        Ok(Client { sender, who })
    }

    /// Creates objects of this size in a namespace. Returns the number of created objects.
    pub async fn fill(&self, namespace: &str, count: usize, size: usize) -> Result<usize> {
        let mut client = self.client(Who::FrontProxy).await?;
        let mut created = 0;
        for number in 0..count {
            let body = llama(&format!("large-{number}"), size);
            let path = llamas(namespace);
            let (status, answer) = client.ask("POST", &path, body).await?;
            match status {
                201 => created += 1,
                507 | 429 | 403 => break,
                _ => {
                    bail!("{status} {}", String::from_utf8_lossy(&answer[..answer.len().min(500)]))
                }
            }
        }
        ensure!(created > 0, "nothing could be created");
        Ok(created)
    }
}

fn config(authority: &Authority, certificate: Option<&Certificate>) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&authority.file)?)?;
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match certificate {
        None => config.with_no_client_auth(),
        Some(Certificate { certificate, key, .. }) => {
            let chain = vec![CertificateDer::from_pem_file(certificate)?];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key)?)?
        }
    };
    // Every handshake is a full one.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A client that conforms to the protocol, on one connection.
#[derive(Clone)]
pub struct Client {
    pub sender: http2::SendRequest<Body>,
    who: Who,
}

impl Client {
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> Result<Request<Body>> {
        let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        let request = match self.who {
            Who::FrontProxy => request.header("x-remote-user", "eve"),
            Who::HonestFrontProxy => request.header("x-remote-user", "honest"),
            _ => request,
        };
        Ok(request.body(body.into())?)
    }

    /// Sends a request, and reads the response.
    pub async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> Result<(u16, Bytes)> {
        let request = self.request(method, path, body)?;
        self.send(request).await
    }

    pub async fn send(&mut self, request: Request<Body>) -> Result<(u16, Bytes)> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

pub fn llamas(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/llamas")
}

/// A llama of about this size, in bytes.
pub fn llama(name: &str, size: usize) -> String {
    let owners = match size {
        0 => String::new(),
        _ => format!(
            r#","ownerReferences":[{{"apiVersion":"v1","kind":"Pod","uid":"u","name":"{}"}}]"#,
            "x".repeat(size)
        ),
    };
    format!(
        r#"{{"apiVersion":"farm.example.com/v1alpha","kind":"Llama","metadata":{{"name":"{name}"{owners}}},"spec":{{"weight":1,"height":1}}}}"#
    )
}
