//! WebSockets of handlers, over real connections.

use std::time::Duration;

use aggregated_apiserver::ApiServer;
use axum::body::Body;
use futures::{SinkExt, StreamExt};
use http::Request;
use http_body_util::BodyExt;
use test_cluster::ServerFiles;
use test_server::ListeningServer;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::machine::{Log, MACHINES, kinds};

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// A server with the machine `a`.
async fn listening() -> ListeningServer {
    let server = ApiServer::new("machine-server", kinds(&Log::default()));
    let server = Box::pin(ListeningServer::of(server, ServerFiles::NO_CLUSTER, |_| ())).await;
    let machine = r#"{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"a"},"spec":{"image":"debian"}}"#;
    assert_eq!(ask(&server, "POST", MACHINES, machine).await, 201);
    server
}

/// Sends a request of an administrator over HTTP/2. Returns the status.
async fn ask(server: &ListeningServer, method: &str, path: &str, body: &'static str) -> u16 {
    let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    let request =
        request.header("x-remote-user", "admin").header("x-remote-group", "system:masters");
    let request = request.header("content-type", "application/json").body(Body::from(body));
    let response = server.proxy().await.send_request(request.unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    body.collect().await.unwrap();
    head.status.as_u16()
}

/// Opens a WebSocket as an administrator.
async fn open(server: &ListeningServer, subresource: &str) -> Result<Socket, Error> {
    let stream = server.connect("http/1.1", Some(&server.files.front_proxy)).await;
    let url = format!("wss://localhost{MACHINES}/a/{subresource}");
    let mut request = url.into_client_request()?;
    let headers = request.headers_mut();
    headers.insert("x-remote-user", "admin".parse().unwrap());
    headers.insert("x-remote-group", "system:masters".parse().unwrap());
    let protocols = "base64url.bearer.authorization.k8s.io.eA, plain.example.com";
    headers.insert("sec-websocket-protocol", protocols.parse().unwrap());
    let (socket, response) = client_async(request, stream).await?;
    assert_eq!(response.headers()["sec-websocket-protocol"], "plain.example.com");
    assert!(response.headers().contains_key("audit-id"));
    Ok(socket)
}

async fn echoes(socket: &mut Socket, text: &str) {
    socket.send(Message::Text(text.into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Text(text.into()));
}

/// Reads until the connection has ended. Returns whether there was a close message.
async fn until_closed(mut socket: Socket) -> bool {
    let mut is_closed = false;
    let ended = async {
        while let Some(Ok(message)) = socket.next().await {
            is_closed |= matches!(message, Message::Close(_));
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the connection stays open");
    is_closed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_belongs_to_its_handler() {
    let server = listening().await;
    let (mut first, mut second) =
        (open(&server, "console").await.unwrap(), open(&server, "console").await.unwrap());
    for number in 0..100 {
        echoes(&mut first, &format!("first {number}")).await;
        echoes(&mut second, &format!("second {number}")).await;
    }
    first.close(None).await.unwrap();
    assert!(until_closed(first).await);
    echoes(&mut second, "still there").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_with_its_object_and_with_the_server() {
    let server = listening().await;
    let mut socket = open(&server, "console").await.unwrap();
    echoes(&mut socket, "hello").await;
    assert_eq!(ask(&server, "DELETE", &format!("{MACHINES}/a"), "").await, 200);
    assert!(until_closed(socket).await, "the handler has sent its farewell");
    let refused = open(&server, "console").await.err().unwrap();
    assert!(matches!(refused, Error::Http(response) if response.status() == 404));
    let server = listening().await;
    let mut socket = open(&server, "console").await.unwrap();
    echoes(&mut socket, "hello").await;
    let drained = tokio::spawn(server.running.drain(Duration::ZERO));
    assert!(until_closed(socket).await);
    drained.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_closed() {
    let server = listening().await;
    let mut socket = open(&server, "brief").await.unwrap();
    echoes(&mut socket, "hello").await;
    assert!(until_closed(socket).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_request_to_a_connection_is_rejected() {
    let server = listening().await;
    assert_eq!(ask(&server, "GET", &format!("{MACHINES}/a/console"), "").await, 400);
}
