//! Ten thousand watches of one kind. Each receives the events that it selects, an event is encoded once for all
//! watches, and no task is woken for an event of others.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use aggregated_apiserver::{InProcess, User};
use axum::body::{Body, Bytes, HttpBody};
use futures::FutureExt;
use futures::future::{Either, select, select_all};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use test_server::DEFINITION;
use tokio::time::timeout;

const WATCHES: usize = 10_000;

struct Server(InProcess);

impl Server {
    async fn start() -> Self {
        Self(test_server::server(DEFINITION).await)
    }

    async fn ask(&self, method: &str, path: &str, body: String) -> Response<Body> {
        let uri = format!("/apis/example.com/v1{path}");
        let request = Request::builder().method(method).uri(uri).body(Body::from(body)).unwrap();
        self.0.respond(test_server::admin(), request).await
    }

    async fn watch(&self, path: &str) -> Body {
        let response = self.ask("GET", path, String::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    async fn create(&self, namespace: &str, name: &str) {
        let object = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"{name}"}}}}"#
        );
        let path = format!("/namespaces/{namespace}/foos");
        assert_eq!(self.ask("POST", &path, object).await.status(), StatusCode::CREATED);
    }
}

async fn frame(body: &mut Body) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_event_is_encoded_once_for_ten_thousand_watches() {
    let server = Server::start().await;
    let mut watches = Vec::new();
    for number in 0..WATCHES {
        let path = ["/foos?watch=true", "/namespaces/a/foos?watch=true"][number % 2];
        watches.push(server.watch(path).await);
    }
    let mut others = Vec::new();
    for path in ["/namespaces/b/foos?watch=true", "/watch/namespaces/a/foos/other"] {
        others.push(server.watch(path).await);
    }
    for name in ["x", "y"] {
        server.create("a", name).await;
        let first = frame(&mut watches[0]).await;
        assert!(first.starts_with(br#"{"type":"ADDED","object":{"#) && first.ends_with(b"}\n"));
        for watch in &mut watches[1..] {
            let event = frame(watch).await;
            // The watches share the same bytes in memory, not equal copies.
            assert_eq!((event.as_ptr(), event.len()), (first.as_ptr(), first.len()));
        }
    }
    for watch in watches.iter_mut().chain(&mut others) {
        assert!(watch.frame().now_or_never().is_none(), "more than what happened");
    }
}

#[tokio::test]
async fn watches_are_not_woken_by_events_outside_their_selection() {
    let server = Server::start().await;
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut watches = Vec::new();
    for number in 0..1_000 {
        let path = match number % 2 {
            0 => "/namespaces/quiet/foos?watch=true",
            _ => "/foos?watch=true&fieldSelector=metadata.name%3Dfoo,metadata.namespace%3Dbusy",
        };
        let mut watch = server.watch(path).await;
        let polled = Pin::new(&mut watch).poll_frame(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        watches.push(watch);
    }
    for number in 0..100 {
        server.create("busy", &format!("x-{number}")).await;
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    // The tasks are woken for their own events.
    server.create("busy", "foo").await;
    assert_eq!(count.0.load(Ordering::SeqCst), 500);
    server.create("quiet", "x").await;
    assert_eq!(count.0.load(Ordering::SeqCst), 1_000);
}

/// A watch that is not read costs nothing per event. Its missed events are in the window that all watches share. When
/// they leave the window, the watch ends with an error.
#[tokio::test]
async fn a_watch_that_falls_behind_ends_with_410() {
    let server = Server::start().await;
    let mut slow = server.watch("/foos?watch=true").await;
    server.create("a", "first").await;
    frame(&mut slow).await;
    // More bytes than the window holds.
    let filler = "x".repeat(1 << 20);
    for number in 0..20 {
        let object = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"n-{number}"}},"filler":"{filler}"}}"#
        );
        let created = server.ask("POST", "/namespaces/a/foos", object).await;
        assert_eq!(created.status(), StatusCode::CREATED);
    }
    let told = frame(&mut slow).await;
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!((&told["type"], &told["object"]["code"]), (&"ERROR".into(), &410.into()));
    assert!(slow.frame().await.is_none(), "then it ends");
}

/// A request that waits for a future revision does not block other reads, even of the same user.
#[tokio::test(start_paused = true)]
async fn lists_waiting_for_a_revision_use_no_request_slots() {
    let server = test_server::server_of_all(DEFINITION).await;
    let get = async |query: &str| {
        let jane = User { name: "jane".to_owned(), ..User::default() };
        let request = Request::get(format!("/apis/example.com/v1/foos?{query}"));
        server.respond(jane, request.body(Body::empty()).unwrap()).await
    };
    let list = get("").await.into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&list).unwrap();
    let now: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let later = format!("resourceVersionMatch=NotOlderThan&resourceVersion={}", now + (1 << 40));
    let mut waiting = select_all((0..1_000).map(|_| Box::pin(get(&later))));
    // The paused clock advances as soon as all tasks wait for it.
    assert!(timeout(Duration::from_secs(1), &mut waiting).await.is_err());
    match select(Box::pin(get("")), waiting).await {
        Either::Left((read, _)) => assert_eq!(read.status(), StatusCode::OK),
        Either::Right(_) => panic!("she is answered when the others are"),
    }
}
