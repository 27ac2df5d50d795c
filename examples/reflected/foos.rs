//! The kind `Foo`, its reflector, and the HTTP routes that serve it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::{FutureExt, StreamExt};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::program::cause;

/// Something with a name.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "clux.dev", version = "v1", kind = "Foo", namespaced)]
pub struct FooSpec {
    /// The name to display.
    pub name: String,
    /// Further information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
}

/// Updates the store from the cluster, without end. While the cluster is unreachable, the store contains the last known
/// state.
pub async fn follow(client: Client, writer: Writer<Foo>) {
    let foos = watcher(Api::<Foo>::all(client), watcher::Config::default());
    let foos = foos.default_backoff().modify(|one| one.metadata.managed_fields = None);
    let told = async |event| {
        if let Err(error) = event {
            warn!("the watch goes on after a pause: {}", cause(&error));
        }
    };
    foos.reflect(writer).for_each(told).await;
}

/// Serves the contents of the store.
pub fn router(foos: Store<Foo>) -> Router {
    Router::new()
        .route("/foos", get(all))
        .route("/foos/{namespace}/{name}", get(one))
        .route("/livez", get("ok\n"))
        .route("/readyz", get(ready))
        .with_state(foos)
}

async fn all(State(foos): State<Store<Foo>>) -> Response {
    if !is_ready(&foos) {
        return unready();
    }
    let mut found = foos.state();
    found.sort_by_key(|one| (one.namespace(), one.name_any()));
    json(&found.iter().map(Arc::as_ref).collect::<Vec<&Foo>>())
}

async fn one(
    State(foos): State<Store<Foo>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    if !is_ready(&foos) {
        return unready();
    }
    match foos.get(&ObjectRef::new(&name).within(&namespace)) {
        Some(found) => json(&*found),
        None => (StatusCode::NOT_FOUND, "there is no such Foo\n").into_response(),
    }
}

async fn ready(State(foos): State<Store<Foo>>) -> Response {
    if is_ready(&foos) { "ok\n".into_response() } else { unready() }
}

/// Whether the initial list is complete. Before that, an empty response would be wrong.
fn is_ready(foos: &Store<Foo>) -> bool {
    matches!(foos.wait_until_ready().now_or_never(), Some(Ok(())))
}

fn unready() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the Foos have not been read yet\n").into_response()
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
