//! Separate ports for probes and metrics over plain HTTP, if an operator enables them. These ports give no access to
//! objects.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::Args;
use super::bounded_stream::{BoundedStream, SharedStream};
use super::connection_slots::{ConnectionSlots, Whose};
use super::health::{self, Health};
use super::listener::{Listening, Serving};
use super::occupant::Occupant;
use super::streams::Streams;
use crate::error::StartError;
use crate::request::SharedHandler;

/// The limits of connections to one of these ports, and of connections that wait for a place: probes open a new
/// connection each time.
const CONNECTIONS: usize = 50;
const WAITING: usize = 200;
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for a connection that lost its place to end.
const FAREWELL: Duration = Duration::from_secs(5);
/// The largest head of a request, in bytes. Probes have short heads, and HTTP does not support a smaller limit.
const HEAD: usize = 8 << 10;

/// Ports that listen and do not respond yet.
pub(super) struct PlainPorts {
    probes: Option<Listening>,
    metrics: Option<Listening>,
    /// Whether probes and metrics have the same address.
    is_shared: bool,
}

/// Ports that respond, until they are dropped.
pub(super) struct Plain {
    pub probes: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    _serving: Vec<Serving>,
}

impl PlainPorts {
    /// Listens on the addresses in the flags.
    pub(super) fn bind(args: &Args) -> Result<Self, StartError> {
        let (probes, metrics) = (args.health_probe_bind_address, args.metrics_bind_address);
        let is_shared = metrics.is_some_and(|one| one.port() != 0) && probes == metrics;
        let own = metrics.filter(|_| !is_shared);
        Ok(Self {
            probes: probes.map(Listening::bind).transpose()?,
            metrics: own.map(Listening::bind).transpose()?,
            is_shared,
        })
    }

    /// Starts to respond.
    pub(super) fn serve(self, handler: &SharedHandler, health: &Health) -> Plain {
        let probes = self.probes.as_ref().map(Listening::address);
        let own = self.metrics.as_ref().map(Listening::address);
        let metrics = own.or(probes.filter(|_| self.is_shared));
        let mut serving = Vec::new();
        if let Some(port) = self.probes {
            let mut router = probes_router(handler, health);
            if self.is_shared {
                router = router.merge(metrics_router(handler));
            }
            serving.push(serve(port, router));
        }
        serving.extend(self.metrics.map(|port| serve(port, metrics_router(handler))));
        Plain { probes, metrics, _serving: serving }
    }
}

fn probes_router(handler: &SharedHandler, health: &Health) -> Router {
    health::ENDPOINTS.into_iter().fold(Router::new(), |router, endpoint| {
        let (handler, health) = (Arc::clone(handler), health.clone());
        let answer = async move |request: Request| {
            let query = request.uri().query().unwrap_or_default();
            health.answer::<Body>(endpoint, query, handler.sources())
        };
        router.route(&format!("/{endpoint}"), get(answer))
    })
}

fn metrics_router(handler: &SharedHandler) -> Router {
    let handler = Arc::clone(handler);
    Router::new().route("/metrics", get(async move || handler.metrics()))
}

fn serve(listening: Listening, router: Router) -> Serving {
    let places = ConnectionSlots::new(CONNECTIONS, WAITING, Whose::Networks);
    listening.serve(std::future::ready(()), move |stream, draining| {
        let (router, places) = (router.clone(), places.clone());
        async move { serve_connection(stream, router, &places, draining).await }
    })
}

async fn serve_connection(
    stream: TcpStream,
    router: Router,
    places: &ConnectionSlots,
    draining: CancellationToken,
) {
    let Ok(address) = stream.peer_addr() else { return };
    let occupant = Occupant::without_tls(address.ip());
    let waited = draining.run_until_cancelled(places.wait(&occupant, PATIENCE)).await;
    let Some(place) = waited.flatten() else { return };
    let mut http = Builder::new(TokioExecutor::new()).http1_only();
    // `BoundedStream` limits the time for a head. hyper's timer would also close idle connections after this time.
    http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD);
    // HTTP/1.1 has no streams.
    let streams = Streams::new(CancellationToken::new(), 0, Arc::clone(&occupant)).running();
    let cut = CancellationToken::new();
    let stream = SharedStream::new(stream, place);
    let stream = BoundedStream::new(stream, streams, None, Arc::clone(&occupant), cut);
    let of_requests = Arc::clone(&occupant);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        of_requests.standing().mark_used();
        let (in_flight, router) = (of_requests.begin(), router.clone());
        async move {
            let response = router.oneshot(request.map(Body::new)).await;
            response.map(|response| response.map(|body| in_flight.hold(body)))
        }
    });
    let serving = http.serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    tokio::select! {
        biased;
        // Responses to probes are short, so no response has to be finished.
        () = draining.cancelled() => return,
        () = occupant.closing().cancelled() => {}
        _ = serving.as_mut() => return,
    }
    // Another connection has the place, and no request is in flight.
    serving.as_mut().graceful_shutdown();
    let _ = timeout(FAREWELL, serving).await;
}
