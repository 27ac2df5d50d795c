//! The memory of responses that are sent while a handler makes them, such as logs that are followed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test
#![allow(dead_code, reason = "the kind has subresources that are tested elsewhere")]

#[path = "subresources/machine.rs"]
mod machine;

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::json;
use test_server::{admin, ask, server_of};

use machine::{Log, MACHINES, kinds};

/// The most that an open stream may use, in bytes, besides its connection.
const STREAM: usize = 16 << 10;

#[tokio::test]
async fn ten_thousand_logs_are_followed_in_little_memory() {
    const STREAMS: usize = 10_000;
    let server = server_of(kinds(&Log::default())).await;
    let machine = json!({
        "apiVersion": "example.com/v1", "kind": "Machine", "metadata": {"name": "a"},
        "spec": {"image": "debian"},
    });
    assert_eq!(ask(&server, Method::POST, MACHINES, &machine).await.0, 201);
    let follow = async || {
        let path = format!("{MACHINES}/a/log?follow=true&tailLines=1");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let mut body = server.respond(admin(), request).await.into_body();
        let line = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(line, "debian\n");
        body
    };
    let first = follow().await;
    let before = test_server::process_memory::begin();
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(follow().await);
    }
    let taken = test_server::process_memory::most().saturating_sub(before) << 20;
    assert!((STREAMS << 10..=STREAMS * STREAM).contains(&taken), "{} bytes each", taken / STREAMS);
    drop((first, streams));
}
