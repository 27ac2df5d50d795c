//! A kubelet that serves the logs of containers, commands and forwarded ports, and nothing else.

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path as PathOf, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures::{StreamExt, stream};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kubernetes_streams::Limits;
use kubernetes_streams::port_forward;
use kubernetes_streams::remote_command::{self, Options, Outcome, Session};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use test_cluster::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The kubelet of a node, until it is dropped.
pub struct Kubelet {
    pub port: u16,
    _runtime: tokio::runtime::Runtime,
}

impl Kubelet {
    /// Starts a kubelet, with its certificate in this folder.
    pub fn start(folder: &Path) -> Result<Self> {
        let authority = Authority::new("kubelets", &folder.join("kubelets.crt"))?;
        let files = authority.server(folder, "kubelet", &["localhost"])?;
        let chain = vec![CertificateDer::from_pem_file(&files.certificate)?];
        let key = PrivateKeyDer::from_pem_file(&files.key)?;
        let provider = rustls::crypto::ring::default_provider().into();
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_no_client_auth().with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let files = folder.join("files-of-pods");
        std::fs::create_dir_all(&files)?;
        let router = Router::new()
            .route("/containerLogs/{namespace}/{pod}/{container}", get(logs))
            .route("/exec/{namespace}/{pod}/{container}", any(exec))
            .route("/attach/{namespace}/{pod}/{container}", any(exec))
            .route("/portForward/{namespace}/{pod}", any(forward))
            .with_state(Arc::new(files));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.ok()?;
                    let service = TowerToHyperService::new(router);
                    let http = Builder::new(TokioExecutor::new());
                    let served = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
                    served.await.ok()
                });
            }
        });
        Ok(Self { port, _runtime: runtime })
    }
}

/// Three lines; a log that is followed stays open. The container `late` has not started.
async fn logs(PathOf((_, _, container)): PathOf<(String, String, String)>, uri: Uri) -> Response {
    if container == "late" {
        return (StatusCode::BAD_REQUEST, "container \"late\" is waiting to start\n")
            .into_response();
    }
    let options: Vec<_> = uri.query().unwrap_or_default().split('&').collect();
    let tail = options.iter().find_map(|option| option.strip_prefix("tailLines=")?.parse().ok());
    let tail = tail.unwrap_or(3);
    let lines: Vec<_> = (1..=3).map(|number| format!("{container} line {number}\n")).collect();
    let lines = lines[lines.len().saturating_sub(tail)..].to_vec();
    let follows = options.contains(&"follow=true");
    let rest = stream::pending().take(usize::from(follows));
    let lines = stream::iter(lines).map(Ok::<_, std::io::Error>);
    Body::from_stream(lines.chain(rest)).into_response()
}

/// Returns the input, or the command if there is no input. The command `false` ends with the exit code 3. The commands of
/// `kubectl cp` run in this directory.
async fn exec(State(directory): State<Arc<PathBuf>>, mut request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let Ok(options) = Options::from_query(&query) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Ok(upgrade) = remote_command::negotiate(request.headers()) else {
        return StatusCode::FORBIDDEN.into_response();
    };
    let connection = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let io = TokioIo::new(connection.await.ok()?);
        let run = async |mut session: Session| {
            if query.contains("command=false") {
                return Outcome::ExitCode(3);
            }
            if let Some((program, arguments)) = command_of_copies(&query) {
                return run_program(&directory, &program, &arguments, session).await;
            }
            let done = match options.stdin {
                true => tokio::io::copy(&mut session.stdin, &mut session.stdout).await.map(drop),
                false => session.stdout.write_all(query.as_bytes()).await,
            };
            done.map_or_else(|error| Outcome::Failed(error.to_string()), |()| Outcome::Success)
        };
        let (limits, end) = (Limits::default(), std::future::pending());
        remote_command::serve(io, upgrade.protocol, options, &limits, end, run).await.ok()
    });
    upgrade.response.map(|()| Body::empty())
}

/// The command and the arguments, if the command is one that `kubectl cp` executes.
fn command_of_copies(query: &str) -> Option<(String, Vec<String>)> {
    // The words of these commands have no encoded characters.
    let words = query.split('&').filter_map(|parameter| parameter.strip_prefix("command="));
    let mut command = words.map(str::to_owned);
    let program = command.next()?;
    ["tar", "test"].contains(&program.as_str()).then(|| (program, command.collect()))
}

/// Runs a program in this directory, with the input and the outputs of the client.
async fn run_program(
    directory: &Path,
    program: &str,
    arguments: &[String],
    mut session: Session,
) -> Outcome {
    let mut input = Vec::new();
    if let Err(error) = session.stdin.read_to_end(&mut input).await {
        return Outcome::Failed(error.to_string());
    }
    let mut command = std::process::Command::new(program);
    command.args(arguments).current_dir(directory);
    let ran = tokio::task::spawn_blocking(move || -> std::io::Result<_> {
        let mut file = tempfile::tempfile()?;
        file.write_all(&input)?;
        file.rewind()?;
        command.stdin(file).output()
    });
    let Ok(Ok(ran)) = ran.await else {
        return Outcome::Failed("the program cannot run".to_owned());
    };
    let _ = session.stdout.write_all(&ran.stdout).await;
    let _ = session.stderr.write_all(&ran.stderr).await;
    match ran.status.code() {
        Some(0) => Outcome::Success,
        code => Outcome::ExitCode(code.unwrap_or(1)),
    }
}

/// Every port returns what it gets.
async fn forward(mut request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let Ok(upgrade) = port_forward::negotiate(request.headers(), &query) else {
        return StatusCode::FORBIDDEN.into_response();
    };
    let connection = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let io = TokioIo::new(connection.await.ok()?);
        let open = async |_port| {
            let (near, far) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let (mut input, mut output) = tokio::io::split(far);
                tokio::io::copy(&mut input, &mut output).await
            });
            Ok(near)
        };
        let (limits, end) = (Limits::default(), std::future::pending());
        port_forward::serve(io, &upgrade.protocol, &limits, end, open).await.ok()
    });
    upgrade.response.map(|()| Body::empty())
}

/// A node with this kubelet.
pub fn node(name: &str, port: u16) -> Result<[serde_json::Value; 2]> {
    let node = serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    });
    let status = serde_json::json!({"status": node.get("status").context("a status")?});
    Ok([node, status])
}
