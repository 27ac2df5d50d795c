//! Many connections: a client that uses up the connection slots must not exclude other clients.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::time::Duration;

use axum::body::Body;
use futures::stream::{self, StreamExt};
use http::Request;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use test_server::ListeningServer;
use tokio::net::TcpStream;
use tokio::time::{advance, pause, resume, timeout};

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
/// More connections than there are slots, and more than may complete their handshake without a slot.
const MANY: usize = 2_000;
/// The timeout for the response to an honest client, on a machine that runs other programs too.
const SOON: Duration = Duration::from_secs(60);

fn get(path: &str) -> Request<Body> {
    Request::get(format!("https://localhost{path}")).body(Body::empty()).unwrap()
}

async fn status(client: &mut http2::SendRequest<Body>, path: &str) -> u16 {
    client.ready().await.unwrap();
    client.send_request(get(path)).await.unwrap().status().as_u16()
}

/// Sends a probe on a new connection.
async fn probe(server: &ListeningServer) -> u16 {
    let asked = async { status(&mut server.h2(None).await, "/readyz").await };
    timeout(SOON, asked).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_block_health_probes() {
    let server = ListeningServer::start().await;
    let mut silent = Vec::new();
    for _ in 0..MANY {
        silent.push(TcpStream::connect(server.running.address()).await.unwrap());
    }
    assert_eq!(probe(&server).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_are_evicted_before_authenticated_ones() {
    let server = ListeningServer::start().await;
    let path = server.files.path();
    let jane = server.files.authority.client(path, "jane", "jane", None).unwrap();
    let mut jane = server.h2(Some(&jane)).await;
    let mut proxy = server.proxy().await;
    // The cluster is unreachable, so jane is not authorized, but she is authenticated.
    assert_eq!(status(&mut jane, "/apis/example.com/v1/foos").await, 500);
    let mut strangers = Vec::new();
    for _ in 0..MANY {
        strangers.push(server.connect("h2", None).await);
    }
    assert_eq!(probe(&server).await, 200);
    assert_eq!(status(&mut jane, "/apis/example.com/v1/foos").await, 500);
    assert_eq!(status(&mut proxy, "/livez").await, 200);
    assert_eq!(status(&mut server.proxy().await, "/livez").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_use_all_connection_slots() {
    let server = ListeningServer::start().await;
    let path = server.files.path();
    let jane = server.files.authority.client(path, "jane", "jane", None).unwrap();
    let mut connections = Vec::new();
    for _ in 0..MANY {
        // All of these connections are jane's, with her client certificate.
        connections.push(server.connect_from([127, 0, 0, 2].into(), Some(&jane)).await);
    }
    assert_eq!(probe(&server).await, 200);
    assert_eq!(status(&mut server.proxy().await, "/livez").await, 200);
}

/// The number of served connections of one address, which is less than the number that it opens.
const SERVED: usize = 1_005;
const REFUSED: usize = 60;

/// A client opens more connections than one address may have, each with a long-running request.
#[tokio::test(flavor = "multi_thread")]
async fn requests_over_the_limit_get_429_and_requests_in_flight_continue() {
    let server = ListeningServer::start_for_everybody().await;
    let address = [127, 0, 0, 2].into();
    let path = server.files.path();
    let jane = server.files.authority.client(path, "jane", "jane", None).unwrap();
    let open = async || {
        let stream = server.connect_from(address, Some(&jane)).await;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(get(&format!("{FOOS}?watch=1"))).await.unwrap();
        (sender, response)
    };
    let opened = stream::iter((0..SERVED + REFUSED).map(|_| open())).buffer_unordered(64);
    let opened: Vec<_> = opened.collect().await;
    let (mut served, refused): (Vec<_>, Vec<_>) =
        opened.into_iter().partition(|(_, response)| response.status() == 200);
    assert_eq!((served.len(), refused.len()), (SERVED, REFUSED));
    for (_, response) in &refused {
        assert_eq!(
            (response.status().as_u16(), &response.headers()[RETRY_AFTER]),
            (429, &"1".parse().unwrap())
        );
    }
    // Health probes from the same address, other addresses and the front proxy get responses.
    let stream = server.connect_from(address, None).await;
    let (mut probe_there, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(status(&mut probe_there, "/readyz").await, 200);
    assert_eq!(probe(&server).await, 200);
    let created = server.proxy().await.send_request(of("joe", "POST", FOOS, foo("a", 10))).await;
    assert_eq!(created.unwrap().status(), 201);
    for (_, response) in &mut served {
        let event = timeout(SOON, response.body_mut().frame()).await.unwrap().unwrap().unwrap();
        assert!(event.into_data().unwrap().starts_with(b"{\"type\":\"ADDED\""));
    }
}

/// A request of a user, as the front proxy sends it.
fn of(user: &str, method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    request.header("x-remote-user", user).body(body.into()).unwrap()
}

fn foo(name: &str, length: usize) -> String {
    let text = "x".repeat(length);
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"{name}"}},"spec":{{"size":1,"text":"{text}"}}}}"#
    )
}

/// A create request whose body never ends.
fn unfinished(user: &str) -> Request<Body> {
    let body = foo("a", 1_000);
    let length = body.len() + 1;
    let begin = stream::iter([Ok::<_, String>(body)]);
    let body = Body::from_stream(begin.chain(stream::pending()));
    let mut request = of(user, "POST", FOOS, body);
    request.headers_mut().insert(CONTENT_LENGTH, length.into());
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_request_bodies_do_not_block_other_requests_of_the_connection() {
    let server = ListeningServer::start_for_everybody().await;
    let mut proxy = server.proxy().await;
    let unread: Vec<_> = (0..100)
        .map(|number| {
            of(test_server::UNKNOWN, "POST", &format!("{FOOS}?a={number}"), foo("a", 1 << 20))
        })
        .map(|request| tokio::spawn(proxy.send_request(request)))
        .collect();
    // By now the unfinished requests have progressed as far as they can.
    assert_eq!(proxy.send_request(of("jane", "GET", FOOS, "")).await.unwrap().status(), 200);
    let created = proxy.send_request(of("jane", "POST", FOOS, foo("b", 100_000))).await.unwrap();
    assert_eq!(created.status(), 201);
    assert!(unread.iter().all(|request| !request.is_finished()), "nobody knows whether they may");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_do_not_block_writes_of_other_users() {
    let server = ListeningServer::start_for_everybody().await;
    let mut proxy = server.proxy().await;
    // More unfinished writes of a few users than there are write permits.
    let slow: Vec<_> = (0..300)
        .map(|number| unfinished(&format!("slow-{}", number % 6)))
        .map(|request| tokio::spawn(proxy.send_request(request)))
        .collect();
    for name in ["b", "c"] {
        let created = proxy.send_request(of("jane", "POST", FOOS, foo(name, 100_000))).await;
        assert_eq!(created.unwrap().status(), 201);
    }
    assert!(slow.iter().all(|request| !request.is_finished()), "they are waited for");
}

/// The response to eve is a little larger than the stream window, and eve does not read it.
#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_of_one_user_do_not_close_a_shared_connection() {
    const LARGE: u32 = 1 << 20;
    let server = ListeningServer::start_for_everybody().await;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_connection_window_size(1 << 30).initial_stream_window_size(LARGE + 10);
    let mut proxy = server.h2_with(Some(&server.files.front_proxy), builder).await;
    let watch = of("jane", "GET", &format!("{FOOS}?watch=1"), "");
    let mut watch = proxy.send_request(watch).await.unwrap().into_body();
    let created =
        proxy.send_request(of("jane", "POST", FOOS, foo("large", LARGE as usize))).await.unwrap();
    assert_eq!(created.status(), 201);
    let mut unread = Vec::new();
    // The per-user limit of unread responses, and as much again.
    for _ in 0..20 {
        let get = of("eve", "GET", &format!("{FOOS}/large"), "");
        unread.push(timeout(SOON, proxy.send_request(get)).await.unwrap().unwrap());
    }
    let created = proxy.send_request(of("jane", "POST", FOOS, foo("small", 1))).await.unwrap();
    assert_eq!(created.status(), 201);
    for _ in ["large", "small"] {
        let mut event = Vec::new();
        while !event.ends_with(b"\n") {
            let frame = timeout(SOON, watch.frame()).await.unwrap().unwrap().unwrap();
            event.extend(frame.into_data().unwrap());
        }
        assert!(event.starts_with(b"{\"type\":\"ADDED\""));
    }
    let mut broken = 0;
    for answer in unread {
        broken += usize::from(answer.into_body().collect().await.is_err());
    }
    assert!(broken > 0, "some of hers had to give way");
}

/// The test runs on one thread, so that the clock can be advanced.
#[tokio::test]
async fn front_proxy_connections_are_renewed_and_their_watches_continue() {
    let server = ListeningServer::start().await;
    let path = server.files.path();
    let jane = server.files.authority.client(path, "jane", "jane", None).unwrap();
    let (mut jane, mut old) = (server.h2(Some(&jane)).await, server.proxy().await);
    // The server has read everything that jane has sent, so that the read timeout does not expire later.
    assert_eq!(status(&mut jane, "/livez").await, 200);
    let master = |method: &str, path: &str, body: &'static str| {
        let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        let request = request.header("x-remote-user", "admin");
        request.header("x-remote-group", "system:masters").body(Body::from(body)).unwrap()
    };
    let foos = "/apis/example.com/v1/namespaces/default/foos";
    let watch = master("GET", &format!("{foos}?watch=1&timeoutSeconds=3000"), "");
    let mut watch = old.send_request(watch).await.unwrap().into_body();
    assert_eq!(status(&mut old, "/livez").await, 200);
    pause();
    advance(Duration::from_secs(20 * 60)).await;
    resume();
    // Requests during the change of connections get a response, or can be sent again.
    let renewed = async { while old.send_request(get("/livez")).await.is_ok() {} };
    timeout(SOON, renewed).await.unwrap();
    assert_eq!(status(&mut jane, "/livez").await, 200, "she has one connection for good");
    let foo =
        r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"},"spec":{"size":1}}"#;
    let created = server.proxy().await.send_request(master("POST", foos, foo)).await.unwrap();
    assert_eq!(created.status(), 201);
    let event = timeout(SOON, watch.frame()).await.unwrap().unwrap().unwrap();
    assert!(event.into_data().unwrap().starts_with(b"{\"type\":\"ADDED\""));
}
