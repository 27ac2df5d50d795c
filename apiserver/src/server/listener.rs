//! Listens and serves: HTTP/1.1 and HTTP/2 over TLS.

use std::net::{SocketAddr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use futures::FutureExt;
use hyper_util::rt::TokioTimer;
use tokio::task::JoinHandle;

use super::connection::Acceptor;
use super::draining::Draining;
use super::health::Health;
use super::open_files;
use super::tls::Trust;
use crate::error::StartError;
use crate::request::{Peer, Presented, SharedHandler, panicked};

/// Streams of one connection: all users of a kube-apiserver share it. Twice as
/// many as Go's aggregated servers have, so that beside a thousand watches there
/// is room for what must be answered at once.
const STREAMS: u32 = 2_000;
/// Streams that the client took back before they were looked at: all users of
/// a kube-apiserver may do so at once, and the connection is for all of them.
const RESETS: usize = 200;
/// Bytes that wait to be sent on one stream: a slow watcher holds no more.
const SEND_BUFFER: usize = 64 << 10;
/// Bytes of headers of one request over HTTP/2, with 32 for each: a user may be in thousands of
/// groups. Go takes a megabyte; but a head that is not finished is held, of each connection.
const HEADER_BYTES: u32 = 256 << 10;
/// The same over HTTP/1.1, which kube-apiserver speaks only if it is told to.
const HTTP1_HEAD: usize = 128 << 10;
const HEADERS: usize = 2_000;
/// How long the head of a request may take; as kube-apiserver.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// A connection that does not answer a ping in time is gone; as Go's clients.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How long requests in flight may take when the server closes.
const DRAIN: Duration = Duration::from_secs(60);

/// A socket that listens.
pub(super) struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    pub(super) fn bind(address: SocketAddr) -> Result<Self, StartError> {
        open_files::raise_limit();
        let fault = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self { listener, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is told to drain.
    pub(super) fn serve(
        self,
        handler: SharedHandler,
        health: Health,
        tls: RustlsConfig,
        trust: Arc<ArcSwap<Trust>>,
    ) -> Serving {
        let handle = Handle::new();
        let router = router(handler, health).into_make_service();
        let task = tokio::spawn({
            let handle = handle.clone();
            async move {
                let served = match axum_server::from_tcp(self.listener) {
                    Ok(server) => {
                        let mut server = server.handle(handle);
                        let builder = server.http_builder();
                        builder
                            .http1()
                            .timer(TokioTimer::new())
                            .header_read_timeout(HEADER_TIMEOUT)
                            .max_buf_size(HTTP1_HEAD)
                            .max_headers(HEADERS);
                        builder
                            .http2()
                            .timer(TokioTimer::new())
                            .max_concurrent_streams(STREAMS)
                            .max_pending_accept_reset_streams(RESETS)
                            .max_send_buf_size(SEND_BUFFER)
                            .max_header_list_size(HEADER_BYTES)
                            .keep_alive_interval(PING_EVERY)
                            .keep_alive_timeout(PING_TIMEOUT);
                        server.acceptor(Acceptor::new(tls, trust)).serve(router).await
                    }
                    Err(error) => Err(error),
                };
                served.err().map_or_else(|| "the listener is closed".to_owned(), |e| e.to_string())
            }
        });
        Serving { handle, task }
    }
}

/// A socket that is served.
pub(super) struct Serving {
    handle: Handle<SocketAddr>,
    task: JoinHandle<String>,
}

impl Serving {
    /// Takes no more connections, and returns when requests in flight have
    /// been answered.
    pub(super) async fn drain(&mut self) {
        self.handle.graceful_shutdown(Some(DRAIN));
        self.ended().await;
    }

    /// Returns when nobody is served any more; says why.
    pub(super) async fn ended(&mut self) -> String {
        (&mut self.task).await.unwrap_or_else(|error| error.to_string())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

#[derive(Clone)]
struct Shared {
    handler: SharedHandler,
    health: Health,
}

fn router(handler: SharedHandler, health: Health) -> Router {
    let version = async |State(shared): State<Shared>| shared.handler.version();
    let mut router = Router::new().route("/version", get(version));
    for endpoint in ["healthz", "livez", "readyz"] {
        router = router
            .route(
                &format!("/{endpoint}"),
                get(async move |State(shared): State<Shared>, request: Request| {
                    let query = request.uri().query().unwrap_or_default();
                    shared.health.answer::<Body>(endpoint, query, shared.handler.sources())
                }),
            )
            .route(
                &format!("/{endpoint}/{{check}}"),
                get(
                    async move |State(shared): State<Shared>,
                                Path(check): Path<String>,
                                peer: Option<Extension<Peer>>,
                                request: Request| {
                        // A check says what is wrong, so not everybody may ask.
                        let (head, _) = request.into_parts();
                        match shared.handler.permit(&of(peer), &head).await {
                            Ok(()) => {
                                let sources = shared.handler.sources();
                                shared.health.answer_one(endpoint, &check, sources)
                            }
                            Err(refusal) => *refusal,
                        }
                    },
                ),
            );
    }
    // A path that is served here, asked with another method, is refused as any other.
    router
        .method_not_allowed_fallback(handle)
        .fallback(handle)
        .layer(middleware::from_fn(catch_panics))
        .with_state(Shared { handler, health })
}

/// A panic in a health check answers 500; the handler catches those of requests itself.
async fn catch_panics(request: Request, next: Next) -> Response {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answer.unwrap_or_else(|what| panicked(&*what))
}

async fn handle(
    State(shared): State<Shared>,
    peer: Option<Extension<Peer>>,
    request: Request,
) -> Response {
    shared.handler.handle(&of(peer), Draining::wrap(request)).await
}

/// Every connection has a peer; without one, nobody is authenticated.
fn of(peer: Option<Extension<Peer>>) -> Peer {
    peer.map_or_else(|| Peer::Connection(Presented::default()), |Extension(peer)| peer)
}
