//! A kind whose subresources do everything that a handler can do.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use aggregated_apiserver::backend::Reason;
use aggregated_apiserver::subresource::{
    Caller, Ended, Error, Parameters, Parent, ParentKey, SubPath, Subresource,
};
use aggregated_apiserver::{Kind, Kinds, Stored};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use http::StatusCode;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub const MACHINES: &str = "/apis/example.com/v1/namespaces/n/machines";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Machine", namespaced)]
pub struct MachineSpec {
    pub image: String,
}

impl Stored for Machine {}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct LogOptions {
    /// Whether the log is followed.
    follow: bool,
    /// The number of lines.
    tail_lines: Option<usize>,
}

/// The lines of the log, and the number of lines that were made.
#[derive(Clone, Default)]
pub struct Log(pub Arc<AtomicUsize>);

/// The kind with its subresources.
pub fn machine(log: &Log) -> Kind {
    let made = Arc::clone(&log.0);
    let follow = async move |Parent(machine): Parent<Machine>, options: Parameters<LogOptions>| {
        let Parameters(LogOptions { follow, tail_lines }) = options;
        let count = if follow { usize::MAX } else { tail_lines.unwrap_or(3) };
        let line = format!("{}\n", machine.spec.image);
        let lines = stream::iter(0..count).map(move |_| {
            made.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(line.clone())
        });
        // A log that is followed waits after its first lines.
        let rest = stream::pending().take(usize::from(follow && tail_lines.is_some()));
        Body::from_stream(lines.take(tail_lines.unwrap_or(count)).chain(rest))
    };
    let follow = Subresource::new("log").get(follow).long_running(Duration::from_secs(3600));
    let log = follow.parameters::<LogOptions>().produces("text/plain");
    let action = Subresource::new("start").get(show).post(start).put(start).patch(start);
    let console = Subresource::new("console").connect(console);
    let brief = Subresource::new("brief").connect(self::console);
    let brief = brief.idle_timeout(Duration::from_secs(10)).long_running(Duration::from_secs(60));
    Kind::stored::<Machine>()
        .subresource(log.idle_timeout(Duration::from_secs(600)).open_ended())
        .subresource(Subresource::new("image").get(image).long_running(Duration::from_secs(3600)))
        .subresource(Subresource::new("stop").post(show).supports_dry_run())
        .subresource(Subresource::new("broken").get(broken))
        .subresource(action.delete(show).accepts::<MachineSpec>().returns::<MachineSpec>())
        .subresource(Subresource::new("fail").post(fail))
        .subresource(Subresource::new("whole").put(whole))
        .subresource(Subresource::new("upload").put(upload).body_limit(64 << 20))
        .subresource(console.idle_timeout(Duration::from_secs(3600)))
        .subresource(brief)
        .subresource(Subresource::new("view").connect(self::console).upgrades_without_create())
        .subresource(Subresource::new("proxy").proxy(proxy))
        .subresource(Subresource::new("may").get(may))
        .subresource(Subresource::new("trickle").get(trickle))
}

pub fn kinds(log: &Log) -> Kinds {
    Kinds::new().kind(machine(log))
}

async fn show(ParentKey(key): ParentKey, Parent(machine): Parent<Machine>) -> String {
    format!("{key} {}", machine.spec.image)
}

async fn start(
    Parent(machine): Parent<serde_json::Value>,
    caller: Caller,
    request: Request,
) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let sent = body.collect().await.map_err(Error::internal)?.to_bytes();
    let answer = json!({
        "image": machine["spec"]["image"],
        "version": machine["metadata"]["resourceVersion"],
        "user": caller.user().name,
        "method": head.method.as_str(),
        "sent": String::from_utf8_lossy(&sent),
    });
    Ok((StatusCode::ACCEPTED, answer.to_string()).into_response())
}

async fn fail(kind: String) -> Result<String, Response> {
    Err(match kind.as_str() {
        "text" => (StatusCode::CONFLICT, "it runs already").into_response(),
        "status" => Error::new(Reason::TooManyRequests, "slowly").into_response(),
        "json" => {
            (StatusCode::IM_A_TEAPOT, [("content-type", "application/json")], "{}").into_response()
        }
        "cluster" => {
            let status = kube::core::Status::failure("no such pod", "NotFound").with_code(404);
            Error::from(kube::Error::Api(status.boxed())).into_response()
        }
        "switch" => StatusCode::SWITCHING_PROTOCOLS.into_response(),
        "continue" => StatusCode::CONTINUE.into_response(),
        "hang" => std::future::pending().await,
        other => panic!("{other}"),
    })
}

/// The length of a body that is in memory as a whole.
async fn whole(body: Bytes) -> String {
    body.len().to_string()
}

/// The length of a body that is read as it arrives.
async fn upload(body: Body) -> Result<String, Error> {
    let mut length = 0;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        length += chunk.map_err(|error| Error::bad_request(error.to_string()))?.len();
    }
    Ok(length.to_string())
}

/// Returns each message to the client, until the request ends.
async fn console(upgrade: WebSocketUpgrade, ended: Ended) -> Response {
    let protocols = ["plain.example.com"];
    upgrade.protocols(protocols).on_upgrade(async move |mut socket: WebSocket| {
        loop {
            tokio::select! {
                message = socket.recv() => match message {
                    Some(Ok(Message::Text(text))) => drop(socket.send(Message::Text(text)).await),
                    Some(Ok(_)) => {}
                    _ => return,
                },
                () = ended.wait() => {
                    let close = CloseFrame { code: 1001, reason: "going away".into() };
                    let _ = socket.send(Message::Close(Some(close))).await;
                    // The library closes a connection whose handler stays.
                    return std::future::pending().await;
                }
            }
        }
    })
}

/// Describes the request that arrives.
async fn proxy(SubPath(path): SubPath, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let headers: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
    let answer = json!({
        "method": head.method.as_str(), "path": path, "query": head.uri.query(), "headers": headers,
    });
    match path.as_str() {
        "refused" => (StatusCode::BAD_GATEWAY, "as it is").into_response(),
        _ => answer.to_string().into_response(),
    }
}

/// Whether the user may delete the machine.
async fn may(caller: Caller) -> Result<String, Error> {
    let permission = ResourceAttributes {
        verb: Some("detonate".to_owned()),
        group: Some("example.com".to_owned()),
        resource: Some("machines".to_owned()),
        ..ResourceAttributes::default()
    };
    caller.may(&permission).await.map(|may| may.to_string())
}

/// A file that is forwarded: its length is known, and the rest of it never arrives.
async fn image() -> Body {
    let first = stream::once(async { Ok::<_, std::io::Error>(Frame::data(Bytes::from("first"))) });
    Body::new(Announced(StreamBody::new(first.chain(stream::pending()).boxed())))
}

/// A body with a known length.
struct Announced<B>(B);

impl<B: HttpBody + Unpin> HttpBody for Announced<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(1000)
    }
}

/// A response that panics while it is sent.
async fn broken() -> Body {
    let first = stream::once(async { Ok::<_, std::io::Error>("first\n") });
    let broken = stream::once(async { panic!("while it is sent") });
    Body::from_stream(first.chain(broken))
}

/// A response that does not end, of a subresource that is not long-running.
async fn trickle() -> Body {
    let first = stream::once(async { Ok::<_, std::io::Error>("first\n") });
    Body::from_stream(first.chain(stream::pending()))
}
