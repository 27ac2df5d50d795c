//! Channels over a WebSocket: each message begins with the number of its channel.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_util::sync::CancellationToken;

use crate::{Error, Limits};

/// The maximum size of the data of a message that is sent, in bytes.
pub(crate) const DATA_LIMIT: usize = 16 << 10;
/// The size of the buffer of received bytes.
const READ_BUFFER: usize = 16 << 10;
/// The time after which a client hears that its input waits, before it gives up. Clients in Go wait for a minute.
const PONG_AFTER: Duration = Duration::from_secs(15);

/// The encoding of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// A byte with the number of the channel, and the data.
    Binary,
    /// A digit with the number of the channel, and the data in base64.
    Base64,
}

impl Codec {
    pub(crate) fn encode(self, channel: u8, data: &[u8]) -> Message {
        match self {
            Self::Binary => {
                let mut message = BytesMut::with_capacity(1 + data.len());
                message.put_u8(channel);
                message.put_slice(data);
                Message::Binary(message.freeze())
            }
            Self::Base64 => {
                let digit = char::from(b'0'.wrapping_add(channel));
                Message::text(format!("{digit}{}", STANDARD.encode(data)))
            }
        }
    }

    /// Returns the channel and the data of a message, or `None` for an empty message.
    pub(crate) fn decode(self, mut message: Bytes) -> Result<Option<(u8, Bytes)>, Error> {
        if message.is_empty() {
            return Ok(None);
        }
        let data = message.split_off(1);
        let first = message.first().copied().unwrap_or_default();
        match self {
            Self::Binary => Ok(Some((first, data))),
            Self::Base64 => {
                let data = STANDARD.decode(&data);
                let data = data.map_err(|error| Error::protocol(format!("base64: {error}")))?;
                Ok(Some((first.wrapping_sub(b'0'), data.into())))
            }
        }
    }
}

/// Begins the side of the server of a WebSocket, after the handshake.
pub(crate) async fn accept<Io>(io: Io, limits: &Limits) -> WebSocketStream<Io>
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(limits.message_bytes))
        .max_frame_size(Some(limits.message_bytes))
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0);
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// Returns the message that closes a WebSocket in an orderly way.
pub(crate) fn close_message() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// Returns the next message, or `None` after the client has closed the WebSocket in an orderly way.
///
/// # Errors
/// When the connection is lost, or a message is invalid.
pub(crate) async fn receive<Io>(
    source: &mut SplitStream<WebSocketStream<Io>>,
    codec: Codec,
) -> Result<Option<(u8, Bytes)>, Error>
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let mut is_closed = false;
    loop {
        let data = match source.next().await.transpose() {
            Ok(Some(Message::Binary(data))) => data,
            Ok(Some(Message::Text(text))) => text.into(),
            Ok(Some(Message::Close(_))) => {
                // Reading on sends the response.
                is_closed = true;
                continue;
            }
            Ok(Some(_)) => continue,
            Ok(None) if is_closed => return Ok(None),
            Ok(None) => return Err(Error::Disconnected),
            Err(_) if is_closed => return Ok(None),
            Err(error) => return Err(from_socket(error)),
        };
        if let Some(message) = codec.decode(data)? {
            return Ok(Some(message));
        }
    }
}

/// Writes data that was received to a stream, and waits until the stream has capacity for it. The client gets pongs in
/// this time, because its pings wait behind the data. The stream is closed if it is not read any more.
pub(crate) async fn deliver(
    stream: &mut Option<impl AsyncWrite + Unpin>,
    data: &[u8],
    messages: &mpsc::WeakSender<Message>,
) {
    let Some(open) = stream.as_mut() else { return };
    let mut writing = std::pin::pin!(open.write_all(data));
    let written = loop {
        tokio::select! {
            biased;
            written = writing.as_mut() => break written,
            () = sleep(PONG_AFTER) => {
                let queue = messages.upgrade();
                // A full queue means that the client does not read either.
                let _ = queue.map(|queue| queue.try_send(Message::Pong(Bytes::new())));
            }
        }
    };
    if written.is_err() {
        *stream = None;
    }
}

/// Sends messages until all of their senders are dropped, then closes the WebSocket and reports it. Returns only after
/// an error.
pub(crate) async fn send<Io>(
    mut sink: SplitSink<WebSocketStream<Io>, Message>,
    mut messages: mpsc::Receiver<Message>,
    is_sent: oneshot::Sender<()>,
) -> Error
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = messages.recv().await {
        if let Err(error) = sink.send(message).await {
            return from_socket(error);
        }
    }
    if let Err(error) = sink.send(close_message()).await {
        return from_socket(error);
    }
    let _ = is_sent.send(());
    std::future::pending().await
}

/// Sends an output as messages of a channel, until it ends. After `finished`, only what can be read at once is sent.
pub(crate) async fn pump(
    mut output: impl AsyncRead + Unpin,
    (channel, codec): (u8, Codec),
    messages: mpsc::Sender<Message>,
    finished: &CancellationToken,
) {
    let mut buffer = vec![0; DATA_LIMIT];
    loop {
        let count = tokio::select! {
            biased;
            read = output.read(&mut buffer) => read.unwrap_or_default(),
            () = finished.cancelled() => 0,
        };
        let data = buffer.get(..count).unwrap_or_default();
        if data.is_empty() || messages.send(codec.encode(channel, data)).await.is_err() {
            return;
        }
    }
}

/// Returns the error of a WebSocket as an error of this crate.
fn from_socket(error: SocketError) -> Error {
    match error {
        SocketError::ConnectionClosed
        | SocketError::AlreadyClosed
        | SocketError::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
        ) => Error::Disconnected,
        SocketError::Io(error) => error.into(),
        other => Error::protocol(other.to_string()),
    }
}
