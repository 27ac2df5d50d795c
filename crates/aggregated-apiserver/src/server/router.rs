//! Which paths are answered by the server itself, and which by the handler of requests.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use futures::FutureExt;

use super::draining::Drains;
use super::health::Health;
use crate::request::{Answer, Peer, SharedHandler, StreamReset, panicked};

/// Answers every request of a connection, which brings a `Peer` and a `StreamReset`.
pub(super) fn router(handler: SharedHandler, health: Health) -> Router {
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
                                Extension(peer): Extension<Peer>,
                                request: Request| {
                        // A check says what is wrong, so not everybody may ask.
                        let (head, _) = request.into_parts();
                        match shared.handler.permit(&peer, &head).await {
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
    let shared: Shared = Arc::new(Answering { handler, health, drains: Drains::new() });
    // A path that is served here, asked with another method, is refused as any other.
    router
        .method_not_allowed_fallback(handle)
        .fallback(handle)
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), hold))
        .layer(middleware::from_fn(catch_panics))
        .with_state(shared)
}

/// One count for all of it: it is cloned several times for each request, by all workers.
type Shared = Arc<Answering>;

struct Answering {
    handler: SharedHandler,
    health: Health,
    drains: Drains,
}

/// A panic in a health check, or in what counts answers, answers 500; the handler catches those of
/// requests itself.
async fn catch_panics(request: Request, next: Next) -> Response {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answer.unwrap_or_else(|what| panicked(&*what))
}

async fn handle(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Extension(answer): Extension<Answer>,
    request: Request,
) -> Response {
    let request = match &peer {
        Peer::Connection { standing, .. } => shared.drains.wrap(request, standing),
        Peer::InProcess(_) => request,
    };
    shared.handler.handle(&peer, &answer, request).await
}

/// Counts what the answer holds until it has been sent. Whatever answers, this is asked.
async fn hold(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let reset = request.extensions_mut().remove::<StreamReset>().unwrap_or_default();
    let answer = shared.handler.answers().begin(reset);
    request.extensions_mut().insert(answer.clone());
    answer.hold(next.run(request).await)
}
