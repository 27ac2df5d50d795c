//! One connection: who it is, and the bounds it lives within.

use std::io;
use std::net::IpAddr;
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
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::Service;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::occasionally::{Occasionally, shown};
use super::places::{Place, Places};
use super::tls::Trust;
use crate::request::{ClientCertificate, Peer, Presented, Standing};
use crate::user::User;

/// Connections at a time, besides those of the front proxy; each may cost 100 kB.
const CONNECTIONS: usize = 900;
/// Connections of the front proxy. kube-apiserver needs one, or one per request without HTTP/2.
const OF_FRONT_PROXY: usize = 400;
/// Handshakes that may find out whether it is the front proxy that comes, while nobody gives
/// way, and how long each of them may take.
const LATE_HANDSHAKES: usize = 500;
const LATE_HANDSHAKE: Duration = Duration::from_secs(3);
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
    places: Places,
    of_front_proxy: Arc<Semaphore>,
    late: Arc<Semaphore>,
    lines: Arc<Lines>,
}

/// What strangers can make the log say.
#[derive(Default)]
struct Lines {
    refused: Occasionally,
    not_allowed: Occasionally,
    unknown: Occasionally,
}

impl Acceptor {
    pub(super) fn new(tls: RustlsConfig, trust: Arc<ArcSwap<Trust>>) -> Self {
        let tls = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
        Self {
            tls: tls.acceptor(NoDelayAcceptor::new()),
            trust,
            places: Places::new(CONNECTIONS),
            of_front_proxy: Arc::new(Semaphore::new(OF_FRONT_PROXY)),
            late: Arc::new(Semaphore::new(LATE_HANDSHAKES)),
            lines: Arc::default(),
        }
    }

    /// A place among all, or time to find out whether it is the front proxy.
    fn entry(&self, address: IpAddr, standing: &Standing) -> Option<Entry> {
        if let Some(place) = self.places.take(address, standing) {
            return Some(Entry::Place(place));
        }
        self.lines.refused.log(|left_out| {
            tracing::warn!(left_out, "{CONNECTIONS} connections are open: more are refused");
        });
        Arc::clone(&self.late).try_acquire_owned().ok().map(|_handshake| Entry::Late { _handshake })
    }
}

/// What a connection has before it is known who comes.
enum Entry {
    Place(Place),
    Late { _handshake: OwnedSemaphorePermit },
}

/// What a connection holds as long as it is open.
enum Held {
    /// One among all.
    Place(Place),
    /// One of the front proxy's, which never gives way.
    OfFrontProxy { _permit: OwnedSemaphorePermit },
}

impl Entry {
    fn handshake_timeout(&self) -> Duration {
        match self {
            Self::Place(_) => HANDSHAKE,
            Self::Late { .. } => LATE_HANDSHAKE,
        }
    }

    /// Cancelled when the connection has to give way.
    fn evicted(&self) -> CancellationToken {
        match self {
            Self::Place(place) => place.evicted.clone(),
            Self::Late { .. } => CancellationToken::new(),
        }
    }

    /// What the connection holds from now on; `None` if there is no place for it.
    fn settle(self, identity: &Identity, of_front_proxy: Arc<Semaphore>) -> Option<Held> {
        let presented = identity.presented();
        if presented.client.is_some() {
            presented.standing.mark_authenticated();
        }
        let permit = presented.is_front_proxy.then(|| of_front_proxy.try_acquire_owned().ok());
        match (permit.flatten(), self) {
            (Some(_permit), _) => Some(Held::OfFrontProxy { _permit }),
            (None, Self::Place(place)) => Some(Held::Place(place)),
            (None, Self::Late { .. }) => None,
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
        let standing = Standing::default();
        let address = stream.peer_addr().map(|address| address.ip());
        let entry = address.and_then(|address| self.entry(address, &standing).ok_or_else(too_many));
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let (tls, trust) = (self.tls.accept(stream, service), Arc::clone(&self.trust));
        let of_front_proxy = Arc::clone(&self.of_front_proxy);
        let lines = Arc::clone(&self.lines);
        Box::pin(async move {
            let handshake = tokio::time::timeout(entry.handshake_timeout(), tls);
            let handshake = entry.evicted().run_until_cancelled_owned(handshake).await;
            let (stream, service) = handshake.ok_or_else(too_many)???;
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
            let judged = Mutex::default();
            let identity = Arc::new(Identity { chain, trust, judged, standing, lines });
            let held = entry.settle(&identity, of_front_proxy).ok_or_else(too_many)?;
            Ok((Bounded::new(stream, held), WithPeer { service, identity }))
        })
    }
}

/// The client certificate of a connection, judged when a request needs it.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    trust: Arc<ArcSwap<Trust>>,
    judged: Mutex<Option<Judgement>>,
    standing: Standing,
    lines: Arc<Lines>,
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

    fn presented(&self) -> Presented {
        let presented = Presented { standing: self.standing.clone(), ..Presented::default() };
        if self.chain.is_empty() {
            return presented;
        }
        let trust = self.trust.load();
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judgement) = &*judged
            && judgement.generation == trust.generation
            && judgement.at.elapsed() < JUDGEMENT
        {
            return judgement.presented.clone();
        }
        let presented = judge(&trust, &self.chain, presented, &self.lines);
        *judged = Some(Judgement {
            generation: trust.generation,
            at: Instant::now(),
            presented: presented.clone(),
        });
        presented
    }
}

fn judge(
    trust: &Trust,
    chain: &[CertificateDer<'static>],
    nothing_yet: Presented,
    lines: &Lines,
) -> Presented {
    let mut presented = Presented { any: true, ..nothing_yet };
    let Some(leaf) = chain.first() else { return presented };
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return presented };
    let subject = parsed.subject();
    let common_name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last();
    if trust.is_front_proxy(chain) {
        presented.is_front_proxy = trust.allows(common_name.unwrap_or_default());
        if !presented.is_front_proxy {
            lines.not_allowed.log(|left_out| {
                tracing::warn!(
                    left_out,
                    "x509: subject with cn={} is not in the allowed list: {:?}; is it the proxy client certificate of kube-apiserver?",
                    shown(common_name.unwrap_or_default()),
                    trust.allowed_names
                );
            });
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
        lines.unknown.log(|left_out| {
            tracing::warn!(
                left_out,
                "a client certificate is not trusted: cn={}, signed by {}; {}",
                shown(common_name.unwrap_or_default()),
                shown(parsed.issuer()),
                trust.describe()
            );
        });
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
/// bytes do not come in time, or when it has to give way.
pub(super) struct Bounded<S> {
    stream: S,
    received: usize,
    deadline: Pin<Box<Sleep>>,
    evicted: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _held: Held,
}

impl<S> Bounded<S> {
    fn new(stream: S, held: Held) -> Self {
        let evicted = match &held {
            Held::Place(place) => Some(Box::pin(place.evicted.clone().cancelled_owned())),
            Held::OfFrontProxy { .. } => None,
        };
        let deadline = Box::pin(sleep(FIRST_BYTES));
        Self { stream, received: 0, deadline, evicted, _held: held }
    }

    /// Whether the connection has to go; if not, its task is woken when it has to.
    fn gives_way(&mut self, context: &mut Context<'_>) -> bool {
        let evicted = self.evicted.as_mut();
        evicted.is_some_and(|evicted| evicted.as_mut().poll(context).is_ready())
    }
}

fn evicted() -> io::Error {
    let why = "others need the place of this connection";
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
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
        if polled.is_pending() && self.gives_way(context) {
            return Poll::Ready(Err(evicted()));
        }
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
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if polled.is_pending() && self.gives_way(context) {
            return Poll::Ready(Err(evicted()));
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if polled.is_pending() && self.gives_way(context) {
            return Poll::Ready(Err(evicted()));
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        if polled.is_pending() && self.gives_way(context) {
            return Poll::Ready(Err(evicted()));
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        if polled.is_pending() && self.gives_way(context) {
            return Poll::Ready(Err(evicted()));
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn bounded<S>(stream: S) -> Bounded<S> {
        let place = Places::new(1).take([127, 0, 0, 1].into(), &Standing::default());
        Bounded::new(stream, Held::Place(place.unwrap()))
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
    async fn a_connection_gives_way() {
        let (ours, theirs) = duplex(64);
        let mut stream = bounded(ours);
        let Held::Place(place) = &stream._held else { unreachable!() };
        place.evicted.cancel();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
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
