//! One connection: who it is, and the bounds it lives within.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum_server::accept::{Accept, NoDelayAcceptor};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use http::Request;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tower::Service;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::tls::Trust;
use crate::request::{ClientCertificate, Peer, Presented};
use crate::user::User;

/// Connections at a time; each may cost 100 kB. kube-apiserver needs one, or
/// one per request without HTTP/2.
const CONNECTIONS: usize = 900;
/// Connections beyond, for nobody but the front proxy: whoever fills the
/// others must not shut kube-apiserver out.
const RESERVED: usize = 100;
/// Handshakes that may find out who deserves such a place, and how long each
/// of them may take.
const LATE_HANDSHAKES: usize = 500;
const LATE_HANDSHAKE: Duration = Duration::from_secs(3);
/// The log says at most this often that connections are refused.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// How long a handshake may take; as Go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the first bytes after it may take; as kube-apiserver's header timeout.
const FIRST_BYTES: Duration = Duration::from_secs(32);
/// The length of the preface of HTTP/2, which tells the version of HTTP.
const PREFACE: usize = 24;
/// How long a judgement about a certificate holds while nothing changes: it
/// may expire on a connection that lives for days.
const JUDGEMENT: Duration = Duration::from_secs(60);

/// Accepts connections: bounded, with TLS, and knowing who is there.
#[derive(Clone)]
pub(super) struct Acceptor {
    tls: RustlsAcceptor<NoDelayAcceptor>,
    trust: Arc<ArcSwap<Trust>>,
    places: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    late: Arc<Semaphore>,
    reported: Arc<Mutex<Option<Instant>>>,
}

impl Acceptor {
    pub(super) fn new(tls: RustlsConfig, trust: Arc<ArcSwap<Trust>>) -> Self {
        let tls = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
        Self {
            tls: tls.acceptor(NoDelayAcceptor::new()),
            trust,
            places: Arc::new(Semaphore::new(CONNECTIONS)),
            reserved: Arc::new(Semaphore::new(RESERVED)),
            late: Arc::new(Semaphore::new(LATE_HANDSHAKES)),
            reported: Arc::default(),
        }
    }

    /// A place for anybody, or one to find out whether it is the front proxy.
    fn place(&self) -> Option<Place> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(Place::Any(place));
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            tracing::warn!("{CONNECTIONS} connections are open: more are refused");
            *reported = Some(Instant::now());
        }
        let handshake = Arc::clone(&self.late).try_acquire_owned().ok()?;
        let reserved = Arc::clone(&self.reserved);
        Some(Place::Late { _handshake: handshake, reserved })
    }
}

/// A place among the connections.
enum Place {
    Any(OwnedSemaphorePermit),
    /// For the handshake only; who is the front proxy gets a reserved one.
    Late {
        _handshake: OwnedSemaphorePermit,
        reserved: Arc<Semaphore>,
    },
}

impl Place {
    fn handshake(&self) -> Duration {
        match self {
            Self::Any(_) => HANDSHAKE,
            Self::Late { .. } => LATE_HANDSHAKE,
        }
    }

    fn settle(self, identity: &Identity) -> Option<OwnedSemaphorePermit> {
        match self {
            Self::Any(place) => Some(place),
            Self::Late { reserved, .. } if identity.is_front_proxy() => {
                reserved.try_acquire_owned().ok()
            }
            Self::Late { .. } => None,
        }
    }
}

type Accepted<S> = (Bounded<TlsStream<TcpStream>>, WithPeer<S>);

impl<S: Send + 'static> Accept<TcpStream, S> for Acceptor {
    type Stream = Bounded<TlsStream<TcpStream>>;
    type Service = WithPeer<S>;
    type Future = Pin<Box<dyn Future<Output = io::Result<Accepted<S>>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let too_many = || io::Error::other("too many connections");
        let Some(place) = self.place() else {
            return Box::pin(async move { Err(too_many()) });
        };
        let (tls, trust) = (self.tls.accept(stream, service), Arc::clone(&self.trust));
        Box::pin(async move {
            let (stream, service) = tokio::time::timeout(place.handshake(), tls).await??;
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
            let identity = Arc::new(Identity { chain, trust, judged: Mutex::default() });
            let place = place.settle(&identity).ok_or_else(too_many)?;
            Ok((Bounded::new(stream, place), WithPeer { service, identity }))
        })
    }
}

/// The client certificate of a connection, judged when a request needs it.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    trust: Arc<ArcSwap<Trust>>,
    judged: Mutex<Option<Judgement>>,
}

struct Judgement {
    generation: u64,
    at: Instant,
    presented: Presented,
}

impl Identity {
    fn peer(&self) -> Peer {
        Peer::Connection(self.presented())
    }

    fn is_front_proxy(&self) -> bool {
        self.presented().is_front_proxy
    }

    fn presented(&self) -> Presented {
        if self.chain.is_empty() {
            return Presented::default();
        }
        let trust = self.trust.load();
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judgement) = &*judged
            && judgement.generation == trust.generation
            && judgement.at.elapsed() < JUDGEMENT
        {
            return judgement.presented.clone();
        }
        let presented = judge(&trust, &self.chain);
        *judged = Some(Judgement {
            generation: trust.generation,
            at: Instant::now(),
            presented: presented.clone(),
        });
        presented
    }
}

fn judge(trust: &Trust, chain: &[CertificateDer<'static>]) -> Presented {
    let mut presented = Presented { any: true, ..Presented::default() };
    let Some(leaf) = chain.first() else { return presented };
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return presented };
    let subject = parsed.subject();
    let common_name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last();
    if trust.is_front_proxy(chain) {
        presented.is_front_proxy = trust.allows(common_name.unwrap_or_default());
        if !presented.is_front_proxy {
            tracing::warn!(
                "x509: subject with cn={} is not in the allowed list: {:?}; is it the proxy client certificate of kube-apiserver?",
                common_name.unwrap_or_default(),
                trust.allowed_names
            );
        }
    }
    if let Some(name) = common_name.filter(|name| !name.is_empty())
        && trust.is_client(chain)
    {
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let mut user = User {
            name: name.to_owned(),
            groups: groups.map(str::to_owned).collect(),
            ..User::default()
        };
        let digest = Sha256::digest(leaf);
        let hexadecimal: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        user.extra.insert(
            "authentication.kubernetes.io/credential-id".to_owned(),
            vec![format!("X509SHA256={hexadecimal}")],
        );
        presented.client = Some(ClientCertificate { user });
    }
    if !presented.is_front_proxy && presented.client.is_none() {
        tracing::warn!(
            "a client certificate is not believed: cn={}, signed by {}; {}",
            common_name.unwrap_or_default(),
            parsed.issuer(),
            trust.describe()
        );
    }
    presented
}

/// Tells each request of a connection where it comes from.
#[derive(Clone)]
pub(super) struct WithPeer<S> {
    service: S,
    identity: Arc<Identity>,
}

impl<S, B> Service<Request<B>> for WithPeer<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.identity.peer());
        self.service.call(request)
    }
}

/// A stream that holds a place among the connections, and fails if its first
/// bytes do not come in time.
pub(super) struct Bounded<S> {
    stream: S,
    received: usize,
    deadline: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl<S> Bounded<S> {
    fn new(stream: S, place: OwnedSemaphorePermit) -> Self {
        Self { stream, received: 0, deadline: Box::pin(sleep(FIRST_BYTES)), _place: place }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.received = self.received.saturating_add(buffer.filled().len() - before);
        let is_waiting = polled.is_pending() && self.received < PREFACE;
        if is_waiting && self.deadline.as_mut().poll(context).is_ready() {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the client says nothing");
            return Poll::Ready(Err(late));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn bounded<S>(stream: S) -> Bounded<S> {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Bounded::new(stream, place)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_cut() {
        let (ours, theirs) = duplex(64);
        let mut stream = bounded(ours);
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_spoken_may_be_silent() {
        let (ours, mut theirs) = duplex(64);
        let mut stream = bounded(ours);
        theirs.write_all(&[0; PREFACE]).await.unwrap();
        stream.read_exact(&mut [0; PREFACE]).await.unwrap();
        let silence = tokio::time::timeout(FIRST_BYTES * 10, stream.read_u8()).await;
        assert!(silence.is_err(), "only the test gives up");
    }
}
