//! The routes: some paths are answered by the server itself, all others by the request handler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use futures::FutureExt;
use tower::ServiceExt;

use super::draining::Drains;
use super::health::{self, Health};
use super::hooks::AddLayer;
use crate::request::{Answer, Peer, SharedHandler, StreamReset, panicked};

/// Routes every request of a connection, through the layers of the program.
pub(super) struct Routes {
    shared: Shared,
    router: Router,
    has_layers: bool,
}

impl Routes {
    pub(super) fn new(handler: SharedHandler, health: Health, layers: Vec<AddLayer>) -> Self {
        let shared: Shared = Arc::new(Answering { handler, health, drains: Drains::new() });
        let has_layers = !layers.is_empty();
        Self { router: router(&shared, layers), shared, has_layers }
    }

    /// Responds to a request of this client.
    pub(super) async fn respond(
        &self,
        peer: Peer,
        reset: StreamReset,
        mut request: Request,
    ) -> Response {
        // Most requests need neither the router nor its copies of the request.
        let is_routed = self.has_layers || is_own_path(request.uri().path());
        let response = async {
            if is_routed {
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(reset);
                let Ok(response) = Box::pin(self.router.clone().oneshot(request)).await;
                return response;
            }
            let answer = self.shared.handler.answers().begin(reset);
            answer.hold(self.shared.handle(&peer, &answer, request).await)
        };
        // The handler catches panics of requests itself. This is for health checks, layers and the accounting of
        // responses.
        let response = AssertUnwindSafe(response).catch_unwind().await;
        response.unwrap_or_else(|what| panicked(&*what))
    }
}

/// Whether the server itself may answer requests for a path: `/version`, and the health endpoints with their checks.
fn is_own_path(path: &str) -> bool {
    let endpoint = path.split('/').nth(1).unwrap_or_default();
    endpoint == "version" || health::ENDPOINTS.contains(&endpoint)
}

/// The router of the server's own paths, with the request handler for all others. Requests have a `Peer` and a
/// `StreamReset` as extensions.
fn router(shared: &Shared, layers: Vec<AddLayer>) -> Router {
    let version = async |State(shared): State<Shared>| shared.handler.version();
    let mut router = Router::new().route("/version", get(version));
    for endpoint in health::ENDPOINTS {
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
    // A path of the router with another method is rejected like any other path.
    let router = router.method_not_allowed_fallback(handle).fallback(handle);
    let router = router.with_state(Arc::clone(shared));
    let router = layers.into_iter().fold(router, |router, add| add(router));
    router.layer(middleware::from_fn_with_state(Arc::clone(shared), hold))
}

/// One shared reference for all parts, because all workers clone it several times for each request.
type Shared = Arc<Answering>;

struct Answering {
    handler: SharedHandler,
    health: Health,
    drains: Drains,
}

impl Answering {
    /// Calls the request handler.
    async fn handle(&self, peer: &Peer, answer: &Answer, request: Request) -> Response {
        let request = match peer {
            Peer::Connection { standing, .. } => self.drains.wrap(request, standing),
            Peer::InProcess(_) => request,
        };
        self.handler.handle(peer, answer, request).await
    }
}

async fn handle(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Extension(answer): Extension<Answer>,
    request: Request,
) -> Response {
    shared.handle(&peer, &answer, request).await
}

/// Accounts for the resources of a response until it is sent. This applies to every response.
async fn hold(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let reset = request.extensions_mut().remove::<StreamReset>().unwrap_or_default();
    let answer = shared.handler.answers().begin(reset);
    request.extensions_mut().insert(answer.clone());
    answer.hold(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_itself_may_answer_health_endpoints_and_the_version() {
        for path in ["/version", "/healthz", "/livez", "/readyz", "/readyz/ping", "/readyz/"] {
            assert!(is_own_path(path), "{path}");
        }
        for path in ["", "/", "*", "//healthz", "/apis", "/apis/healthz", "/versions"] {
            assert!(!is_own_path(path), "{path}");
        }
    }
}
