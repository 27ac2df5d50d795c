//! Watches over WebSockets: browsers and dashboards follow kinds like this. Each
//! event is a message of text.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::FromRequestParts;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::time::{Instant, timeout};

use super::answers::Answer;
use crate::error::ApiError;
use crate::record::Upgraded;

/// What stands before a token among the protocols.
pub(super) const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// A client of a watch has nothing to say but pings: so many bytes in such a time.
const RECEIVED_LIMIT: usize = 16 << 10;
const RECEIVED_IN: Duration = Duration::from_secs(60);
/// How long a client may take to read one event.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// What a message takes besides its bytes.
const FRAME: usize = 16;
/// At most this many bytes wait to be sent to a client that does not read, besides one event.
const WAITING_LIMIT: usize = 64 << 10;
/// No event is larger: an object, twice as large when it is escaped.
const EVENT_LIMIT: usize = 8 << 20;

/// The protocols that a client offers.
pub(super) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// Whether a request asks for a WebSocket.
pub(super) fn is_asked_for(head: &Parts) -> bool {
    let says = |name, word: &str| {
        let values = head.headers.get_all(name).into_iter();
        let mut words = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
        words.any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    says(CONNECTION, "upgrade") && says(UPGRADE, "websocket")
}

/// Sends the events of a watch, which are the lines of this body, over a WebSocket.
///
/// # Errors
/// 400 when the request does not open one, as over HTTP/2.
pub(super) async fn send(
    head: &Parts,
    events: Body,
    answer: &Answer,
) -> Result<Response<Body>, ApiError> {
    let mut head = head.clone();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut head, &()).await;
    let upgrade = upgrade.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let own = protocols(&head.headers).find(|protocol| !protocol.starts_with(BEARER));
    let own: Vec<String> = own.map(str::to_owned).into_iter().collect();
    let upgrade = upgrade
        .protocols(own)
        .max_message_size(RECEIVED_LIMIT)
        .max_frame_size(RECEIVED_LIMIT)
        .write_buffer_size(0)
        .max_write_buffer_size(EVENT_LIMIT + WAITING_LIMIT);
    let lines = Lines::of(events);
    let answer = answer.clone();
    // The record of the request lasts as long as its watch.
    let upgraded = Upgraded::default();
    let held = upgraded.clone();
    let forward = async move |socket| {
        forward(socket, lines, answer).await;
        drop(held);
    };
    let mut response = upgrade.on_upgrade(forward).into_response();
    response.extensions_mut().insert(upgraded);
    Ok(response)
}

async fn forward(mut socket: WebSocket, mut lines: Lines, answer: Answer) {
    let (mut heard, mut since) = (0, Instant::now());
    loop {
        tokio::select! {
            line = lines.next() => {
                let text = line.and_then(|line| Utf8Bytes::try_from(line).ok());
                let Some(text) = text else { break };
                // It stands there until it is sent, and a copy of it in the socket.
                let _held = (text.clone(), answer.charge_length(text.len()));
                let sent = timeout(SEND_TIMEOUT, socket.send(Message::Text(text))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
            // Pings are answered meanwhile; what else a client says means nothing.
            received = socket.recv() => {
                let Some(Ok(message)) = received else { return };
                if since.elapsed() > RECEIVED_IN {
                    (heard, since) = (0, Instant::now());
                }
                heard += message.into_data().len() + FRAME;
                if heard > RECEIVED_LIMIT {
                    return;
                }
            }
        }
    }
    // The client may be gone.
    let _ = timeout(SEND_TIMEOUT, socket.send(Message::Close(None))).await;
}

/// The lines of a body.
struct Lines {
    stream: BodyDataStream,
    /// What of a chunk has not been taken: it is counted as long as a part of it is there.
    chunk: Bytes,
    /// The beginning of a line whose end is in another chunk.
    begun: BytesMut,
}

impl Lines {
    fn of(body: Body) -> Self {
        let (chunk, begun) = (Bytes::new(), BytesMut::new());
        Self { stream: body.into_data_stream(), chunk, begun }
    }

    /// The next line with its end. Nothing is lost if this is not awaited to its end.
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
    fn a_web_socket_is_asked_for() {
        let ask = |connection: &str, upgrade: &str| {
            let request = Request::builder().header(CONNECTION, connection);
            let request = request.header(UPGRADE, upgrade).body(()).unwrap();
            is_asked_for(&request.into_parts().0)
        };
        assert!(ask("Upgrade", "websocket") && ask("keep-alive, Upgrade", "WebSocket"));
        assert!(!ask("keep-alive", "websocket") && !ask("upgrade", "h2c"));
    }
}
