//! Clients: connections with the certificate of the front proxy, HTTP/2 over TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection; clones share it.
#[derive(Clone)]
pub struct Client(SendRequest<Full<Bytes>>);

impl Client {
    pub async fn connect(folder: &Path, address: SocketAddr) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("ca.crt"))?)?;
        let chain = vec![CertificateDer::from_pem_file(folder.join("front-proxy.crt"))?];
        let key = PrivateKeyDer::from_pem_file(folder.join("front-proxy.key"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(4 << 20).initial_connection_window_size(64 << 20);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Sends a request that must succeed. Returns its body, which is not read yet.
    pub async fn open(&self, method: &str, path: &str, body: String) -> Result<Incoming> {
        let media =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.send(method, path, (media, body)).await
    }

    /// Sends a server-side apply that must succeed. Returns the length of the response body, in bytes.
    pub async fn apply(&self, path: &str, object: String) -> Result<usize> {
        length(self.send("PATCH", path, ("application/apply-patch+yaml", object)).await?).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        (media, body): (&str, String),
    ) -> Result<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        if !body.is_empty() {
            request = request.header("content-type", media);
        }
        let request = request
            .header("x-remote-user", "admin")
            .header("x-remote-group", "system:masters")
            .body(Full::from(body))?;
        let mut sender = self.0.clone();
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        ensure!(status.is_success(), "{method} {path}: {status}");
        Ok(response.into_body())
    }

    /// Reads an object and replaces it with an annotation added.
    pub async fn put_back(&self, path: &str, annotation: &str) -> Result<usize> {
        let object = self.open("GET", path, String::new()).await?.collect().await?.to_bytes();
        let mut object: Value = serde_json::from_slice(&object)?;
        object["metadata"]["annotations"] = json!({"load": annotation});
        self.ask("PUT", path, object.to_string()).await
    }

    /// Sends a request that must succeed. Returns the length of the response body, in bytes.
    pub async fn ask(&self, method: &str, path: &str, body: String) -> Result<usize> {
        length(self.open(method, path, body).await?).await
    }
}

/// Reads a body and returns its length, in bytes.
async fn length(mut body: Incoming) -> Result<usize> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.context("the answer breaks off")?.data_ref().map_or(0, Bytes::len);
    }
    Ok(length)
}
