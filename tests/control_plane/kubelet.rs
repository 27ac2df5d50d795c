//! A kubelet that serves the logs of containers, and nothing else.

use std::path::Path;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::Path as PathOf;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::{StreamExt, stream};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use test_cluster::Authority;
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
        let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let router = Router::new().route("/containerLogs/{namespace}/{pod}/{container}", get(logs));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.ok()?;
                    let service = TowerToHyperService::new(router);
                    let http = Builder::new(TokioExecutor::new());
                    http.serve_connection(TokioIo::new(stream), service).await.ok()
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
