//! Watches over WebSockets, for browsers and dashboards. Each event is one text message.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::FromRequestParts;
use axum::extract::ws::WebSocketUpgrade;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::error::ApiError;
use crate::record::Upgraded;

/// The prefix of the protocol that contains a bearer token.
pub(super) const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// The maximum number of bytes that a client may send in `RECEIVED_IN`. A client of a watch sends only pings.
const RECEIVED_LIMIT: usize = 16 << 10;
const RECEIVED_IN: Duration = Duration::from_secs(60);
/// The longest time that a client may take to read one event.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The size of a message besides its payload, in bytes.
const FRAME: usize = 16;
/// The maximum number of bytes that wait for a client that does not read, besides one fragment of an event.
const WAITING_LIMIT: usize = 64 << 10;
/// The size of a fragment, in bytes. An event is sent in fragments of this size.
const FRAGMENT: usize = 16 << 10;
/// The size of the read buffer, in bytes; clients send little.
const READ_BUFFER: usize = 4 << 10;

/// The protocols that a client offers.
pub(super) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// Removes the protocol that contains a bearer token.
pub(super) fn remove_token(headers: &mut HeaderMap) {
    if !protocols(headers).any(|protocol| protocol.starts_with(BEARER)) {
        return;
    }
    let others = protocols(headers).filter(|protocol| !protocol.starts_with(BEARER));
    let others = HeaderValue::from_str(&others.collect::<Vec<_>>().join(", "));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(others) = others.ok().filter(|others| !others.is_empty()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    }
}

/// Whether a request asks for a WebSocket.
pub(super) fn is_asked_for(head: &Parts) -> bool {
    is_upgrade(head) && names(&head.headers, UPGRADE, "websocket")
}

/// Whether a request asks for another protocol on its connection, such as a WebSocket.
pub(super) fn is_upgrade(head: &Parts) -> bool {
    names(&head.headers, CONNECTION, "upgrade") && head.headers.contains_key(UPGRADE)
}

/// Whether a header that is a list has this word.
fn names(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter();
    let mut words = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    words.any(|one| one.trim().eq_ignore_ascii_case(word))
}

/// Sends the events of a watch over a WebSocket. The events are the lines of the body.
///
/// # Errors
/// 400 if the request cannot open a WebSocket, as over HTTP/2.
pub(super) async fn send(head: &Parts, events: Body) -> Result<Response<Body>, ApiError> {
    let upgrade = head.extensions.get::<OnUpgrade>().cloned();
    let asked = WebSocketUpgrade::from_request_parts(&mut head.clone(), &()).await;
    if let Err(rejection) = asked {
        return Err(ApiError::bad_request(rejection.body_text()));
    }
    let (Some(upgrade), Some(key)) = (upgrade, head.headers.get(SEC_WEBSOCKET_KEY)) else {
        return Err(ApiError::bad_request("the connection cannot become a WebSocket"));
    };
    let accept = derive_accept_key(key.as_bytes());
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.extend(HeaderValue::from_str(&accept).ok().map(|key| (SEC_WEBSOCKET_ACCEPT, key)));
    let own = protocols(&head.headers).find(|protocol| !protocol.starts_with(BEARER));
    let own = own.and_then(|protocol| HeaderValue::from_str(protocol).ok());
    headers.extend(own.map(|protocol| (SEC_WEBSOCKET_PROTOCOL, protocol)));
    // The record of the request is closed when the watch ends.
    let upgraded = Upgraded::default();
    response.extensions_mut().insert(upgraded.clone());
    tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        let config = WebSocketConfig::default()
            .max_message_size(Some(RECEIVED_LIMIT))
            .max_frame_size(Some(RECEIVED_LIMIT))
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(FRAGMENT + WAITING_LIMIT);
        let (connection, role) = (TokioIo::new(connection), Role::Server);
        let socket = WebSocketStream::from_raw_socket(connection, role, Some(config)).await;
        forward(socket, Lines::of(events)).await;
        drop(upgraded);
    });
    Ok(response)
}

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

async fn forward(mut socket: Socket, mut lines: Lines) {
    let (mut heard, mut since) = (0, Instant::now());
    loop {
        tokio::select! {
            line = lines.next() => {
                let Some(line) = line else { break };
                let sent = timeout(SEND_TIMEOUT, send_text(&mut socket, line)).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
            // Polling the socket also answers pings. Other messages of the client are ignored.
            received = socket.next() => {
                let Some(Ok(message)) = received else { return };
                if since.elapsed() > RECEIVED_IN {
                    (heard, since) = (0, Instant::now());
                }
                heard += message.len() + FRAME;
                if heard > RECEIVED_LIMIT {
                    return;
                }
            }
        }
    }
    // The client may be disconnected.
    let _ = timeout(SEND_TIMEOUT, socket.send(Message::Close(None))).await;
}

/// Sends a text as one message, in fragments. Sent bytes are copied into a buffer that never shrinks, so fragments keep
/// it small.
async fn send_text(socket: &mut Socket, mut text: Bytes) -> Result<(), tungstenite::Error> {
    let mut kind = Data::Text;
    loop {
        let fragment = text.split_to(text.len().min(FRAGMENT));
        let is_last = text.is_empty();
        let frame = Frame::message(fragment, OpCode::Data(kind), is_last);
        socket.send(Message::Frame(frame)).await?;
        if is_last {
            return Ok(());
        }
        kind = Data::Continue;
    }
}

/// The lines of a body.
struct Lines {
    stream: BodyDataStream,
    /// The unread rest of a chunk. Its memory is counted as long as a part of it exists.
    chunk: Bytes,
    /// The beginning of a line that ends in a later chunk.
    begun: BytesMut,
}

impl Lines {
    fn of(body: Body) -> Self {
        let (chunk, begun) = (Bytes::new(), BytesMut::new());
        Self { stream: body.into_data_stream(), chunk, begun }
    }

    /// Returns the next line, including its newline. No bytes are lost if the future is dropped before it completes.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.chunk.iter().position(|&byte| byte == b'\n') {
                let line = self.chunk.split_to(end + 1);
                if self.begun.is_empty() {
                    return Some(line);
                }
                self.begun.extend_from_slice(&line);
                return Some(self.begun.split().freeze());
            }
            self.begun.extend_from_slice(&std::mem::take(&mut self.chunk));
            self.chunk = self.stream.next().await?.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[tokio::test]
    async fn events_are_lines() {
        let chunks = ["{\"a\":1}\n{\"b\"", ":2}\n", "{\"c\":3}\n"];
        let chunks = chunks.map(|chunk| Ok::<_, std::io::Error>(Bytes::from(chunk)));
        let body = Body::from_stream(futures::stream::iter(chunks));
        let mut lines = Lines::of(body);
        for expected in ["{\"a\":1}\n", "{\"b\":2}\n", "{\"c\":3}\n"] {
            assert_eq!(lines.next().await.unwrap(), expected);
        }
        assert!(lines.next().await.is_none());
    }

    #[test]
    fn websocket_requests_are_recognized_by_their_upgrade_headers() {
        let ask = |connection: &str, upgrade: &str| {
            let request = Request::builder().header(CONNECTION, connection);
            let request = request.header(UPGRADE, upgrade).body(()).unwrap();
            is_asked_for(&request.into_parts().0)
        };
        assert!(ask("Upgrade", "websocket") && ask("keep-alive, Upgrade", "WebSocket"));
        assert!(!ask("keep-alive", "websocket") && !ask("upgrade", "h2c"));
    }
}
