//! Responses that are sent while a handler makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregated_apiserver::InProcess;
use aggregated_apiserver::auth::{Authorizers, Decision, authorizer_fn};
use axum::body::Body;
use futures::StreamExt;
use http::{Method, Response};
use serde_json::Value;
use test_server::{admin, api_server, ask, server_of, unreachable_cluster, user};
use tokio::time::Instant;

use super::machine::{Log, MACHINES, kinds};
use super::{create, request, send, with_machine};

/// A server with its log.
async fn logging() -> (InProcess, Log) {
    let log = Log::default();
    (with_machine(server_of(kinds(&log)).await).await, log)
}

async fn follow(server: &InProcess) -> Response<Body> {
    server.respond(admin(), request("GET", "a/log?follow=true&tailLines=2", "")).await
}

/// Reads a body to its end. Returns its text, and whether it is complete.
async fn rest(response: Response<Body>) -> (String, bool) {
    let (mut text, mut is_complete) = (String::new(), true);
    let mut chunks = response.into_body().into_data_stream();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
            Err(_) => is_complete = false,
        }
    }
    (text, is_complete)
}

#[tokio::test]
async fn a_stream_is_read_to_its_end() {
    let (server, _) = logging().await;
    let (status, text) = send(&server, "GET", "a/log?tailLines=1000", "").await;
    assert_eq!((status.as_u16(), text.len()), (200, 7 * 1000));
}

#[tokio::test]
async fn a_handler_makes_no_more_than_the_client_reads() {
    let (server, log) = logging().await;
    let response = server.respond(admin(), request("GET", "a/log?follow=true", "")).await;
    let mut chunks = response.into_body().into_data_stream();
    for _ in 0..10 {
        chunks.next().await.unwrap().unwrap();
    }
    let made = log.0.load(Ordering::Relaxed);
    assert!(made <= 20, "{made} lines were made");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_object_is_deleted() {
    let (server, _) = logging().await;
    let mut lines = follow(&server).await.into_body().into_data_stream();
    for _ in 0..2 {
        assert_eq!(lines.next().await.unwrap().unwrap(), "debian\n");
    }
    let (status, _) = ask(&server, Method::DELETE, &format!("{MACHINES}/a"), &Value::Null).await;
    assert_eq!(status, 200);
    let began = Instant::now();
    assert!(lines.next().await.is_none());
    assert!(began.elapsed() < Duration::from_secs(60), "it has not waited for a timeout");
    // An object of the same name is another object.
    create(&server).await;
    let followed = follow(&server).await;
    ask(&server, Method::DELETE, &format!("{MACHINES}/a"), &Value::Null).await;
    create(&server).await;
    assert!(rest(followed).await.1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_user_loses_the_permission() {
    let (may, log) = (Arc::new(AtomicBool::new(true)), Log::default());
    let is_allowed = Arc::clone(&may);
    let authorizer = authorizer_fn(move |_, _| match is_allowed.load(Ordering::Relaxed) {
        true => Decision::allow(""),
        false => Decision::no_opinion(""),
    });
    let server = api_server(kinds(&log)).with_authorizers(Authorizers::new().with(authorizer));
    let server = with_machine(server.in_process(unreachable_cluster()).await.unwrap()).await;
    let path = "a/log?follow=true&tailLines=2";
    let followed = server.respond(user("jane"), request("GET", path, "")).await;
    assert_eq!(followed.status(), 200);
    may.store(false, Ordering::Relaxed);
    let began = Instant::now();
    assert!(rest(followed).await.1);
    let lasted = began.elapsed().as_secs();
    assert!((180..=360).contains(&lasted), "{lasted} s");
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_bytes_ends() {
    let (server, _) = logging().await;
    let began = Instant::now();
    assert!(rest(follow(&server).await).await.1);
    assert_eq!(began.elapsed().as_secs(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_an_ordinary_subresource_is_cut_at_the_request_timeout() {
    let (server, _) = logging().await;
    let began = Instant::now();
    let response = server.respond(admin(), request("GET", "a/trickle", "")).await;
    assert_eq!(rest(response).await, ("first\n".to_owned(), false));
    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_response_of_known_length_ends_like_a_stream_and_is_incomplete() {
    let (server, _) = logging().await;
    let response = server.respond(admin(), request("GET", "a/image", "")).await;
    assert_eq!(response.headers()["content-length"], "1000");
    ask(&server, Method::DELETE, &format!("{MACHINES}/a"), &Value::Null).await;
    // The client must not take the part for the whole.
    assert!(!rest(response).await.1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_stream_that_was_cut_gets_an_error() {
    let (server, _) = logging().await;
    let response = server.respond(admin(), request("GET", "a/trickle", "")).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!rest(response).await.1);
}

#[tokio::test]
async fn a_response_that_panics_fails_alone() {
    let (server, _) = logging().await;
    let response = server.respond(admin(), request("GET", "a/broken", "")).await;
    let read = tokio::spawn(rest(response)).await;
    assert!(read.is_err() || !read.unwrap().1);
    assert_eq!(send(&server, "GET", "a/log", "").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn an_unread_stream_frees_its_memory_at_its_end() {
    let (server, log) = logging().await;
    let unread = follow(&server).await;
    let before = Arc::strong_count(&log.0);
    ask(&server, Method::DELETE, &format!("{MACHINES}/a"), &Value::Null).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(Arc::strong_count(&log.0), before - 1);
    drop(unread);
}

#[tokio::test]
async fn streams_count_against_the_limit_of_watches() {
    let log = Log::default();
    let allowing = Authorizers::new().with(authorizer_fn(|_, _| Decision::allow("")));
    // The limit of watches follows from the memory.
    let server = api_server(kinds(&log)).with_authorizers(allowing).with_memory_limit(150 << 20);
    let server = with_machine(server.in_process(unreachable_cluster()).await.unwrap()).await;
    let path = "a/log?follow=true&tailLines=1";
    let mut open = Vec::new();
    let refused = loop {
        let response = server.respond(user("jane"), request("GET", path, "")).await;
        match response.status().as_u16() {
            200 => open.push(response),
            code => break code,
        }
        assert!(open.len() < 20_000, "there is no limit");
    };
    assert_eq!(refused, 429);
    let other = server.respond(user("joe"), request("GET", path, "")).await;
    assert_eq!(other.status(), 200, "another user has a part of the limit");
    open.truncate(open.len() - 2);
    let again = server.respond(user("jane"), request("GET", path, "")).await;
    assert_eq!(again.status(), 200);
}
