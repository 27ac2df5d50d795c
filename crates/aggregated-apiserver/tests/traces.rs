//! The spans of requests, as a collector receives them: OTLP over gRPC.

#![cfg(feature = "otlp")]
#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

mod otlp_collector;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::{InProcess, User};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use otlp_collector::{collector, collector_that_answers, collector_that_rejects, texts, tracing};
use test_server::{DEFINITION, admin};
use tokio::sync::{Semaphore, mpsc};

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
/// The timeout of a step, longer than any step takes.
const SOON: Duration = Duration::from_secs(30);

async fn server(folder: &Path, endpoint: SocketAddr, rate: u32) -> InProcess {
    test_server::traced_server(DEFINITION, &tracing(folder, endpoint, rate)).await
}

async fn ask(server: &InProcess, user: User, request: http::request::Builder) -> StatusCode {
    ask_with(server, user, request, Body::empty()).await
}

async fn ask_with(
    server: &InProcess,
    user: User,
    request: http::request::Builder,
    body: Body,
) -> StatusCode {
    let response = server.respond(user, request.body(body).unwrap()).await;
    let status = response.status();
    response.into_body().collect().await.unwrap();
    status
}

/// All spans that are sent until the server has stopped.
async fn spans(
    server: InProcess,
    mut sent: mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
    count: usize,
) -> Vec<Span> {
    drop(server);
    let mut spans = Vec::new();
    while spans.len() < count {
        let request = tokio::time::timeout(SOON, sent.recv()).await;
        let request = request.unwrap_or_else(|_| panic!("{} of {count} spans came", spans.len()));
        for of_resource in request.unwrap().resource_spans {
            let resource = texts(&of_resource.resource.unwrap().attributes);
            assert_eq!(resource["service.name"], "foos");
            assert!(!resource["service.instance.id"].is_empty());
            spans.extend(of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans));
        }
    }
    spans
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stranger() -> User {
    let groups = vec!["system:authenticated".to_owned()];
    User { name: "jane".to_owned(), groups, ..User::default() }
}

fn get(path: &str) -> http::request::Builder {
    Request::get(path).header("audit-id", "my-id").header("user-agent", "me/1")
}

#[tokio::test]
async fn a_request_continues_the_client_trace_with_a_span_for_each_step() {
    let folder = tempfile::tempdir().unwrap();
    let (address, sent) = collector().await;
    let server = server(folder.path(), address, 0).await;
    let create = Request::post(format!("{FOOS}?dryRun=All"))
        .header("content-type", "application/json")
        .header("audit-id", "my-id")
        .header("user-agent", "me/1")
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"));
    let foo = r#"{"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}}"#;
    assert_eq!(ask_with(&server, admin(), create, foo.into()).await, StatusCode::CREATED);
    // The client does not sample this trace.
    let header = format!("00-{TRACE}-{PARENT}-00");
    ask(&server, admin(), get(FOOS).header("traceparent", header)).await;
    let spans = spans(server, sent, 8).await;

    let (request, steps) = spans.split_first().unwrap();
    assert_eq!(request.name, "POST /apis/example.com/v1/namespaces/{:namespace}/foos");
    assert_eq!(request.kind, SpanKind::Server as i32);
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert!(request.links.is_empty());
    let said = texts(&request.attributes);
    for (name, value) in [
        ("audit-id", "my-id"),
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("http.target", &format!("{FOOS}?dryRun=All")),
        ("url.path", FOOS),
        ("url.scheme", "https"),
        ("user_agent.original", "me/1"),
        ("verb", "create"),
        ("api-group", "example.com"),
        ("api-version", "v1"),
        ("resource", "foos"),
        ("namespace", "default"),
    ] {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name}");
    }
    let names: Vec<&str> = steps.iter().map(|span| span.name.as_str()).collect();
    let expected = [
        "authentication",
        "authorization",
        "reading the body",
        "waiting for a place",
        "decoding",
        "answering",
        "sending",
    ];
    assert_eq!(names, expected);
    let mut until = request.start_time_unix_nano;
    for step in steps {
        assert_eq!((&step.trace_id, &step.parent_span_id), (&request.trace_id, &request.span_id));
        assert_eq!(step.kind, SpanKind::Internal as i32);
        assert_eq!(step.start_time_unix_nano, until, "{}", step.name);
        assert!(step.end_time_unix_nano >= step.start_time_unix_nano);
        until = step.end_time_unix_nano;
    }
    assert_eq!(until, request.end_time_unix_nano);
    let mut ids: Vec<&[u8]> = spans.iter().map(|span| span.span_id.as_slice()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), spans.len(), "each has a number of its own");
}

#[tokio::test]
async fn an_unprivileged_trace_context_becomes_a_link_and_invalid_ones_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (address, sent) = collector().await;
    let server = server(folder.path(), address, 1_000_000).await;
    let header = format!("00-{TRACE}-{PARENT}-01");
    // The user cannot be authorized, because the cluster is unreachable.
    ask(&server, stranger(), get(FOOS).header("traceparent", &header)).await;
    for hostile in
        ["", "00-00000000000000000000000000000000-0000000000000000-01", &"f".repeat(60_000)]
    {
        ask(&server, admin(), get("/nothing").header("traceparent", hostile)).await;
    }
    let monitoring = User { groups: vec!["system:monitoring".to_owned()], ..stranger() };
    ask(&server, monitoring, get("/apis").header("traceparent", &header)).await;
    let spans = spans(server, sent, 25).await;
    let requests: Vec<&Span> =
        spans.iter().filter(|span| span.kind == SpanKind::Server as i32).collect();
    let [linked, hostile @ .., monitoring] = &requests[..] else { panic!("{requests:?}") };
    assert!(hex(&linked.trace_id) != TRACE && linked.parent_span_id.is_empty());
    let [link] = &linked.links[..] else { panic!("{linked:?}") };
    assert_eq!((hex(&link.trace_id), hex(&link.span_id)), (TRACE.into(), PARENT.into()));
    assert_eq!(texts(&linked.attributes)["http.response.status_code"], "500");
    assert_eq!(linked.status.as_ref().unwrap().code, 2, "a fault of the server");
    assert_eq!(hostile.len(), 3);
    for request in hostile {
        assert!(request.links.is_empty() && request.parent_span_id.is_empty(), "{request:?}");
        assert_eq!(request.name, "GET");
    }
    assert_eq!(hex(&monitoring.trace_id), TRACE);
}

#[tokio::test]
async fn no_trace_is_sampled_at_a_rate_of_zero() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut sent) = collector().await;
    let server = server(folder.path(), address, 0).await;
    let header = format!("00-{TRACE}-{PARENT}-01");
    for _ in 0..20 {
        ask(&server, admin(), get(FOOS)).await;
        ask(&server, stranger(), get(FOOS).header("traceparent", &header)).await;
    }
    let metrics = metrics(&server).await;
    for result in ["exported", "dropped", "failed"] {
        let line = format!("apiserver_tracing_spans_total{{result=\"{result}\"}} 0");
        assert!(metrics.contains(&line), "{metrics}");
    }
    drop(server);
    // The exporter has ended without sending anything.
    assert!(tokio::time::timeout(Duration::from_millis(300), sent.recv()).await.is_err());
}

async fn metrics(server: &InProcess) -> String {
    let response = server.respond(admin(), get("/metrics").body(Body::empty()).unwrap()).await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The number of spans with this result.
async fn count(server: &InProcess, result: &str) -> u64 {
    let metrics = metrics(server).await;
    let line = format!("apiserver_tracing_spans_total{{result=\"{result}\"}} ");
    metrics.split_once(&line).unwrap().1.lines().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn spans_recorded_while_the_collector_is_slow_are_exported_later() {
    let folder = tempfile::tempdir().unwrap();
    let answers = Arc::new(Semaphore::new(0));
    let (address, mut sent) = collector_that_answers(0, Arc::clone(&answers)).await;
    let server = server(folder.path(), address, 1_000_000).await;
    // More spans than fit into one request.
    let mut asked = 0;
    let mut batch = async || {
        let request = tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap();
        let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        let spans = scopes.flat_map(|scope| &scope.spans);
        spans.filter(|span| span.kind == SpanKind::Server as i32).count()
    };
    while asked < 1_000 {
        ask(&server, stranger(), get("/apis")).await;
        asked += 1;
    }
    let first = batch().await;
    assert!((100..1_000).contains(&first), "{first}");
    for _ in 0..10 {
        ask(&server, stranger(), get("/apis")).await;
        asked += 1;
    }
    answers.add_permits(Semaphore::MAX_PERMITS / 2);
    // No further requests are sent.
    let mut came = first;
    while came < asked {
        came += batch().await;
    }
    assert_eq!(came, asked);
    assert_eq!(count(&server, "dropped").await, 0);
}

#[tokio::test]
async fn spans_rejected_by_the_collector_are_counted_as_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut sent) = collector_that_rejects(2).await;
    let server = server(folder.path(), address, 1_000_000).await;
    ask(&server, admin(), get(FOOS)).await;
    let request = sent.recv().await.unwrap();
    let spans: usize = request
        .resource_spans
        .iter()
        .flat_map(|resource| &resource.scope_spans)
        .map(|scope| scope.spans.len())
        .sum();
    let counted = async {
        while count(&server, "failed").await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, counted).await.unwrap();
    assert!(count(&server, "exported").await >= u64::try_from(spans).unwrap() - 2);
}

#[tokio::test]
async fn a_silent_collector_does_not_delay_requests_and_dropped_spans_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    // A collector that accepts connections and never responds.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = server(folder.path(), listener.local_addr().unwrap(), 1_000_000).await;
    let began = std::time::Instant::now();
    for _ in 0..8_000 {
        ask(&server, admin(), get(FOOS)).await;
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let dropped = count(&server, "dropped").await;
    assert!(dropped > 1_000, "{dropped}");
}
