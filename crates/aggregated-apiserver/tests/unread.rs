//! Clients that send requests and do not read the responses. Their responses must not fill the memory, and other
//! clients must get responses meanwhile.
//!
//! This test is alone in its program, because it measures the memory of the process.

#![allow(clippy::unwrap_used)] // all of it is a test
#![cfg(target_os = "linux")] // where the kernel says it

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use test_cluster::Certificate;
use test_server::{ListeningServer, process_memory};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
/// The allowed growth of the process, in MiB, including the clients, which run in the same process.
const GROWTH: usize = 160;
/// The timeout for a response to an honest client.
const SOON: Duration = Duration::from_secs(60);
/// Each response is larger than the window of HTTP/2, and all together have a gigabyte.
const LARGE: usize = 200_000;
const CONNECTIONS: usize = 20;
const STREAMS: usize = 250;

fn foo(name: &str, length: usize) -> String {
    let text = "x".repeat(length);
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"{name}"}},"spec":{{"size":1,"text":"{text}"}}}}"#
    )
}

fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    let uri = format!("https://localhost{path}");
    Request::builder().method(method).uri(uri).body(body.into()).unwrap()
}

/// Sends a request of an honest client. Returns its status.
async fn honest(client: &mut http2::SendRequest<Body>) -> u16 {
    let asked = async {
        let response = client.send_request(request("GET", &format!("{FOOS}/large"), "")).await;
        let response = response.unwrap();
        let status = response.status().as_u16();
        assert!(response.into_body().collect().await.unwrap().to_bytes().len() > LARGE);
        status
    };
    timeout(SOON, asked).await.unwrap()
}

type Answers = JoinHandle<Vec<hyper::Result<Response<Incoming>>>>;

/// Sends many requests on many connections, and reads one byte of the responses.
async fn unread(
    server: &ListeningServer,
    certificate: &Certificate,
    make: impl Fn(usize) -> Request<Body>,
) -> Vec<(http2::SendRequest<Body>, Answers)> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1);
        let mut client = server.h2_with(Some(certificate), builder).await;
        let answers: Vec<_> =
            (0..STREAMS).map(|number| client.send_request(make(number))).collect();
        let answers = tokio::spawn(join_all(answers));
        connections.push((client, answers));
    }
    connections
}

async fn check(what: &str, make: impl Fn(usize) -> Request<Body>) {
    let server = ListeningServer::start_for_everybody().await;
    let path = server.files.path();
    let jane = server.files.authority.client(path, "jane", "jane", None).unwrap();
    let joe = server.files.authority.client(path, "joe", "joe", None).unwrap();
    let mut joe = server.h2(Some(&joe)).await;
    let created = joe.send_request(request("POST", FOOS, foo("large", LARGE))).await.unwrap();
    assert_eq!(created.status(), 201);
    drop(created);
    assert_eq!(honest(&mut joe).await, 200);
    let before = process_memory::begin();
    let held = unread(&server, &jane, make).await;
    for _ in 0..20 {
        assert_eq!(honest(&mut joe).await, 200, "{what}");
    }
    let grown = process_memory::most().saturating_sub(before);
    println!("{what}: {grown} MiB");
    assert!(grown < GROWTH, "{what}: {grown} MiB");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_of_unread_responses_is_limited_and_other_users_are_served() {
    // Shared between requests, so that the measured memory is the server's.
    let body = Bytes::from(foo("a", LARGE));
    check("creations on trial", |_| request("POST", &format!("{FOOS}?dryRun=All"), body.clone()))
        .await;
    check("large objects", |_| request("GET", &format!("{FOOS}/large"), "")).await;
    check("lists", |_| request("GET", FOOS, "")).await;
    check("watches", |_| request("GET", &format!("{FOOS}?watch=1"), "")).await;
    let long = "x".repeat(4_000);
    check("refusals", |_| request("GET", &format!("{FOOS}/{long}"), "")).await;
}
