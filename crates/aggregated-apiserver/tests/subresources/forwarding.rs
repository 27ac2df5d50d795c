//! Requests that a handler forwards to another server.

use aggregated_apiserver::subresource::{Error, SubPath, Subresource, forward};
use aggregated_apiserver::{InProcess, Kind, Kinds};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use test_server::{admin, server_of};
use tokio::net::{TcpListener, TcpStream};

use super::machine::{MACHINES, Machine};
use super::{text, with_machine};

/// A server that describes each request, and returns its body.
async fn other_server() -> u16 {
    let describe = async |request: Request| {
        let (head, body) = request.into_parts();
        let sent = body.collect().await.unwrap().to_bytes();
        let header =
            |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let headers: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
        json!({
            "method": head.method.as_str(), "target": head.uri.to_string(), "headers": headers,
            "identity": header("x-identity"), "upgrade": header("upgrade"), "length": sent.len(),
        })
        .to_string()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(describe)).await });
    port
}

/// A server that forwards to this port.
async fn forwarding(port: u16) -> InProcess {
    let proxy =
        async move |SubPath(path): SubPath, mut request: Request| -> Result<Response, Error> {
            let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
            *request.uri_mut() = format!("/{path}{query}").parse().map_err(Error::internal)?;
            request.headers_mut().insert("x-identity", http::HeaderValue::from_static("jane"));
            let connection =
                TcpStream::connect(("127.0.0.1", port)).await.map_err(Error::unavailable)?;
            forward(request, connection).await
        };
    let kind = Kind::stored::<Machine>().subresource(Subresource::new("proxy").proxy(proxy));
    with_machine(server_of(Kinds::new().kind(kind)).await).await
}

async fn ask(server: &InProcess, request: http::request::Builder, body: Body) -> Value {
    let (status, text) = text(server.respond(admin(), request.body(body).unwrap()).await).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_request_is_forwarded_with_its_body_and_its_headers() {
    let server = forwarding(other_server().await).await;
    let path = format!("{MACHINES}/a/proxy/x/y%20z?a=1&b=%2F");
    let request = http::Request::put(&path).header("x-own", "kept").header("keep-alive", "5");
    let chunks = futures::stream::iter(std::iter::repeat_n(Bytes::from(vec![b'x'; 1 << 20]), 20));
    let body = Body::from_stream(chunks.map(Ok::<_, std::io::Error>));
    let seen = ask(&server, request, body).await;
    assert_eq!((&seen["method"], &seen["target"]), (&"PUT".into(), &"/x/y%20z?a=1&b=%2F".into()));
    assert_eq!((&seen["length"], &seen["identity"]), (&(20 << 20).into(), &"jane".into()));
    let headers = seen["headers"].as_array().unwrap();
    assert!(headers.contains(&"x-own".into()) && !headers.contains(&"keep-alive".into()), "{seen}");
}

#[tokio::test]
async fn a_client_removes_no_header_of_a_handler() {
    let server = forwarding(other_server().await).await;
    let path = format!("{MACHINES}/a/proxy/x");
    for connection in ["x-identity", "close, X-Identity, host", "upgrade, x-identity"] {
        let request = http::Request::get(&path).header("connection", connection);
        let request = request.header("upgrade", "websocket").header("x-identity", "forged");
        let seen = ask(&server, request, Body::empty()).await;
        assert_eq!(seen["identity"], "jane", "{connection}: {seen}");
    }
}

#[tokio::test]
async fn only_known_protocols_are_forwarded() {
    let server = forwarding(other_server().await).await;
    let path = format!("{MACHINES}/a/proxy/x");
    let request = http::Request::get(&path).header("connection", "upgrade, http2-settings");
    let request = request.header("upgrade", "h2c").header("http2-settings", "AAMAAABkAAQAAP__");
    let seen = ask(&server, request, Body::empty()).await;
    assert_eq!(seen["upgrade"], Value::Null, "{seen}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_reported_without_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = forwarding(port).await;
    let ends = tokio::spawn(async move {
        let (connection, _) = listener.accept().await.unwrap();
        drop(connection);
        listener
    });
    let path = format!("{MACHINES}/a/proxy/x");
    let request = http::Request::get(&path).body(Body::empty()).unwrap();
    let (status, error) = text(server.respond(admin(), request).await).await;
    assert_eq!(status, 503, "{error}");
    assert!(error.contains("the server behind the subresource does not answer"), "{error}");
    assert!(!error.contains(&port.to_string()), "{error}");
    drop(ends);
}
