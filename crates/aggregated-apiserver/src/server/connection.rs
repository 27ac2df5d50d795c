//! One connection: its slot, its TLS handshake, and HTTP until the connection ends.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum_server::accept::{Accept, NoDelayAcceptor};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::future::{Either, select};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::bounded_stream::{BoundedStream, SharedStream};
use super::connection_slots::{ConnectionSlot, ConnectionSlots, Whose, network};
use super::frame_budget::FrameBudget;
use super::heads::Heads;
use super::health;
use super::occupant::{InFlight, Occupant};
use super::peer_identity::{CertificateLines, PeerIdentity};
use super::router::Routes;
use super::slot::{FAREWELLS, NoPlace, Slot};
use super::streams::{self, Streams};
use super::tls::Trust;
use crate::clock::Clock;
use crate::error::ApiError;
use crate::log_throttle::LogThrottle;
use crate::quota::MemoryScale;
use crate::request::{
    Close, ConnectionHandle, ConnectionPriority, Peer, StreamReset, refuse, without_body,
};

/// The limit of connections, without those of the front proxy. Each may use 100 kB. One address may have three quarters
/// of them, because a program with a thousand watches over HTTP/1.1 needs as many connections.
const CONNECTIONS: usize = 1_340;
const LEAST_CONNECTIONS: usize = 120;
/// The limit of connections of the front proxy. kube-apiserver needs one, or one per request without HTTP/2.
const OF_FRONT_PROXY: usize = 400;
const LEAST_OF_FRONT_PROXY: usize = OF_FRONT_PROXY / 6;
/// The limit of connections without a place that may complete their handshake and send a request. The request waits for
/// a place.
const PROVISIONAL: usize = 100;
const LEAST_PROVISIONAL: usize = 30;
/// The limits of connections that wait before their handshake, and of their time: less than the ten
/// seconds that clients written in Go allow for a handshake.
const BACKLOG: usize = 1_000;
const BACKLOG_PATIENCE: Duration = Duration::from_secs(8);
/// The longest time of a handshake, same as kube-apiserver's. If a place is needed, an overdue handshake ends sooner.
const HANDSHAKE: Duration = Duration::from_secs(32);
/// The time after which a connection of the front proxy is closed gracefully; a random time of up to the same length is
/// added. The front proxy then opens another connection, so its requests spread over the replicas and reach new
/// replicas.
const RENEWED_AFTER: Duration = Duration::from_secs(10 * 60);

/// The largest number of open streams on a connection of the front proxy, which all users of a kube-apiserver share. It
/// is twice as large as in aggregated servers written in Go, so that short requests find a free stream beside a
/// thousand watches.
const STREAMS_OF_FRONT_PROXY: u32 = 2_000;
/// The largest number of open streams on other connections, same as kube-apiserver's.
const STREAMS: u32 = 1_000;
/// The largest number of open streams on connections without a client certificate, same as in servers written in Go.
const STREAMS_OF_STRANGER: u32 = 250;
/// The largest unread body data of a stream and of all streams of a connection, in bytes. The second limit is so much
/// larger because unread bodies must not block other bodies. A body is read as soon as its user is known to be allowed
/// to send it.
const WINDOW_OF_FRONT_PROXY: (u32, u32) = (512 << 10, 64 << 20);
/// The same limits on other connections. All streams of such a connection belong to one client, and there may be many
/// connections.
const WINDOW: (u32, u32) = (256 << 10, 256 << 10);
/// The largest number of streams that clients of the front proxy have reset before the server starts them. More streams
/// end the connection. All users of a kube-apiserver may reset streams at once; the number of bytes that are read at a
/// time limits them. On other connections, a client may reset all of its open streams.
const RESETS_OF_FRONT_PROXY: usize = 20_000;
/// The largest unsent data of a stream, in bytes. A slow watch holds no more.
const SEND_BUFFER: usize = 64 << 10;
/// The largest head of a request of the front proxy, in bytes, with 32 bytes added for each header. kube-apiserver
/// accepts heads of a megabyte and adds the groups of the user, which can be thousands. A head that is rejected here is
/// a connection error for clients written in Go, and they close the connection.
const HEAD_OF_FRONT_PROXY: u32 = 2 << 20;
/// The largest head of any other request, in bytes: a token, and headers of the client program. A connection holds
/// three times as much until a head is complete.
const HEAD: u32 = 32 << 10;
/// The largest number of headers of a request over HTTP/1.1. Over HTTP/2 the size of the head limits their number.
const HEADERS: usize = 2_000;
/// The interval and the timeout of pings, same as in clients written in Go. A connection without a response is closed.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    connections: usize,
    of_front_proxy: usize,
    provisional: usize,
}

impl Bounds {
    pub(super) fn of(portion: MemoryScale) -> Self {
        Self {
            connections: portion.between(LEAST_CONNECTIONS, CONNECTIONS),
            of_front_proxy: portion.between(LEAST_OF_FRONT_PROXY, OF_FRONT_PROXY),
            provisional: portion.between(LEAST_PROVISIONAL, PROVISIONAL),
        }
    }

    /// The largest memory of all connections, in bytes: for TLS and HTTP/2, and for an incomplete head. The front proxy
    /// sends complete heads.
    pub(super) fn memory(&self) -> usize {
        const IDLE: usize = 40 << 10;
        let of_clients = self.connections + self.provisional;
        of_clients * (IDLE + 2 * HEAD as usize) + self.of_front_proxy * IDLE
    }
}

/// Serves connections with TLS, within the limits, and authenticates their clients.
pub(super) struct Connections {
    tls: RustlsAcceptor<NoDelayAcceptor>,
    trust: Arc<ArcSwap<Trust>>,
    routes: Arc<Routes>,
    clock: Clock,
    bounds: Bounds,
    places: ConnectionSlots,
    of_front_proxy: ConnectionSlots,
    provisional: ConnectionSlots,
    farewells: Semaphore,
    heads: Heads,
    full: LogThrottle,
    lines: Arc<CertificateLines>,
}

/// A connection after its handshake.
struct Connected {
    stream: TlsStream<TcpStream>,
    peer: PeerIdentity,
    slot: Arc<Slot>,
    is_front_proxy: bool,
}

impl Connections {
    pub(super) fn new(
        tls: RustlsConfig,
        trust: Arc<ArcSwap<Trust>>,
        routes: Routes,
        clock: Clock,
        bounds: Bounds,
    ) -> Self {
        let tls = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
        Self {
            tls: tls.acceptor(NoDelayAcceptor::new()),
            trust,
            routes: Arc::new(routes),
            clock,
            bounds,
            places: ConnectionSlots::new(
                bounds.connections,
                bounds.provisional + BACKLOG,
                Whose::Networks,
            ),
            of_front_proxy: ConnectionSlots::new(
                bounds.of_front_proxy,
                bounds.provisional,
                Whose::FrontProxy,
            ),
            provisional: ConnectionSlots::new(bounds.provisional, BACKLOG, Whose::Networks),
            farewells: Semaphore::new(FAREWELLS),
            heads: Heads::new(),
            full: LogThrottle::default(),
            lines: Arc::default(),
        }
    }

    /// Serves a connection until it ends. Once `draining` is cancelled, it accepts no new request.
    pub(super) async fn serve(self: Arc<Self>, stream: TcpStream, draining: CancellationToken) {
        match self.connect(stream, &draining).await {
            Ok(connected) => self.serve_http(connected, draining).await,
            Err(error) => tracing::debug!(%error, "connection failed"),
        }
    }

    /// A place among all connections, or a provisional place for the handshake. The flag is true for a place among all.
    async fn entry(
        &self,
        occupant: &Arc<Occupant>,
        draining: &CancellationToken,
    ) -> Option<(ConnectionSlot, bool)> {
        if let Some(place) = self.places.take(occupant) {
            return Some((place, true));
        }
        self.full.log(|suppressed| {
            let (limit, network) = (self.bounds.connections, occupant.network());
            tracing::warn!(
                suppressed,
                limit,
                %network,
                "limit of connections reached: a new connection waits"
            );
        });
        let of_all = pin!(self.places.wait(occupant, BACKLOG_PATIENCE));
        let provisional = pin!(self.provisional.wait(occupant, BACKLOG_PATIENCE));
        let first = async {
            match select(of_all, provisional).await {
                Either::Left((Some(place), _)) => Some((place, true)),
                Either::Left((None, provisional)) => provisional.await.map(|place| (place, false)),
                Either::Right((Some(place), _)) => Some((place, false)),
                Either::Right((None, of_all)) => of_all.await.map(|place| (place, true)),
            }
        };
        draining.run_until_cancelled(first).await.flatten()
    }

    async fn connect(
        &self,
        stream: TcpStream,
        draining: &CancellationToken,
    ) -> io::Result<Connected> {
        let too_many = || io::Error::other("too many connections");
        let address = stream.peer_addr()?.ip();
        let standing = ConnectionPriority::of_address(address, network(address).to_string());
        let occupant = Occupant::new(address, standing);
        let (place, is_admitted) = self.entry(&occupant, draining).await.ok_or_else(too_many)?;
        let handshake = self.tls.accept(stream, ());
        let handshake = occupant.closing().run_until_cancelled(handshake).await;
        let (stream, ()) = handshake.ok_or_else(too_many)??;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            occupant.mark_multiplexed();
        }
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        let peer = PeerIdentity::new(chain, Arc::clone(&self.trust), Arc::clone(&self.lines));
        let presented = peer.presented();
        occupant.standing().mark_used();
        let is_front_proxy = presented.is_front_proxy;
        if presented.user().is_some() {
            occupant.standing().mark_authenticated();
        }
        let of_front_proxy = is_front_proxy.then(|| self.of_front_proxy.take(&occupant)).flatten();
        let slot = match (of_front_proxy, is_admitted) {
            (Some(place), _) => Slot::admitted(occupant, self.of_front_proxy.clone(), place),
            (None, true) => Slot::admitted(occupant, self.places.clone(), place),
            (None, false) => {
                let places = if is_front_proxy { &self.of_front_proxy } else { &self.places };
                Slot::provisional(occupant, places.clone(), place)
            }
        };
        Ok(Connected { stream, peer, slot: Arc::new(slot), is_front_proxy })
    }

    async fn serve_http(&self, connected: Connected, draining: CancellationToken) {
        let Connected { stream, peer, slot, is_front_proxy } = connected;
        let (occupant, cut) = (Arc::clone(slot.occupant()), slot.cut().clone());
        // A connection of the front proxy has requests of many users, so one stream must not end the connection.
        let ended_by_stream = if is_front_proxy { CancellationToken::new() } else { cut.clone() };
        let count = match (is_front_proxy, occupant.standing().is_authenticated()) {
            (true, _) => STREAMS_OF_FRONT_PROXY,
            (false, true) => STREAMS,
            (false, false) => STREAMS_OF_STRANGER,
        };
        let streams = Streams::new(ended_by_stream, count, Arc::clone(&occupant));
        let running = streams.running();
        let http = http(streams, is_front_proxy, count);
        // Requests of the front proxy are counted per user.
        let heads = (!is_front_proxy).then(|| self.heads.of_connection(occupant.standing().from()));
        let (routes, peer) = (Arc::clone(&self.routes), Arc::new(peer));
        let of_requests = Arc::clone(&slot);
        let shared = SharedStream::new(stream, Arc::clone(&slot));
        let connection = ConnectionHandle {
            ended: slot.cut().clone(),
            activity: occupant.activity().clone(),
            stream: Arc::downgrade(&(shared.clone() as Arc<dyn Close>)),
        };
        // This function is called as soon as the head of a request has arrived, before the request is processed.
        let service = service_fn(move |request: Request<Incoming>| {
            let occupant = of_requests.occupant();
            occupant.standing().mark_used();
            // A stream of HTTP/2 is counted where it runs.
            let in_flight = (request.version() < Version::HTTP_2).then(|| occupant.begin());
            let admitted = match &heads {
                Some(heads) => heads.admit(request).ok(),
                None => Some(request),
            };
            let slot = (Arc::clone(&of_requests), connection.clone());
            answer(Arc::clone(&routes), Arc::clone(&peer), slot, in_flight, admitted)
        });
        // The front proxy's frames belong to requests of many clients, so they have no budget.
        let budget = (!is_front_proxy).then(FrameBudget::new);
        let stream = BoundedStream::new(shared, running, budget, Arc::clone(&occupant), cut);
        let serving = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
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
            () = occupant.closing().cancelled() => {}
            _ = serving.as_mut() => return,
        }
        serving.as_mut().graceful_shutdown();
        let ended = async {
            occupant.closing().cancelled().await;
            slot.end_when_unused(&self.farewells).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = serving => {}
            () = ended => {}
        }
    }
}

/// Answers a request of a connection; rejects it if there is no memory for its head. Health probes are answered without
/// a place, because an unready server blocks the deletion of namespaces for all clients.
async fn answer(
    routes: Arc<Routes>,
    peer: Arc<PeerIdentity>,
    (slot, connection): (Arc<Slot>, ConnectionHandle),
    in_flight: Option<InFlight>,
    admitted: Option<Request<Incoming>>,
) -> Result<Response<Body>, Infallible> {
    let response = match admitted {
        Some(request) if !health::is_endpoint(request.uri().path()) => match slot.admit().await {
            Ok(()) => route(&routes, &peer, (&slot, connection), request).await,
            Err(NoPlace) => refuse(&ApiError::too_many_requests()),
        },
        Some(request) => route(&routes, &peer, (&slot, connection), request).await,
        // There is no memory even for a body that the client may never read.
        None => without_body(refuse(&ApiError::too_many_requests())),
    };
    let Some(in_flight) = in_flight else { return Ok(response) };
    Ok(match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            in_flight.upgrade();
            response
        }
        _ => response.map(|body| in_flight.hold(body)),
    })
}

async fn route(
    routes: &Routes,
    peer: &PeerIdentity,
    (slot, connection): (&Slot, ConnectionHandle),
    request: Request<Incoming>,
) -> Response<Body> {
    let reset = streams::current().unwrap_or_else(|| StreamReset::of_connection(connection));
    let standing = slot.occupant().standing().clone();
    let peer = Peer::Connection { presented: peer.presented(), standing };
    routes.respond(peer, reset, request.map(Body::new)).await
}

/// The HTTP configuration of a connection.
fn http(streams: Streams, is_front_proxy: bool, count: u32) -> Builder<Streams> {
    let (head, resets, (of_stream, of_all)) = match is_front_proxy {
        true => (HEAD_OF_FRONT_PROXY, RESETS_OF_FRONT_PROXY, WINDOW_OF_FRONT_PROXY),
        false => (HEAD, count as usize, WINDOW),
    };
    let mut http = Builder::new(streams);
    // `BoundedStream` limits the time for a head. hyper's timer would also close idle connections after this time.
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
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
        // A path that HTTP does not allow resets its stream, and any user can send such a path.
        http2.max_local_error_reset_streams(None);
    }
    http
}
