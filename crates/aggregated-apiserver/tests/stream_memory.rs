//! The costs of responses that are sent while a handler makes them, such as logs that are followed and proxies: the memory
//! of an open stream, and the copies of a forwarded byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test
#![allow(dead_code, reason = "the kind has subresources that are tested elsewhere")]

#[path = "subresources/machine.rs"]
mod machine;

use aggregated_apiserver::subresource::{Error, Subresource, forward};
use aggregated_apiserver::{ApiServer, InProcess, Kind, Kinds};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use test_cluster::ServerFiles;
use test_server::{ListeningServer, admin, ask, process_memory, server_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use machine::{Log, MACHINES, Machine, kinds};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The tests measure the process, so they run sequentially.
static TURN: Mutex<()> = Mutex::const_new(());

/// The number of open streams.
const STREAMS: usize = 10_000;
/// The most that an open stream may use, in bytes, besides its connection.
const STREAM: usize = 16 << 10;
/// The most that an open stream may use with its part of the connection, in bytes: over TLS and HTTP/2, together with its
/// client, which is in the same process.
const STREAM_OVER_TLS: usize = 40_000;
/// The largest number of streams of a connection.
const OF_CONNECTION: usize = 1_000;

fn machine_a() -> serde_json::Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Machine", "metadata": {"name": "a"},
        "spec": {"image": "debian"},
    })
}

#[tokio::test]
async fn ten_thousand_logs_are_followed_in_little_memory() {
    let _turn = TURN.lock().await;
    let server = server_of(kinds(&Log::default())).await;
    assert_eq!(ask(&server, Method::POST, MACHINES, &machine_a()).await.0, 201);
    let follow = async || {
        let path = format!("{MACHINES}/a/log?follow=true&tailLines=1");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let mut body = server.respond(admin(), request).await.into_body();
        let line = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(line, "debian\n");
        body
    };
    let first = follow().await;
    let before = process_memory::begin();
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(follow().await);
    }
    let taken = process_memory::most().saturating_sub(before) << 20;
    assert!((STREAMS << 10..=STREAMS * STREAM).contains(&taken), "{} bytes each", taken / STREAMS);
    drop((first, streams));
}

/// A request of an administrator, which the front proxy forwards.
fn forwarded(method: Method, path: &str, body: Body) -> Request {
    let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    let request =
        request.header("x-remote-user", "admin").header("content-type", "application/json");
    request.header("x-remote-group", "system:masters").body(body).unwrap()
}

#[tokio::test]
async fn ten_thousand_logs_are_followed_over_tls_in_little_memory() {
    let _turn = TURN.lock().await;
    let server = ApiServer::new("machines", kinds(&Log::default()));
    let server = Box::pin(ListeningServer::of(server, ServerFiles::NO_CLUSTER, |_| ())).await;
    let mut connections = Vec::new();
    for _ in 0..STREAMS.div_ceil(OF_CONNECTION) {
        connections.push(server.proxy().await);
    }
    let create = forwarded(Method::POST, MACHINES, Body::from(machine_a().to_string()));
    assert_eq!(connections[0].send_request(create).await.unwrap().status(), 201);
    let path = format!("{MACHINES}/a/log?follow=true&tailLines=1");
    let mut streams = Vec::new();
    let mut before = 0;
    for number in 0..=STREAMS {
        // The first stream is not counted, because it allocates what all of them share.
        if number == 1 {
            before = process_memory::begin();
        }
        let connection = &mut connections[number % (STREAMS / OF_CONNECTION)];
        connection.ready().await.unwrap();
        let follow = forwarded(Method::GET, &path, Body::empty());
        let mut body = connection.send_request(follow).await.unwrap().into_body();
        let line = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(line, "debian\n");
        streams.push(body);
    }
    let taken = process_memory::most().saturating_sub(before) << 20;
    println!("{} bytes for each stream and its client", taken / STREAMS);
    let expected = STREAMS << 10..=STREAMS * STREAM_OVER_TLS;
    assert!(expected.contains(&taken), "{} bytes each", taken / STREAMS);
    drop(streams);
}

/// The size of a chunk of the other server, in bytes.
const CHUNK: usize = 64 << 10;
/// The number of chunks of a response.
const CHUNKS: usize = 1_000;

/// Serves one response of many chunks, and allocates nothing for them.
async fn other_server() -> u16 {
    static BYTES: [u8; CHUNK] = [b'x'; CHUNK];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut head = [0; 4 << 10];
        assert!(connection.read(&mut head).await.unwrap() > 0);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", CHUNK * CHUNKS);
        connection.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..CHUNKS {
            connection.write_all(&BYTES).await.unwrap();
        }
    });
    port
}

async fn proxied(server: &InProcess) -> Body {
    let request = Request::get(format!("{MACHINES}/a/proxy/x")).body(Body::empty()).unwrap();
    let response = server.respond(admin(), request).await;
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// A copy would need memory for the copied bytes. The frames are parts of the buffer into which the bytes of the other
/// server are read, and the buffer is used again as soon as a frame has been sent.
#[tokio::test]
async fn a_forwarded_byte_is_not_copied_before_it_is_encrypted() {
    let _turn = TURN.lock().await;
    let port = other_server().await;
    let proxy = async move |request: Request| -> Result<Response, Error> {
        let connection =
            TcpStream::connect(("127.0.0.1", port)).await.map_err(Error::unavailable)?;
        forward(request, connection).await
    };
    let kind = Kind::stored::<Machine>().subresource(Subresource::new("proxy").proxy(proxy));
    let server = server_of(Kinds::new().kind(kind)).await;
    assert_eq!(ask(&server, Method::POST, MACHINES, &machine_a()).await.0, 201);
    let mut body = proxied(&server).await;
    let profiler = dhat::Profiler::builder().testing().build();
    let mut received = 0;
    let mut frames = 0;
    while let Some(frame) = body.frame().await {
        received += frame.unwrap().into_data().map_or(0, |data: Bytes| data.len());
        frames += 1;
    }
    let allocated = dhat::HeapStats::get();
    drop(profiler);
    assert!(received > CHUNK * CHUNKS / 2, "{received}");
    let of_byte = allocated.total_bytes as f64 / received as f64;
    let of_frame = allocated.total_blocks as f64 / f64::from(frames);
    println!(
        "{of_byte:.2} bytes are allocated for a byte, {of_frame:.1} blocks for a frame of {} bytes",
        received / frames as usize
    );
    assert!(of_byte < 0.5, "{of_byte:.2} bytes are allocated for a byte");
}
