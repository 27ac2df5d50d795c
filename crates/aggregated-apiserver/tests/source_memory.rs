//! The memory that the objects of a cluster can make this process use, however many and however large they are.
//!
//! This test is alone in its program, because it measures the memory of the process.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test
#![cfg(target_os = "linux")] // where the kernel says it

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::{ApiServer, Computed, InProcess, Kinds};
use axum::body::{Body, Bytes};
use futures::stream::{self, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PartialObjectMeta;
use kube::{Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

/// The allowed growth of the process, in MiB: the limit of one source, a page, and a margin.
const MOST: usize = 128;
const MANY: usize = 400;
const LARGE: usize = 1_200_000;
/// The maximum number of attempts, one per second.
const ATTEMPTS: usize = 600;

/// Computed from whole ReplicaSets.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Whole", namespaced)]
struct WholeSpec {
    annotations: usize,
}

impl Computed for Whole {
    type Source = ReplicaSet;
    type Related = ();

    fn compute(source: &ReplicaSet, (): &()) -> Option<Self> {
        let template = source.spec.as_ref()?.template.as_ref()?.metadata.as_ref()?;
        let annotations = template.annotations.as_ref()?.len();
        Some(Self::new(source.metadata.name.as_deref()?, WholeSpec { annotations }))
    }
}

/// Computed from the metadata of ReplicaSets.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Head", namespaced)]
struct HeadSpec {}

impl Computed for Head {
    type Source = PartialObjectMeta<ReplicaSet>;
    type Related = ();

    fn compute(source: &Self::Source, (): &()) -> Option<Self> {
        Some(Self::new(source.metadata.name.as_deref()?, HeadSpec {}))
    }
}

/// Computed from another kind.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Other", namespaced)]
struct OtherSpec {}

impl Computed for Other {
    type Source = ConfigMap;
    type Related = ();

    fn compute(_: &ConfigMap, (): &()) -> Option<Self> {
        None
    }
}

/// A cluster with a number of ReplicaSets. It serves whole objects or metadata, as requested.
#[derive(Clone)]
struct FakeCluster {
    state: Arc<Mutex<State>>,
    whole: Bytes,
    head: Bytes,
}

#[derive(Default)]
struct State {
    count: usize,
    /// The largest page size that was requested.
    largest_limit: usize,
    /// The watches of whole ReplicaSets.
    watchers: Vec<mpsc::UnboundedSender<Bytes>>,
}

impl FakeCluster {
    fn new(count: usize) -> Self {
        let large = "x".repeat(LARGE);
        let annotations = format!(r#"{{"a":"{large}"}}"#);
        let spec = format!(
            r#","spec":{{"selector":{{}},"template":{{"metadata":{{"annotations":{annotations}}}}}}}}}"#
        );
        // Each nested object becomes a map with a capacity of eleven entries.
        let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(100), "}".repeat(100));
        let fields = vec![format!(r#"{{"manager":"m","fieldsV1":{deep}}}"#); LARGE / 3_200];
        let fields = format!(r#","managedFields":[{}]}}"#, fields.join(","));
        let state = Arc::new(Mutex::new(State { count, ..State::default() }));
        Self { state, whole: format!("}}{spec}").into(), head: format!("{fields}}}").into() }
    }

    fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let answer = cluster.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn answer(&self, request: &Request<kube::client::Body>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default();
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let is_watch = parameter("watch").is_some();
        match request.uri().path() {
            "/apis/apps/v1/replicasets" if is_watch => {
                let (sender, receiver) = mpsc::unbounded_channel();
                let mut state = self.state.lock().unwrap();
                if !is_of_metadata(request) {
                    state.watchers.push(sender);
                }
                let lines = stream::unfold(receiver, async |mut receiver| {
                    let line: Bytes = receiver.recv().await?;
                    Some((Ok::<_, Infallible>(line), receiver))
                });
                Response::new(Body::from_stream(lines))
            }
            "/apis/apps/v1/replicasets" => {
                let limit = parameter("limit").unwrap().parse().unwrap();
                let from = parameter("continue").map_or(0, |from| from.parse().unwrap());
                self.page(is_of_metadata(request), from, limit)
            }
            "/api/v1/configmaps" if is_watch => {
                Response::new(Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()))
            }
            "/api/v1/configmaps" => {
                Response::new(Body::from(r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#))
            }
            _ => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        }
    }

    /// Generates a page while it is read, so that the measured memory is the server's.
    fn page(&self, is_of_metadata: bool, from: usize, limit: usize) -> Response<Body> {
        let mut state = self.state.lock().unwrap();
        state.largest_limit = state.largest_limit.max(limit);
        let end = (from + limit).min(state.count);
        let next = if end < state.count { end.to_string() } else { String::new() };
        let head =
            format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":["#);
        let rest = if is_of_metadata { self.head.clone() } else { self.whole.clone() };
        let items = stream::iter(from..end).flat_map(move |number| {
            let comma = if number > from { "," } else { "" };
            stream::iter([Bytes::from(format!("{comma}{}", begin(number))), rest.clone()])
        });
        let head = stream::iter([Bytes::from(head)]);
        let end = stream::iter([Bytes::from_static(b"]}")]);
        Response::new(Body::from_stream(head.chain(items).chain(end).map(Ok::<_, Infallible>)))
    }

    /// Sends one line of this length to every watch.
    fn send_long_event(&self, length: usize) {
        let state = self.state.lock().unwrap();
        for watcher in &state.watchers {
            let begin = format!(r#"{{"type":"MODIFIED","object":{}}},"x":""#, begin(0));
            let _ = watcher.send(begin.into());
            for _ in 0..length / self.whole.len() {
                let _ = watcher.send(self.whole.clone());
            }
            let _ = watcher.send(Bytes::from_static(b"\"}}\n"));
        }
    }

    fn set_count(&self, count: usize) {
        self.state.lock().unwrap().count = count;
    }
}

fn is_of_metadata(request: &Request<kube::client::Body>) -> bool {
    let accept = request.headers().get("accept");
    accept.is_some_and(|accept| accept.to_str().unwrap().contains("as=PartialObjectMetadata"))
}

fn begin(number: usize) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"default","name":"set-{number}","uid":"{number}","resourceVersion":"1""#
    )
}

async fn ask(server: &InProcess, path: &str) -> (StatusCode, Value) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = server.respond(test_server::admin(), request).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// Polls until the response has this status, and contains this text.
async fn wait_for(server: &InProcess, path: &str, expected: StatusCode, text: &str) -> Value {
    let mut last = (StatusCode::OK, Value::Null);
    for _ in 0..ATTEMPTS {
        last = ask(server, path).await;
        if last.0 == expected && last.1.to_string().contains(text) {
            return last.1;
        }
        // The paused clock advances only when all tasks wait.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{path} does not become {expected} {text}: {last:?}");
}

const WHOLES: &str = "/apis/example.com/v1/wholes";
const HEADS: &str = "/apis/example.com/v1/heads";

#[tokio::test(start_paused = true)]
async fn memory_is_limited_and_kinds_with_oversized_sources_get_503() {
    let cluster = FakeCluster::new(MANY);
    let before = test_server::process_memory::begin();
    let kinds = Kinds::new().computed::<Whole>().computed::<Head>().computed::<Other>();
    let server = ApiServer::new("wholes", kinds).in_process(cluster.client()).await.unwrap();
    let check = |what: &str| {
        let grown = test_server::process_memory::most().saturating_sub(before);
        println!("{what}: {grown} MiB");
        assert!(grown < MOST, "{what}: {grown} MiB");
    };

    let refused = StatusCode::SERVICE_UNAVAILABLE;
    let said = wait_for(&server, WHOLES, refused, "are not kept").await;
    assert_eq!(
        said["message"],
        "wholes.example.com are not served, because replicasets.apps are not kept: they take more than 64 MiB of memory"
    );
    assert_eq!(ask(&server, &format!("{WHOLES}?watch=true")).await.0, refused);
    check("more than is kept");
    // The other kinds are not affected.
    let heads = wait_for(&server, HEADS, StatusCode::OK, "").await;
    assert_eq!(heads["items"].as_array().unwrap().len(), MANY);
    wait_for(&server, "/apis/example.com/v1/others", StatusCode::OK, "").await;
    assert_eq!(ask(&server, "/apis/example.com/v1").await.0, StatusCode::OK);
    check("metadata with large managedFields");

    // The number of objects decreases.
    cluster.set_count(10);
    let wholes = wait_for(&server, WHOLES, StatusCode::OK, "set-9").await;
    assert_eq!(wholes["items"].as_array().unwrap().len(), 10);
    // Objects changed while there were too many.
    cluster.set_count(MANY);
    cluster.send_long_event(100 << 20);
    wait_for(&server, WHOLES, refused, "one of them is longer than 16 MiB").await;
    wait_for(&server, WHOLES, refused, "they take more than 64 MiB").await;
    check("a long event");
    cluster.set_count(5);
    let wholes = wait_for(&server, WHOLES, StatusCode::OK, "set-4").await;
    assert_eq!(wholes["items"].as_array().unwrap().len(), 5);
    check("less again");
    assert!(cluster.state.lock().unwrap().largest_limit <= 500);
}
