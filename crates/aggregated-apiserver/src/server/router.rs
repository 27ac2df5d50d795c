//! The router: some paths are answered by the server itself, all others by the request handler.

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
use super::hooks::AddLayer;
use crate::request::{Answer, Peer, SharedHandler, StreamReset, panicked};

/// Routes every request of a connection, through the layers of the program. Requests have a `Peer` and a `StreamReset`
/// as extensions.
pub(super) fn router(handler: SharedHandler, health: Health, layers: Vec<AddLayer>) -> Router {
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
                &format!("/{endpoint}/{{*check}}"),
                get(
                    async move |State(shared): State<Shared>,
                                Path(check): Path<String>,
                                Extension(peer): Extension<Peer>,
                                request: Request| {
                        // The result of a check contains errors, so it requires a permission.
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
    // A path of the router with another method is rejected like any other path.
    let router = router.method_not_allowed_fallback(handle).fallback(handle);
    let router = router.with_state(Arc::clone(&shared));
    let router = layers.into_iter().fold(router, |router, add| add(router));
    router
        .layer(middleware::from_fn_with_state(shared, hold))
        .layer(middleware::from_fn(catch_panics))
}

/// One shared reference for all parts, because all workers clone it several times for each request.
type Shared = Arc<Answering>;

struct Answering {
    handler: SharedHandler,
    health: Health,
    drains: Drains,
}

/// Responds with 500 to a panic in a health check or in the accounting of responses. The handler catches panics of
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

/// Accounts for the resources of a response until it is sent. This applies to every response.
async fn hold(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let reset = request.extensions_mut().remove::<StreamReset>().unwrap_or_default();
    let answer = shared.handler.answers().begin(reset);
    request.extensions_mut().insert(answer.clone());
    answer.hold(next.run(request).await)
}
