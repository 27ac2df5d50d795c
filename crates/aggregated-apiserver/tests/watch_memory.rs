//! The memory of a watch: the amount that `request/throttle` accounts, whatever happens while its client does not read.

#![allow(clippy::unwrap_used)] // all of it is a test

use aggregated_apiserver::InProcess;
use axum::body::Body;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use test_server::DEFINITION;

/// The amount that `request/throttle` accounts for a watch, plus a quarter, because futures are larger in a test build.
const WATCH: usize = 4_608 * 5 / 4;

async fn ask(server: &InProcess, method: &str, path: &str, body: String) -> Response<Body> {
    let uri = format!("/apis/example.com/v1/namespaces/a/foos{path}");
    let request = Request::builder().method(method).uri(uri).header("user-agent", "me/1.0");
    server.respond(test_server::admin(), request.body(Body::from(body)).unwrap()).await
}

async fn watch(server: &InProcess) -> Body {
    let response = ask(server, "GET", "?watch=true", String::new()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let frame = body.frame().now_or_never();
    assert!(frame.is_none(), "{frame:?}");
    body
}

async fn put(server: &InProcess, filler: usize) {
    let filler = "x".repeat(filler);
    let object = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"generateName":"a"}},"filler":"{filler}"}}"#
    );
    let created = ask(server, "POST", "", object).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    created.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn a_watch_uses_at_most_its_accounted_memory_and_holds_no_unread_events() {
    const WATCHES: usize = 10_000;
    let server = test_server::server(DEFINITION).await;
    let mut slow = watch(&server).await;
    let before = test_server::process_memory::begin();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        watches.push(watch(&server).await);
    }
    let taken = test_server::process_memory::most().saturating_sub(before) << 20;
    assert!((WATCHES << 10..=WATCHES * WATCH).contains(&taken), "{} bytes each", taken / WATCHES);
    drop(watches);
    // The watch reads one change, and could read the next one with it.
    for _ in 0..2 {
        put(&server, 1 << 10).await;
    }
    slow.frame().await.unwrap().unwrap();
    // Then the change no longer fits into the recent history.
    for _ in 0..20 {
        put(&server, 1 << 20).await;
    }
    let told = slow.frame().await.unwrap().unwrap().into_data().unwrap();
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!((&told["type"], &told["object"]["code"]), (&"ERROR".into(), &410.into()));
}
