//! One connection: its place, its handshake, and HTTP on it until it ends.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum_server::accept::{Accept, NoDelayAcceptor};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::bounded_stream::BoundedStream;
use super::frame_budget::FrameBudget;
use super::heads::{Full, Heads};
use super::peer_identity::{CertificateLines, PeerIdentity};
use super::places::{Place, Places, Whose, network};
use super::streams::{self, Streams};
use super::tls::Trust;
use crate::clock::Clock;
use crate::error::ApiError;
use crate::occasionally::Occasionally;
use crate::quota::Portion;
use crate::request::{Peer, Standing, StreamReset, refuse, without_body};

/// Connections at a time, besides those of the front proxy; each may cost 100 kB.
const CONNECTIONS: usize = 900;
const LEAST_CONNECTIONS: usize = CONNECTIONS / 6;
/// Connections of the front proxy. kube-apiserver needs one, or one per request without HTTP/2.
const OF_FRONT_PROXY: usize = 400;
const LEAST_OF_FRONT_PROXY: usize = OF_FRONT_PROXY / 6;
/// Handshakes that may find out whether it is the front proxy that comes, while nobody gives
/// way, and how long each of them may take.
const LATE_HANDSHAKES: usize = 500;
const LATE_HANDSHAKE: Duration = Duration::from_secs(3);
/// How long a handshake may take; as Go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the front proxy is served on one connection before it is asked to open another, and up to
/// as long again: so its requests spread over the replicas, and come to new ones.
const RENEWED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Streams of a connection: all users of a kube-apiserver share one. Twice as
/// many as Go's aggregated servers have, so that beside a thousand watches there
/// is room for what must be answered at once.
const STREAMS_OF_FRONT_PROXY: u32 = 2_000;
/// The same of others; as kube-apiserver's.
const STREAMS: u32 = 1_000;
/// The same of those without a certificate, who may be anybody; as Go's servers have.
const STREAMS_OF_STRANGER: u32 = 250;
/// What a stream may send of its body before somebody reads it, and what all streams of a connection may:
/// so many times as much that bodies that are not read yet keep no others from coming. They are read as
/// soon as it is known that their users may send them.
const WINDOW_OF_FRONT_PROXY: (u32, u32) = (512 << 10, 64 << 20);
/// The same of others: all of its streams are one client's, and there may be many connections.
const WINDOW: (u32, u32) = (256 << 10, 256 << 10);
/// Streams that a client took back before they were looked at. All users of a kube-apiserver
/// may do so at once, and the connection is for all of them; what is read in a turn bounds it.
const RESETS: usize = 200;
const RESETS_OF_FRONT_PROXY: usize = 20_000;
/// Bytes that wait to be sent on one stream: a slow watcher holds no more.
const SEND_BUFFER: usize = 64 << 10;
/// Bytes of headers of one request, with 32 for each. What kube-apiserver takes from its clients is
/// a megabyte, and it adds the user's groups, thousands of them; what is refused here is a fault of the
/// connection to Go's clients, who leave it then.
const HEAD_OF_FRONT_PROXY: u32 = 2 << 20;
/// The same of all others: a token, and what programs say of themselves. A connection holds three
/// times as much while a head is not finished.
const HEAD: u32 = 32 << 10;
/// Headers of one request over HTTP/1.1; over HTTP/2 their bytes bound their number.
const HEADERS: usize = 2_000;
/// How long the head of a request may take; as kube-apiserver.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// A connection that does not answer a ping in time is gone; as Go's clients.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    connections: usize,
    of_front_proxy: usize,
}

impl Bounds {
    pub(super) fn of(portion: Portion) -> Self {
        Self {
            connections: portion.between(LEAST_CONNECTIONS, CONNECTIONS),
            of_front_proxy: portion.between(LEAST_OF_FRONT_PROXY, OF_FRONT_PROXY),
        }
    }

    /// What they may take in all, in bytes: TLS and HTTP/2 of each, and a head that is not
    /// finished. The front proxy's are finished.
    pub(super) fn memory(&self) -> usize {
        const IDLE: usize = 40 << 10;
        self.connections * (IDLE + 2 * HEAD as usize) + self.of_front_proxy * IDLE
    }
}

/// Serves connections: bounded, with TLS, and knowing who is there.
pub(super) struct Connections {
    tls: RustlsAcceptor<NoDelayAcceptor>,
    trust: Arc<ArcSwap<Trust>>,
    router: Router,
    clock: Clock,
    bounds: Bounds,
    places: Places,
    of_front_proxy: Places,
    late: Arc<Semaphore>,
    heads: Heads,
    refused: Occasionally,
    lines: Arc<CertificateLines>,
}

/// What a connection has before it is known who comes.
enum Entry {
    Place(Place),
    Late(#[allow(dead_code)] OwnedSemaphorePermit),
}

/// A connection after its handshake.
struct Connected {
    stream: TlsStream<TcpStream>,
    peer: PeerIdentity,
    standing: Standing,
    place: Place,
    is_front_proxy: bool,
}

impl Connections {
    pub(super) fn new(
        tls: RustlsConfig,
        trust: Arc<ArcSwap<Trust>>,
        router: Router,
        clock: Clock,
        bounds: Bounds,
    ) -> Self {
        let tls = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
        Self {
            tls: tls.acceptor(NoDelayAcceptor::new()),
            trust,
            router,
            clock,
            bounds,
            places: Places::new(bounds.connections, Whose::Anybody),
            of_front_proxy: Places::new(bounds.of_front_proxy, Whose::FrontProxy),
            late: Arc::new(Semaphore::new(LATE_HANDSHAKES)),
            heads: Heads::new(),
            refused: Occasionally::default(),
            lines: Arc::default(),
        }
    }

    /// Serves a connection until it ends. Once `draining` is cancelled no new request is
    /// taken.
    pub(super) async fn serve(self: Arc<Self>, stream: TcpStream, draining: CancellationToken) {
        match self.connect(stream).await {
            Ok(connected) => self.serve_http(connected, draining).await,
            Err(error) => tracing::debug!("a connection is not served: {error}"),
        }
    }

    /// A place among all, or time to find out whether it is the front proxy.
    fn entry(&self, address: IpAddr, standing: &Standing) -> Option<Entry> {
        if let Some(place) = self.places.take(address, standing) {
            return Some(Entry::Place(place));
        }
        self.refused.log(|suppressed| {
            let connections = self.bounds.connections;
            tracing::warn!(suppressed, "{connections} connections are open: more are refused");
        });
        Arc::clone(&self.late).try_acquire_owned().ok().map(Entry::Late)
    }

    async fn connect(&self, stream: TcpStream) -> io::Result<Connected> {
        let too_many = || io::Error::other("too many connections");
        let address = stream.peer_addr()?.ip();
        let standing = Standing::of_address(address, network(address).to_string());
        let entry = self.entry(address, &standing).ok_or_else(too_many)?;
        let handshake = timeout(entry.handshake_timeout(), self.tls.accept(stream, ()));
        let handshake = entry.evicted().run_until_cancelled_owned(handshake).await;
        let (stream, ()) = handshake.ok_or_else(too_many)???;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        let peer = PeerIdentity::new(chain, Arc::clone(&self.trust), Arc::clone(&self.lines));
        let presented = peer.presented();
        standing.mark_used();
        let is_front_proxy = presented.is_front_proxy;
        if presented.client.is_some() {
            standing.mark_authenticated();
        }
        let of_front_proxy =
            is_front_proxy.then(|| self.of_front_proxy.take(address, &standing)).flatten();
        let place = match (of_front_proxy, entry) {
            (Some(place), _) | (None, Entry::Place(place)) => place,
            (None, Entry::Late(_)) => return Err(too_many()),
        };
        Ok(Connected { stream, peer, standing, place, is_front_proxy })
    }

    async fn serve_http(&self, connected: Connected, draining: CancellationToken) {
        let Connected { stream, peer, standing, place, is_front_proxy } = connected;
        let evicted = place.evicted.clone();
        // The front proxy's carries the requests of others, who must not suffer for one.
        let ended_by_stream =
            if is_front_proxy { CancellationToken::new() } else { evicted.clone() };
        let count = match (is_front_proxy, standing.is_authenticated()) {
            (true, _) => STREAMS_OF_FRONT_PROXY,
            (false, true) => STREAMS,
            (false, false) => STREAMS_OF_STRANGER,
        };
        let streams = Streams::new(ended_by_stream, count);
        let running = streams.running();
        let http = http(streams, is_front_proxy, count);
        // The front proxy's requests are counted by their users.
        let heads = (!is_front_proxy).then(|| self.heads.of_connection(standing.from()));
        let (router, peer, connection) = (self.router.clone(), Arc::new(peer), evicted.clone());
        // Called as soon as a request has come, before it has its turn.
        let service = service_fn(move |request: Request<Incoming>| {
            standing.mark_used();
            let admitted = match &heads {
                Some(heads) => heads.admit(request),
                None => Ok(request),
            };
            let from = (Arc::clone(&peer), standing.clone());
            answer(router.clone(), from, connection.clone(), admitted)
        });
        // The front proxy's frames are those of its many clients' requests.
        let budget = (!is_front_proxy).then(FrameBudget::new);
        let stream = TokioIo::new(BoundedStream::new(stream, running, budget, evicted, place));
        let serving = http.serve_connection_with_upgrades(stream, service);
        let mut serving = pin!(serving);
        let renewed = async {
            if !is_front_proxy {
                std::future::pending::<()>().await;
            }
            let seconds = RENEWED_AFTER.as_secs();
            sleep(Duration::from_secs(seconds + self.clock.random() % seconds)).await;
        };
        tokio::select! {
            biased;
            () = draining.cancelled() => {}
            () = renewed => {}
            _ = serving.as_mut() => return,
        }
        serving.as_mut().graceful_shutdown();
        let _ = serving.await;
    }
}

/// Answers a request of a connection.
async fn answer(
    router: Router,
    (peer, standing): (Arc<PeerIdentity>, Standing),
    connection: CancellationToken,
    admitted: Result<Request<Incoming>, Full>,
) -> Result<Response<Body>, Infallible> {
    let Ok(request) = admitted else {
        // There is no room even for an answer that nobody reads.
        return Ok(without_body(refuse(&ApiError::too_many_requests())));
    };
    let reset = streams::current().unwrap_or_else(|| StreamReset::of_connection(connection));
    let mut request = request.map(Body::new);
    let peer = Peer::Connection { presented: peer.presented(), standing };
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(reset);
    router.oneshot(request).await
}

/// HTTP as it is spoken on a connection.
fn http(streams: Streams, is_front_proxy: bool, count: u32) -> Builder<Streams> {
    let (head, resets, (of_stream, of_all)) = match is_front_proxy {
        true => (HEAD_OF_FRONT_PROXY, RESETS_OF_FRONT_PROXY, WINDOW_OF_FRONT_PROXY),
        false => (HEAD, RESETS, WINDOW),
    };
    let mut http = Builder::new(streams);
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(head as usize)
        .max_headers(HEADERS);
    let mut http2 = http.http2();
    http2
        .timer(TokioTimer::new())
        .initial_stream_window_size(of_stream)
        .initial_connection_window_size(of_all)
        .max_concurrent_streams(count)
        .max_pending_accept_reset_streams(resets)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(head)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    if is_front_proxy {
        // A path that HTTP does not take resets its stream, and any user may send one.
        http2.max_local_error_reset_streams(None);
    }
    http
}

impl Entry {
    fn handshake_timeout(&self) -> Duration {
        match self {
            Self::Place(_) => HANDSHAKE,
            Self::Late(_) => LATE_HANDSHAKE,
        }
    }

    /// Cancelled when the connection has to give way.
    fn evicted(&self) -> CancellationToken {
        match self {
            Self::Place(place) => place.evicted.clone(),
            Self::Late(_) => CancellationToken::new(),
        }
    }
}
