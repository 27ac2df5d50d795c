//! A client of one server, over TLS and HTTP/2, with the credentials of the front proxy.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use test_cluster::Certificate;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use crate::answer::Answer;
use crate::protobuf::{decode, decode_events};

/// The timeout of a response body. It is longer than any response takes. A watch without events for this time has no
/// more events.
const PATIENCE: Duration = Duration::from_secs(60);

/// The largest size of a response body, in bytes.
const BODY_LIMIT: usize = 64 << 20;

/// A request as it is sent.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    /// The body in protobuf, which is sent instead of the JSON body.
    pub protobuf: Option<Vec<u8>>,
    pub user: Option<String>,
    pub events: Option<usize>,
}

/// A server, and the connection to it.
pub struct Server {
    name: &'static str,
    /// Whether discovery is never requested in protobuf. A kube-apiserver supports protobuf for discovery, our server
    /// does not.
    avoids_protobuf: bool,
    address: SocketAddr,
    tls: TlsConnector,
    connection: Mutex<Option<http2::SendRequest<Body>>>,
}

impl Server {
    /// Creates a client of the server at an address of this machine, whose certificate is signed by `authority`. The
    /// certificate `front_proxy` permits requests as other users.
    pub fn new(
        name: &'static str,
        address: SocketAddr,
        authority: &Path,
        front_proxy: &Certificate,
    ) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority)?)?;
        let chain = vec![CertificateDer::from_pem_file(&front_proxy.certificate)?];
        let key = PrivateKeyDer::from_pem_file(&front_proxy.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { name, avoids_protobuf: false, address, tls, connection: Mutex::default() })
    }

    /// Returns the client with discovery requests limited to JSON.
    pub fn without_protobuf(mut self) -> Self {
        self.avoids_protobuf = true;
        self
    }

    /// The name of the server in reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    async fn connect(&self) -> Result<http2::SendRequest<Body>> {
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let connecting = async {
            let tcp = TcpStream::connect(self.address).await?;
            let stream = self.tls.connect(ServerName::try_from("localhost")?, tcp).await?;
            let builder = http2::Builder::new(TokioExecutor::new());
            anyhow::Ok(builder.handshake(TokioIo::new(stream)).await?)
        };
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        let (sender, driver) =
            connected.with_context(|| format!("{} lets nobody connect", self.name))??;
        tokio::spawn(driver);
        Ok(connection.insert(sender).clone())
    }

    /// Sends a request and waits for the response headers.
    pub async fn send(&self, sent: &Sent) -> Result<Open> {
        let is_document = is_document(&sent.path);
        let mut request = http::Request::builder()
            .method(sent.method.as_str())
            .uri(format!("https://localhost{}", sent.path));
        request = match &sent.user {
            None => request
                .header("x-remote-user", "admin")
                .header("x-remote-group", "system:masters")
                .header("x-remote-group", "system:authenticated"),
            Some(user) => request
                .header("x-remote-user", user)
                .header("x-remote-group", "system:authenticated"),
        };
        for (name, value) in &sent.headers {
            if self.avoids_protobuf && is_document && name.eq_ignore_ascii_case("accept") {
                request = request.header(name, without_protobuf(value));
            } else {
                request = request.header(name, value);
            }
        }
        let body = match &sent.protobuf {
            Some(protobuf) => Body::from(protobuf.clone()),
            None => sent.body.clone().map_or_else(Body::empty, Body::from),
        };
        let request = request.body(body).context("no request can be made of this")?;
        let mut sender = self.connect().await?;
        let response = tokio::time::timeout(PATIENCE, sender.send_request(request))
            .await
            .with_context(|| format!("{} does not answer", self.name))?
            .with_context(|| format!("{} ended the request", self.name))?;
        let (head, body) = response.into_parts();
        let header = |name: &str| {
            let values = head.headers.get_all(name).into_iter();
            let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            texts.collect::<Vec<String>>()
        };
        let content_type = header("content-type").join(", ");
        let encoding = header("content-encoding").first().cloned();
        let is_watch = head.status.is_success() && is_watch(sent);
        let answer = Answer {
            status: head.status.as_u16(),
            content_type,
            warnings: header("warning"),
            retry_after: header("retry-after").first().cloned(),
            encoding: encoding.clone(),
            headers: HEADERS
                .iter()
                // The aggregator adds its own values of a header to those of our server, so that values may be
                // repeated.
                .map(|name| ((*name).to_owned(), BTreeSet::from_iter(header(name))))
                .map(|(name, mut values)| {
                    // kube-aggregator decompresses gzip responses and leaves `Accept-Encoding` in the header `Vary`.
                    if encoding.is_none() {
                        values.remove("Accept-Encoding");
                    }
                    (name, Vec::from_iter(values).join(", "))
                })
                .chain(
                    PRESENT
                        .iter()
                        .filter(|name| !header(name).is_empty())
                        .map(|name| ((*name).to_owned(), "<there>".to_owned())),
                )
                .filter(|(_, value)| !value.is_empty())
                .collect(),
            layout: String::new(),
            body: Value::Null,
        };
        Ok(Open { answer, body, is_watch, events: sent.events })
    }

    /// Sends a request and reads the whole response.
    pub async fn ask(&self, sent: &Sent) -> Result<Answer> {
        self.send(sent).await?.read().await
    }

    /// Sends a request that must succeed.
    pub async fn demand(&self, method: &str, path: &str, body: Option<String>) -> Result<Value> {
        let answer = self.request(method, path, body).await?;
        ensure!(
            (200..300).contains(&answer.status),
            "{}: {method} {path}: {} {}",
            self.name,
            answer.status,
            answer.body
        );
        Ok(answer.body)
    }

    /// Sends a request that must succeed or fail with 404.
    pub async fn demand_or_gone(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<()> {
        let Answer { status, body, .. } = self.request(method, path, body).await?;
        let is_good = (200..300).contains(&status) || status == 404;
        ensure!(is_good, "{}: {method} {path}: {status} {body}", self.name);
        Ok(())
    }

    async fn request(&self, method: &str, path: &str, body: Option<String>) -> Result<Answer> {
        let merge = ("content-type".to_owned(), "application/merge-patch+json".to_owned());
        let headers = if method == "PATCH" { vec![merge] } else { Vec::new() };
        let (method, path) = (method.to_owned(), path.to_owned());
        self.ask(&Sent { method, path, headers, body, ..Sent::default() }).await
    }
}

/// Removes the protobuf clauses from an `Accept` header.
fn without_protobuf(accept: &str) -> String {
    let clauses = accept.split(',').filter(|clause| !clause.contains("protobuf"));
    clauses.collect::<Vec<_>>().join(",")
}

/// Whether a path is a discovery document or another document outside of collections.
fn is_document(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let steps: Vec<&str> = path.trim_matches('/').split('/').collect();
    match steps.as_slice() {
        ["api", rest @ ..] => rest.len() < 2,
        ["apis", rest @ ..] => rest.len() < 3,
        _ => true,
    }
}

fn is_watch(sent: &Sent) -> bool {
    let (path, query) = sent.path.split_once('?').unwrap_or((&sent.path, ""));
    let asks = |pair: &str| {
        pair.starts_with("watch") && !pair.ends_with("=0") && !pair.ends_with("=false")
    };
    ["GET", "HEAD"].contains(&sent.method.as_str())
        && (query.split('&').any(asks) || path.contains("/watch/"))
}

/// Headers whose values must be equal.
const HEADERS: [&str; 4] = ["allow", "cache-control", "vary", "x-content-type-options"];

/// Headers whose values always differ: only their presence is compared.
const PRESENT: [&str; 2] = ["etag", "expires"];

/// A response whose body has not been read yet.
pub struct Open {
    answer: Answer,
    body: Incoming,
    is_watch: bool,
    events: Option<usize>,
}

impl Open {
    fn is_protobuf(&self) -> bool {
        self.answer.content_type.starts_with("application/vnd.kubernetes.protobuf")
    }

    /// Reads the body. A watch is read until the requested number of events, or to its end.
    pub async fn read(mut self) -> Result<Answer> {
        let mut bytes: Vec<u8> = Vec::new();
        let (mut count, mut counted) = (0, 0);
        while !(self.is_watch && self.events.is_some_and(|events| count >= events)) {
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let frame = frame.with_context(|| {
                let wanted = self.events.unwrap_or_default();
                format!("only {count} of {wanted} events came, and the watch goes on: say fewer @events, or timeoutSeconds")
            })?;
            let Some(frame) = frame else { break };
            let data = frame.context("the answer breaks off")?.into_data().unwrap_or_default();
            bytes.extend_from_slice(&data);
            if self.is_protobuf() {
                let (events, _) = decode_events(&bytes)?;
                let is_counted =
                    |(at, event): &(usize, &Value)| is_counted(&event.to_string(), *at == 0);
                count = events.iter().enumerate().filter(is_counted).count();
                continue;
            }
            while let Some(length) = bytes[counted..].iter().position(|&byte| byte == b'\n') {
                let line = &bytes[counted..counted + length];
                count += usize::from(is_counted(&String::from_utf8_lossy(line), counted == 0));
                counted += length + 1;
            }
            ensure!(bytes.len() <= BODY_LIMIT, "an answer of more than {BODY_LIMIT} bytes");
        }
        self.answer.body = if self.is_protobuf() && self.is_watch {
            let (events, rest) = decode_events(&bytes)?;
            ensure!(rest.is_empty(), "a part of an event");
            let counted = events.into_iter().enumerate();
            let counted = counted.filter(|(at, event)| is_counted(&event.to_string(), *at == 0));
            let mut events: Vec<Value> = counted.map(|(_, event)| event).collect();
            if let Some(limit) = self.events {
                events.truncate(limit);
            }
            events.into()
        } else if self.is_watch {
            let text = String::from_utf8_lossy(&bytes);
            let lines = text.lines().enumerate();
            let lines = lines.filter(|(index, line)| is_counted(line, *index == 0));
            let mut events: Vec<Value> = lines.map(|(_, line)| document(line)).collect();
            if let Some(limit) = self.events {
                events.truncate(limit);
            }
            events.into()
        } else {
            if self.answer.encoding.as_deref() == Some("gzip") {
                let mut inflated = Vec::new();
                flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut inflated)?;
                bytes = inflated;
            }
            if self.is_protobuf() {
                self.answer.body = decode(&bytes)?;
                return Ok(self.answer);
            }
            let text = String::from_utf8_lossy(&bytes);
            if self.answer.content_type.starts_with("application/yaml") {
                serde_saphyr::from_str(&text)?
            } else {
                self.answer.layout = layout(&text);
                document(&text)
            }
        };
        Ok(self.answer)
    }
}

/// Whether a line of a watch counts as an event. Bookmarks do not count, except for the first event and the end of the
/// initial events, because servers choose their own interval for bookmarks.
fn is_counted(line: &str, is_first: bool) -> bool {
    is_first || !line.contains("\"type\":\"BOOKMARK\"") || line.contains("initial-events-end")
}

/// Returns the layout of a JSON document: indentation and final newline.
fn layout(text: &str) -> String {
    let mut words = Vec::new();
    if text.starts_with("{\n  \"") {
        words.push("indented");
    }
    if text.ends_with('\n') {
        words.push("with an end of line");
    }
    words.join(", ")
}

/// Parses a body as JSON; another body becomes a string.
fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}
