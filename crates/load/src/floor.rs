//! The floor: a server that responds with prebuilt bytes of the same size over the same TLS and HTTP/2. No real API
//! server on this stack can use less CPU time.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::tls_rustls::{RustlsConfig, from_tcp_rustls};
use bytes::Bytes;
use futures::stream;
use tokio::sync::broadcast::{Sender, channel};

use crate::process;
use crate::workload::{COLLECTION, PAGE, sample};

/// The capacity of the event channel: more than the number of events that are sent before every watcher has read them.
const QUEUE: usize = 16_384;

struct Answers {
    object: Bytes,
    event: Bytes,
    /// Built at the first list request.
    list: OnceLock<Bytes>,
    objects: usize,
    page: Bytes,
    events: Sender<Bytes>,
}

pub async fn serve(folder: &Path, objects: usize) -> Result<()> {
    let object = sample(0).to_string();
    let answers = Arc::new(Answers {
        event: format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n").into(),
        list: OnceLock::new(),
        objects,
        page: list(&object, PAGE),
        object: object.clone().into(),
        events: channel(QUEUE).0,
    });
    let router = Router::new()
        .route(COLLECTION, get(collection).post(create))
        .route(&format!("{COLLECTION}/{{name}}"), get(object_of).put(change).patch(change))
        .with_state(answers);
    let tls = RustlsConfig::from_pem_file(folder.join("serving.crt"), folder.join("serving.key"));
    let tls = tls.await?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut server = from_tcp_rustls(listener, tls)?;
    // All watchers of a connection need a stream each.
    server.http_builder().http2().max_concurrent_streams(u32::MAX);
    process::announce(folder, address)?;
    Ok(server.serve(router.into_make_service()).await?)
}

fn list(object: &str, count: usize) -> Bytes {
    format!("{{\"items\":[{}]}}\n", vec![object; count].join(",")).into()
}

fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.into()).into_response()
}

async fn create(State(answers): State<Arc<Answers>>, body: Bytes) -> Response {
    drop(body);
    // Fails if there are no watchers, which is not an error.
    let _ = answers.events.send(answers.event.clone());
    json(StatusCode::CREATED, answers.object.clone())
}

async fn object_of(State(answers): State<Arc<Answers>>) -> Response {
    json(StatusCode::OK, answers.object.clone())
}

async fn change(State(answers): State<Arc<Answers>>, body: Bytes) -> Response {
    drop(body);
    json(StatusCode::OK, answers.object.clone())
}

async fn collection(State(answers): State<Arc<Answers>>, RawQuery(query): RawQuery) -> Response {
    let has = |name: &str| query.as_deref().is_some_and(|query| query.contains(name));
    if has("watch") {
        let events = answers.events.subscribe();
        let events = stream::unfold(events, async |mut events| {
            let event = events.recv().await.ok()?;
            Some((Ok::<_, std::convert::Infallible>(event), events))
        });
        return json(StatusCode::OK, Body::from_stream(events));
    }
    if has("limit") {
        return json(StatusCode::OK, answers.page.clone());
    }
    let list = answers.list.get_or_init(|| list(&sample(0).to_string(), answers.objects));
    json(StatusCode::OK, list.clone())
}
