//! The server on its socket: TLS, both versions of HTTP, health, limits and draining. The cluster is unreachable in
//! these tests, which must not matter.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::future::join_all;
use futures::{SinkExt, StreamExt};
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use test_cluster::Authority;
use test_server::ListeningServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const FOO: &str =
    r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"},"spec":{"size":1}}"#;

/// A request of a user in this group, as the front proxy sends it.
fn request(
    method: &str,
    path: &str,
    user: &str,
    group: &str,
    body: impl Into<Body>,
) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("x-remote-user", user)
        .header("x-remote-group", group)
        .body(body.into())
        .unwrap()
}

fn master(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    request(method, path, "admin", "system:masters", body)
}

/// Checks that a watch ends without an error and without another event.
async fn ends_cleanly(body: Incoming) {
    assert_eq!(body.collect().await.unwrap().to_bytes(), "");
}

async fn text(response: Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_discovery_need_no_cluster() {
    let server = ListeningServer::start().await;
    let mut nobody = server.h2(None).await;
    let get = |path: &str| Request::get(format!("https://localhost{path}")).body(Body::empty());
    for endpoint in ["/livez", "/healthz", "/readyz"] {
        let answer = text(nobody.send_request(get(endpoint).unwrap()).await.unwrap()).await;
        assert_eq!(answer, (200, "ok".to_owned()), "{endpoint}");
    }
    let verbose = get("/readyz?verbose").unwrap();
    let (_, verbose) = text(nobody.send_request(verbose).await.unwrap()).await;
    assert!(verbose.ends_with("readyz check passed\n"), "{verbose}");
    let (status, version) =
        text(nobody.send_request(get("/version").unwrap()).await.unwrap()).await;
    assert!(status == 200 && version.contains("gitVersion"), "{version}");
    // Detailed responses require a permission, and the cluster that would decide it is unreachable.
    let (status, one) =
        text(nobody.send_request(get("/readyz/ping").unwrap()).await.unwrap()).await;
    assert!(status == 500 && one.contains("did not respond to a SubjectAccessReview"), "{one}");

    let mut proxy = server.proxy().await;
    for path in ["/apis", "/apis/example.com/v1", "/openapi/v2", "/openapi/v3", FOOS] {
        let asked = request("GET", path, "system:kube-aggregator", "system:masters", "");
        let (status, body) = text(proxy.send_request(asked).await.unwrap()).await;
        assert_eq!(status, 200, "{path}: {body}");
    }
    let jane = request("GET", FOOS, "jane", "dev", "");
    let (status, body) = text(proxy.send_request(jane).await.unwrap()).await;
    assert_eq!(status, 500, "nobody knows, so nobody may: {body}");
    assert!(body.contains("User \\\"jane\\\" cannot list resource \\\"foos\\\""), "{body}");
}

/// kube-apiserver proxies requests for registered versions. The server does not respond with 404 to a request that
/// another replica may serve.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_kinds_and_versions_get_503_behind_the_aggregator() {
    const NEXT: &str = "/apis/example.com/v2/namespaces/default/foos/a";
    const NEW_KIND: &str = "/apis/example.com/v1/namespaces/default/bars/a";
    let server = ListeningServer::start().await;
    let mut proxy = server.proxy().await;
    for (path, what) in [(NEXT, "foos of example.com/v2"), (NEW_KIND, "bars of example.com/v1")] {
        for method in ["GET", "DELETE", "POST"] {
            let answer = proxy.send_request(master(method, path, "")).await.unwrap();
            assert!(!answer.headers().contains_key("retry-after"));
            let (status, body) = text(answer).await;
            assert_eq!(status, 503, "{method} {path}: {body}");
            assert!(body.contains(&format!("this replica does not serve {what}")), "{body}");
        }
    }
    // A missing version and a missing subresource are reported as not found.
    for path in ["/apis/example.com/v2", "/apis/example.com/v1/namespaces/default/foos/a/bars"] {
        let (status, body) = text(proxy.send_request(master("GET", path, "")).await.unwrap()).await;
        assert_eq!(status, 404, "{path}: {body}");
    }
    // Clients that connect directly do not depend on a registration.
    let server = ListeningServer::with_flags(|flags| {
        flags.client_ca_file.clone_from(&flags.requestheader_client_ca_file);
        flags.requestheader_client_ca_file = None;
    })
    .await;
    let mut direct = server.proxy().await;
    for path in [NEXT, NEW_KIND] {
        let asked = Request::get(format!("https://localhost{path}")).body(Body::empty()).unwrap();
        let (status, body) = text(direct.send_request(asked).await.unwrap()).await;
        assert_ne!(status, 503, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_is_spoken_too() {
    let server = ListeningServer::start().await;
    let stream = server.connect("http/1.1", Some(&server.files.front_proxy)).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut watch = master("GET", &format!("{FOOS}?watch=true"), Body::empty());
    *watch.uri_mut() = format!("{FOOS}?watch=true").parse().unwrap();
    let response = sender.send_request(watch).await.unwrap();
    assert_eq!(response.status(), 200, "its head comes before any event");
    let mut events = response.into_body();
    let mut proxy = server.proxy().await;
    let created = proxy.send_request(master("POST", FOOS, FOO)).await.unwrap();
    assert_eq!(created.status(), StatusCode::CREATED);
    let event = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(event.starts_with(b"{\"type\":\"ADDED\""));
    server.running.drain(Duration::ZERO).await;
    ends_cleanly(events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_carries_a_thousand_watches() {
    const WATCHES: usize = 1_000;
    let server = ListeningServer::start().await;
    let proxy = server.proxy().await;
    let watch = || async {
        let path = format!("{FOOS}?watch=true");
        proxy.clone().send_request(master("GET", &path, Body::empty())).await.unwrap()
    };
    let watches = join_all((0..WATCHES).map(|_| watch())).await;
    assert!(watches.iter().all(|response| response.status() == 200));
    // A stream remains available for requests that need an immediate response.
    let discovery = master("GET", "/apis/example.com/v1", Body::empty());
    let discovered = proxy.clone().send_request(discovery);
    let discovered = timeout(Duration::from_secs(60), discovered).await;
    let discovered = discovered.expect("discovery waits for a watch to end").unwrap();
    assert_eq!(text(discovered).await.0, 200);
    let created = proxy.clone().send_request(master("POST", FOOS, FOO)).await.unwrap();
    assert_eq!(created.status(), StatusCode::CREATED);
    let events = watches.into_iter().map(|response| async {
        let mut body = response.into_body();
        let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
        (event, body)
    });
    let events = join_all(events).await;
    assert!(events.iter().all(|(event, _)| *event == events[0].0));
    server.running.drain(Duration::ZERO).await;
    for (_, body) in events {
        ends_cleanly(body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_work_over_websockets() {
    let server = ListeningServer::start().await;
    let stream = server.connect("http/1.1", Some(&server.files.front_proxy)).await;
    let mut watch = format!("wss://localhost{FOOS}?watch=true").into_client_request().unwrap();
    let headers = watch.headers_mut();
    headers.insert("x-remote-user", "admin".parse().unwrap());
    headers.insert("x-remote-group", "system:masters".parse().unwrap());
    let protocols = "base64url.bearer.authorization.k8s.io.eA, base64.binary.k8s.io";
    headers.insert("sec-websocket-protocol", protocols.parse().unwrap());
    let (mut socket, response) = client_async(watch, stream).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "base64.binary.k8s.io");
    let proxy = server.proxy().await;
    for name in ["a", "b"] {
        let foo = FOO.replace("\"a\"", &format!("{name:?}"));
        let (status, _) =
            text(proxy.clone().send_request(master("POST", FOOS, foo)).await.unwrap()).await;
        assert_eq!(status, 201);
        let Message::Text(event) = socket.next().await.unwrap().unwrap() else {
            panic!("an event is a text")
        };
        let event: serde_json::Value = serde_json::from_str(&event).unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&"ADDED".into(), &name.into())
        );
    }
    // The server responds to a ping, and sends a close message when it shuts down.
    socket.send(Message::Ping("hello".into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("hello".into()));
    let drained = tokio::spawn(server.running.drain(Duration::ZERO));
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    drop(socket);
    drained.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded() {
    let server = ListeningServer::start().await;
    let proxy = server.proxy().await;
    let post = |body: Vec<u8>| async {
        text(proxy.clone().send_request(master("POST", FOOS, body)).await.unwrap()).await
    };
    let (status, body) = post(vec![b' '; (3 << 20) + 1]).await;
    assert!(status == 413 && body.contains("Request entity too large: limit is 3145728"), "{body}");
    let large = FOO.replace(
        "\"name\":\"a\"",
        &format!("\"name\":\"a\",\"annotations\":{{\"a\":\"{}\"}}", "x".repeat(2 << 20)),
    );
    let (status, body) = post(large.into_bytes()).await;
    assert!(status == 422 && body.contains("metadata.annotations: Too long"), "{body}");
    let deep = "[".repeat(100_000);
    for (hostile, expected) in [
        (deep.as_bytes(), "nests deeper than 127 levels"),
        (&b"\xff"[..], "json parse error"),
        (&b"{\"a\":1e400}"[..], "number out of range"),
    ] {
        let (status, body) = post(hostile.to_vec()).await;
        assert!(status == 400 && body.contains(expected), "{status} {body:.200}");
    }
    let path = format!("{FOOS}/a");
    let delete = master("DELETE", &path, vec![b' '; (3 << 20) + 1]);
    let (status, _) = text(proxy.clone().send_request(delete).await.unwrap()).await;
    assert_eq!(status, 413);
    let (status, _) = post(FOO.as_bytes().to_vec()).await;
    assert_eq!(status, 201, "nothing has suffered");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let server = ListeningServer::start().await;
    let mut proxy = server.proxy().await;
    let of_groups = |count: usize| {
        let mut request = master("GET", FOOS, Body::empty());
        for number in 0..count {
            let group = format!("a-group-with-a-name-as-long-as-usual-{number:04}");
            request.headers_mut().append("x-remote-group", group.parse().unwrap());
        }
        request
    };
    for (count, expected) in [(1_900, 200), (10_000, 200), (24_000, 431)] {
        let response = proxy.send_request(of_groups(count)).await.unwrap();
        assert_eq!(text(response).await.0, expected, "{count} groups");
    }
    // The connection carries the watches of others, so it stays open.
    let long = master("GET", &format!("{FOOS}/{}", "x".repeat(9_000)), "");
    assert_eq!(text(proxy.send_request(long).await.unwrap()).await.0, 414);
    assert_eq!(text(proxy.send_request(of_groups(1)).await.unwrap()).await.0, 200);
    // A client other than the front proxy sends requests of one user only.
    let path = server.files.path();
    let jane = server.files.authority.client(path, "jane", "jane", None).unwrap();
    for (certificate, fits, is_too_much) in [(Some(&jane), 300, 500), (None, 300, 500)] {
        let mut client = server.h2(certificate).await;
        for (count, is_refused) in [(fits, false), (is_too_much, true)] {
            let status = client.send_request(of_groups(count)).await.unwrap().status();
            assert_eq!(status == 431, is_refused, "{count} groups: {status}");
        }
    }
    let one = "x".repeat(10_000);
    for (certificate, count, expected) in [
        (Some(&server.files.front_proxy), 150, "200"),
        (Some(&server.files.front_proxy), 300, "431"),
        (Some(&jane), 4, "431"),
        (None, 4, "431"),
    ] {
        let mut stream = server.connect("http/1.1", certificate).await;
        let mut head = format!(
            "GET {FOOS} HTTP/1.1\r\nhost: localhost\r\nx-remote-user: admin\r\nx-remote-group: system:masters\r\n"
        );
        for number in 0..count {
            head.push_str(&format!("x-{number}: {one}\r\n"));
        }
        head.push_str("\r\n");
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = vec![0; 1_000];
        let length = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{answer}");
    }
}

/// The client sends the whole body before it reads the response, as many clients do.
#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_body_gets_413_and_the_connection_stays_usable() {
    let server = ListeningServer::start().await;
    let mut stream = server.connect("http/1.1", Some(&server.files.front_proxy)).await;
    let size = 8 << 20;
    let head = format!(
        "POST {FOOS} HTTP/1.1\r\nhost: localhost\r\nx-remote-user: admin\r\nx-remote-group: system:masters\r\ncontent-length: {size}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; size]).await.unwrap();
    let mut answer = vec![0; 1_000];
    let length = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // The same connection can be used again.
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 1_000];
    let mut text = String::new();
    while !text.contains("HTTP/1.1 200 ") {
        let length = stream.read(&mut answer).await.unwrap();
        assert!(length > 0, "the connection was closed: {text}");
        text.push_str(&String::from_utf8_lossy(&answer[..length]));
    }

    // A client that sends `Expect: 100-continue` does not need to send the body.
    let mut stream = server.connect("http/1.1", Some(&server.files.front_proxy)).await;
    let head = head.replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let length = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_certificate_is_served_when_the_files_change() {
    let server = ListeningServer::start().await;
    let path = server.files.path();
    let other = Authority::new("other", &path.join("other.crt")).unwrap();
    assert!(server.try_connect(&other.file, "h2", None).await.is_err());
    // A half-written pair of certificate and key is ignored; the last valid pair stays in use.
    let half = other.server(path, "half", &["localhost"]).unwrap();
    fs::copy(&half.certificate, path.join("serving.crt")).unwrap();
    server.connect("h2", None).await;
    other.server(path, "serving", &["localhost"]).unwrap();
    let exchanged = async {
        while server.try_connect(&other.file, "h2", None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(60), exchanged).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_lets_requests_in_flight_finish() {
    let server = ListeningServer::start().await;
    let mut proxy = server.proxy().await;
    let mut nobody = server.h2(None).await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(1);
    let body = futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|part| (part, receiver))
    });
    let (start, end) = FOO.split_at(1);
    let posting = proxy.send_request(master("POST", FOOS, Body::from_stream(body)));
    let posting = tokio::spawn(posting);
    sender.send(Ok(start.to_owned())).await.unwrap();
    // The capacity of the channel is one, so if it accepts another part, the first one has been sent.
    sender.send(Ok(" ".to_owned())).await.ok();
    let draining = tokio::spawn(server.running.drain(Duration::from_secs(2)));
    let readyz = || Request::get("https://localhost/readyz").body(Body::empty()).unwrap();
    let ready = loop {
        let (status, body) = text(nobody.send_request(readyz()).await.unwrap()).await;
        if status != 200 {
            break body;
        }
    };
    assert!(ready.contains("[-]shutdown failed"), "{ready}");
    sender.send(Ok(end.to_owned())).await.unwrap();
    drop(sender);
    let (status, created) = text(posting.await.unwrap().unwrap()).await;
    assert_eq!(status, 201, "{created}");
    draining.await.unwrap();
}

/// During a shutdown no watch starts. Clients of ended watches reconnect to another server. A watch that ended at once
/// without an event would make them list again.
#[tokio::test(flavor = "multi_thread")]
async fn new_watches_are_rejected_during_shutdown() {
    let server = ListeningServer::start().await;
    let watch = || master("GET", &format!("{FOOS}?watch=true"), "");
    let mut watchers = Vec::new();
    for _ in 0..30 {
        let mut proxy = server.proxy().await;
        let watching = proxy.send_request(watch()).await.unwrap();
        assert_eq!(watching.status(), 200);
        watchers.push(async move {
            ends_cleanly(watching.into_body()).await;
            proxy.send_request(watch()).await.map(|response| response.status())
        });
    }
    let watchers = tokio::spawn(join_all(watchers.into_iter().map(tokio::spawn)));
    server.running.drain(Duration::ZERO).await;
    for watcher in watchers.await.unwrap() {
        // Most connections accept no more requests.
        if let Ok(status) = watcher.unwrap() {
            assert_eq!(status, 429);
        }
    }
}

/// The response over plain HTTP, with its headers.
async fn plain(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_metrics_can_have_separate_ports() {
    let free: Option<SocketAddr> = Some(([127, 0, 0, 1], 0).into());
    let server = ListeningServer::with_flags(|flags| {
        flags.health_probe_bind_address = free;
        flags.metrics_bind_address = free;
        flags.anonymous_auth = false;
    })
    .await;
    let probes = server.running.health_probe_address().unwrap();
    let metrics = server.running.metrics_address().unwrap();
    // Idle connections do not exclude other clients.
    let mut silent = Vec::new();
    for address in [probes, metrics].repeat(200) {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for endpoint in ["/livez", "/healthz", "/readyz"] {
        let answer = plain(probes, endpoint).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\nok"), "{answer}");
    }
    assert!(plain(metrics, "/metrics").await.contains("apiserver_request_total"));
    for (address, path) in
        [(probes, "/metrics"), (metrics, "/livez"), (probes, "/readyz/start"), (probes, FOOS)]
    {
        assert!(plain(address, path).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    // Requests without credentials are rejected where a permission is required; probes are not.
    let mut nobody = server.h2(None).await;
    for (path, expected) in [("/readyz", 200), ("/apis", 401), ("/metrics", 401)] {
        let request = Request::get(format!("https://localhost{path}")).body(Body::empty());
        let response = nobody.send_request(request.unwrap()).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{path}");
    }
}

/// A cluster that serves the authentication ConfigMap once `said` contains it, and never responds to anything else.
/// Returns its address.
async fn cluster_that_says(said: watch::Receiver<Option<String>>) -> SocketAddr {
    let answer = async move |uri: Uri| {
        let is_list = !uri.query().unwrap_or_default().contains("watch=");
        if !(uri.path().ends_with("/kube-system/configmaps") && is_list) {
            std::future::pending::<()>().await;
        }
        let said = said.clone().wait_for(Option::is_some).await.unwrap().clone();
        ([(CONTENT_TYPE, "application/json")], said.unwrap())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn early_connections_wait_for_the_front_proxy_configuration() {
    let (say, said) = watch::channel(None);
    let cluster = cluster_that_says(said).await;
    let mut authority = None;
    let server = ListeningServer::with(&format!("http://{cluster}"), |flags| {
        authority = flags.requestheader_client_ca_file.take();
    })
    .await;
    let mut connecting = Box::pin(server.proxy());
    let early = timeout(Duration::from_millis(200), &mut connecting).await;
    assert!(early.is_err(), "nobody is answered before");
    let data = serde_json::json!({
        "requestheader-client-ca-file": fs::read_to_string(authority.unwrap()).unwrap(),
        "requestheader-username-headers": r#"["X-Remote-User"]"#,
        "requestheader-group-headers": r#"["X-Remote-Group"]"#,
    });
    let metadata = serde_json::json!({"name": "extension-apiserver-authentication", "namespace": "kube-system", "uid": "1", "resourceVersion": "1"});
    let list = serde_json::json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [{"metadata": metadata, "data": data}]});
    say.send_replace(Some(list.to_string()));
    let mut proxy = connecting.await;
    let response = proxy.send_request(master("GET", FOOS, "")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_proceed_if_the_front_proxy_configuration_never_arrives() {
    let (_say, said) = watch::channel(None);
    let cluster = cluster_that_says(said).await;
    let silent = |flags: &mut aggregated_apiserver::ServeArgs| {
        flags.requestheader_client_ca_file = None;
    };
    let server = ListeningServer::with(&format!("http://{cluster}"), silent).await;
    let mut nobody = server.h2(None).await;
    let request = Request::get("https://localhost/livez").body(Body::empty()).unwrap();
    assert_eq!(nobody.send_request(request).await.unwrap().status(), StatusCode::OK);
    // The certificate of the front proxy is signed by an unknown CA.
    let mut proxy = server.proxy().await;
    let response = proxy.send_request(master("GET", FOOS, "")).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_time_out_after_the_duration_of_the_flag() {
    let server =
        ListeningServer::with_flags(|flags| flags.request_timeout = Duration::from_millis(200))
            .await;
    let mut proxy = server.proxy().await;
    let mut request = master("POST", FOOS, "");
    let nothing = futures::stream::pending::<Result<axum::body::Bytes, std::io::Error>>();
    *request.body_mut() = Body::from_stream(nothing);
    // The default timeout is a minute.
    let response = timeout(Duration::from_secs(30), proxy.send_request(request)).await;
    assert_eq!(response.unwrap().unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
}
