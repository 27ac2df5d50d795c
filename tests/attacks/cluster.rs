//! A minimal cluster for the program: access reviews, and kinds without objects.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The existing namespaces.
const NAMESPACES: &[&str] = &["default", "meadow", "pasture"];
/// The delay of a late response.
const HANGS: Duration = Duration::from_secs(10);
const BODY_LIMIT: usize = 8 << 20;

/// A cluster that serves plain HTTP.
pub struct Cluster {
    pub address: SocketAddr,
    hangs: Arc<AtomicBool>,
}

impl Cluster {
    /// Starts the cluster on a thread of its own, so that attackers do not slow it down.
    pub fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let hangs = Arc::new(AtomicBool::new(false));
        let answered = Arc::clone(&hangs);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            let router = Router::new().fallback(move |request: Request| {
                let hangs = Arc::clone(&answered);
                async move { answer(request, &hangs).await }
            });
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener)?;
                axum::serve(listener, router).await
            })
        });
        Ok(Self { address, hangs })
    }

    /// From now on, reviews of all but honest users are answered late.
    pub fn hang(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }
}

async fn answer(request: Request, hangs: &AtomicBool) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
    let review = path.rsplit('/').next().is_some_and(|last| last.ends_with("reviews"));
    if review {
        let body = to_bytes(body, BODY_LIMIT).await.unwrap_or_default();
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let about = asked["spec"]["user"].as_str().or(asked["spec"]["token"].as_str());
        if hangs.load(Ordering::Relaxed) && !about.is_some_and(|about| about.starts_with("honest"))
        {
            tokio::time::sleep(HANGS).await;
        }
        return json(201, &judge(asked));
    }
    if is_watch {
        let nothing = futures::stream::pending::<Result<Bytes, Infallible>>().boxed();
        return Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from_stream(nothing))
            .unwrap_or_default();
    }
    let metadata = json!({"resourceVersion": "1"});
    let list = |api_version: &str, kind: &str, items: Vec<Value>| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items});
    let namespaces = NAMESPACES.iter().map(
        |name| json!({"metadata": {"name": name, "uid": name}, "status": {"phase": "Active"}}),
    );
    match path {
        "/api/v1/namespaces" => json(200, &list("v1", "NamespaceList", namespaces.collect())),
        "/api/v1/pods" => json(200, &list("v1", "PodList", Vec::new())),
        "/apis/apps/v1/replicasets" | "/apis/batch/v1/jobs" => {
            json(200, &list("meta.k8s.io/v1", "PartialObjectMetadataList", Vec::new()))
        }
        _ => json(
            404,
            &json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}),
        ),
    }
}

/// Honest users, eve and the crowd have tokens and are allowed to do everything; other users are allowed nothing.
fn judge(mut review: Value) -> Value {
    let is_known =
        |name: &str| name.starts_with("honest") || name.starts_with("user-") || name == "eve";
    let token = review["spec"]["token"].as_str().map(str::to_owned);
    review["status"] = match token {
        Some(token) => match token.strip_suffix("-token").filter(|name| is_known(name)) {
            Some(name) => json!({"authenticated": true, "user": {"username": name}}),
            None => json!({"authenticated": false}),
        },
        None => json!({"allowed": review["spec"]["user"].as_str().is_some_and(is_known)}),
    };
    review
}

fn json(status: u16, value: &Value) -> Response {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(value.to_string()))
        .unwrap_or_default()
}
