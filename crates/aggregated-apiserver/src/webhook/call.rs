//! One call of a webhook or another program: HTTPS, with a new connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::call_time::CallTime;
use super::lookup::{self, LookupError};
use super::webhook_verifier::WebhookVerifier;
use super::{Busy, CallError, Webhook, certificates};

/// The largest size of a response, in bytes: twice the largest object, and the fields around it.
const ANSWER_LIMIT: usize = 4 << 20;
/// A response of at most this size is read without a turn. Most responses are smaller.
const SMALL: usize = 64 << 10;
/// The largest part of an unexpected response in a message, in characters.
const SHOWN: usize = 512;

/// Closes a connection when dropped.
struct Ended(tokio::task::JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The response of a webhook, with the part of the body that was read.
pub(super) struct Response {
    asked: String,
    status: StatusCode,
    body: Limited<Incoming>,
    read: Vec<u8>,
    _connection: Ended,
}

impl Response {
    /// Reads up to [`SMALL`] bytes of the body. The result is false if the body is larger.
    ///
    /// # Errors
    /// The reason, if the body cannot be read.
    pub(super) async fn read_small(&mut self) -> Result<bool, CallError> {
        self.read_up_to(SMALL).await
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// The reason, if the body cannot be read or is too large.
    pub(super) async fn read_rest(&mut self) -> Result<(), CallError> {
        self.read_up_to(usize::MAX).await.map(drop)
    }

    /// Reads frames until `limit` bytes were read. The result is true at the end of the body.
    async fn read_up_to(&mut self, limit: usize) -> Result<bool, CallError> {
        while self.read.len() < limit {
            let Some(frame) = self.body.frame().await else { return Ok(true) };
            let frame = frame.map_err(|why| match why.downcast_ref::<LengthLimitError>() {
                Some(_) => self.failed(format!("the answer is larger than {ANSWER_LIMIT} bytes")),
                None => self.failed("unexpected EOF".to_owned()),
            })?;
            if let Some(data) = frame.data_ref() {
                self.read.extend_from_slice(data);
            }
        }
        Ok(false)
    }

    /// Returns the body, after all of it was read.
    ///
    /// # Errors
    /// The reason, if the status is an error.
    pub(super) fn finish(self) -> Result<Vec<u8>, CallError> {
        match self.status.is_success() {
            true => Ok(self.read),
            false => Err(CallError::Failed(refused(self.status, &self.read))),
        }
    }

    fn failed(&self, why: String) -> CallError {
        CallError::Failed(format!("{}: {why}", self.asked))
    }
}

/// A prepared call, with a valid URL and valid certificates.
pub(super) struct Call {
    /// The method and the URL, as Go's client writes them in errors.
    asked: String,
    uri: Uri,
    port: u16,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Call {
    /// Prepares a call with a body.
    ///
    /// # Errors
    /// The reason, if the URL or the certificates of the webhook are invalid.
    pub(super) fn post(webhook: Webhook<'_>, time: Duration) -> Result<Self, CallError> {
        Self::new(webhook, "Post", &webhook.asked_url(time))
    }

    /// Prepares a call without a body, of exactly the URL.
    ///
    /// # Errors
    /// Same as [`post`](Self::post).
    pub(super) fn get(webhook: Webhook<'_>) -> Result<Self, CallError> {
        Self::new(webhook, "Get", webhook.url)
    }

    fn new(webhook: Webhook<'_>, method: &str, url: &str) -> Result<Self, CallError> {
        let asked = format!("{method} \"{url}\"");
        let failed = |why: String| CallError::Failed(format!("{asked}: {why}"));
        let uri: Uri = url.parse().map_err(|why| failed(format!("{why}")))?;
        let port = uri.port_u16().unwrap_or(super::PORT);
        let config = Arc::new(config(webhook).map_err(&failed)?);
        let bare = bare(uri.host().unwrap_or_default()).to_owned();
        let name = ServerName::try_from(bare).map_err(|why| failed(why.to_string()))?;
        Ok(Self { asked, uri, port, config, name })
    }

    /// The host in the format of URLs.
    fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    fn failed(&self, why: &str) -> CallError {
        CallError::Failed(format!("{}: {why}", self.asked))
    }

    /// The error for a webhook that has not responded in time. If the call spent too much of its time in queues of this
    /// server, the webhook has not failed.
    pub(super) fn late(&self, time: &CallTime) -> CallError {
        match time.excess_queued() {
            Some(queued) => {
                let (queued, total) = (queued.as_millis(), time.total().as_millis());
                let host = self.host();
                let why =
                    format!("the call of {host} waited {queued} of its {total} ms in a queue");
                Busy(why).into()
            }
            None => self.failed("context deadline exceeded"),
        }
    }

    /// Looks up the addresses of the webhook.
    ///
    /// # Errors
    /// The reason, if the host has no address, or no lookup ends within the time of the call.
    pub(super) async fn addresses(&self, time: &CallTime) -> Result<Vec<SocketAddr>, CallError> {
        let host = self.host();
        lookup::addresses(bare(host), self.port, time).await.map_err(|why| match why {
            LookupError::Busy(busy) => busy.into(),
            LookupError::Late => self.late(time),
            LookupError::Failed(why) if is_own(&why) => {
                Busy(format!("{host} cannot be looked up: {why}")).into()
            }
            LookupError::Failed(_) => {
                self.failed(&format!("dial tcp: lookup {host}: no such host"))
            }
        })
    }

    /// Sends a request, with POST if there is a body, and waits for the head of the response.
    ///
    /// # Errors
    /// The reason, if the request fails.
    pub(super) async fn send(
        &self,
        addresses: &[SocketAddr],
        body: Option<String>,
    ) -> Result<Response, CallError> {
        let (host, port) = (self.host(), self.port);
        let stream = TcpStream::connect(addresses).await.map_err(|why| match is_own(&why) {
            true => Busy(format!("no connection can be opened: {why}")).into(),
            false => self.failed(&dial_error(host, port, &why)),
        })?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await;
        let stream = stream.map_err(|why| self.failed(&tls_error(&why)))?;
        let handshake = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|why| self.failed(&why.to_string()))?;
        let connection = Ended(tokio::spawn(async move { drop(connection.await) }));
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or(host, |authority| authority.as_str());
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method).uri(path).header(HOST, authority);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, "aggregated-apiserver")
            .body(Full::from(Bytes::from(body.unwrap_or_default())))
            .map_err(|why| self.failed(&why.to_string()))?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|why| self.failed(&response_error(&why)))?;
        Ok(Response {
            status: response.status(),
            body: Limited::new(response.into_body(), ANSWER_LIMIT),
            read: Vec::new(),
            asked: self.asked.clone(),
            _connection: connection,
        })
    }
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a connection failed because this process or this machine has run out of files or memory.
fn is_own(why: &io::Error) -> bool {
    // Without a free local port, no connection can be opened either.
    let own = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    why.raw_os_error().is_some_and(|code| own.iter().any(|one| one.raw_os_error() == code))
}

fn config(webhook: Webhook<'_>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    let Some(bundle) = webhook.ca_bundle else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(config.with_root_certificates(roots).with_no_client_auth());
    };
    let bundle: Vec<_> = certificates(bundle)?.into_iter().map(CertificateDer::from).collect();
    let (added, _) = roots.add_parsable_certificates(bundle.iter().cloned());
    if added == 0 {
        return Err("unable to load root certificates: there is none in the bundle".to_owned());
    }
    let vouched = WebhookVerifier::new(roots, bundle, provider)?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(vouched));
    Ok(config.with_no_client_auth())
}

fn dial_error(host: &str, port: u16, why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::ConnectionRefused => {
            // A name may have several addresses; that of this machine is nearly always this one.
            let host = if host == "localhost" { "127.0.0.1" } else { host };
            format!("dial tcp {host}:{port}: connect: connection refused")
        }
        _ => format!("dial tcp {host}:{port}: {why}"),
    }
}

fn tls_error(why: &io::Error) -> String {
    use rustls::CertificateError::{BadSignature, UnknownIssuer};
    let strangers = [UnknownIssuer, BadSignature].map(rustls::Error::InvalidCertificate);
    let source = why.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    match (source, why.kind()) {
        (Some(source), _) if strangers.contains(source) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
                .to_owned()
        }
        (_, io::ErrorKind::UnexpectedEof) => "EOF".to_owned(),
        _ => format!("tls: {why}"),
    }
}

fn response_error(why: &hyper::Error) -> String {
    if why.is_incomplete_message() { "EOF".to_owned() } else { why.to_string() }
}

/// The message of a Go client about an error response.
fn refused(status: StatusCode, answer: &[u8]) -> String {
    let answer = String::from_utf8_lossy(answer);
    let answer: String = answer.trim().chars().take(SHOWN).collect();
    let told = match status {
        StatusCode::BAD_REQUEST => "the server rejected our request for an unknown reason",
        StatusCode::UNAUTHORIZED => "the server has asked for the client to provide credentials",
        StatusCode::FORBIDDEN | StatusCode::UNSUPPORTED_MEDIA_TYPE => &answer,
        StatusCode::NOT_FOUND => "the server could not find the requested resource",
        StatusCode::METHOD_NOT_ALLOWED => {
            "the server does not allow this method on the requested resource"
        }
        StatusCode::NOT_ACCEPTABLE if answer.is_empty() => {
            "the server was unable to respond with a content type that the client supports"
        }
        StatusCode::NOT_ACCEPTABLE => &answer,
        StatusCode::CONFLICT => "the server reported a conflict",
        StatusCode::UNPROCESSABLE_ENTITY => {
            "the server rejected our request due to an error in our request"
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "the server has received too many requests and has asked us to try again later"
        }
        StatusCode::SERVICE_UNAVAILABLE => "the server is currently unable to handle the request",
        StatusCode::GATEWAY_TIMEOUT => {
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request"
        }
        _ => "",
    };
    match status {
        _ if !told.is_empty() => told.to_owned(),
        status if status.is_server_error() => {
            format!("an error on the server ({answer:?}) has prevented the request from succeeding")
        }
        status => format!(
            "the server responded with the status code {} but did not return more information",
            status.as_u16()
        ),
    }
}
