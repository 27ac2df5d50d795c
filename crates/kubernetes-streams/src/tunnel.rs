//! A stream of bytes in the messages of a WebSocket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::Limits;
use crate::websocket::{DATA_LIMIT, accept, close_message};

/// A WebSocket as a stream of bytes, which are sent as binary messages of any size.
#[derive(Debug)]
pub(crate) struct Tunnel<Io> {
    socket: WebSocketStream<Io>,
    /// The unread rest of a message.
    unread: Bytes,
    is_closing: bool,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Tunnel<Io> {
    pub(crate) async fn accept(io: Io, limits: &Limits) -> Self {
        Self { socket: accept(io, limits).await, unread: Bytes::new(), is_closing: false }
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tunnel<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            self.unread = match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(data))) => data,
                Some(Ok(Message::Text(_))) => {
                    let error = io::Error::new(io::ErrorKind::InvalidData, "a text message");
                    return Poll::Ready(Err(error));
                }
                // Reading on after a close message sends the response.
                Some(Ok(_)) => continue,
                None | Some(Err(SocketError::ConnectionClosed)) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(into_io(error))),
            };
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tunnel<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let data = bytes.get(..bytes.len().min(DATA_LIMIT)).unwrap_or_default();
        ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(into_io)?;
        let message = Message::Binary(Bytes::copy_from_slice(data));
        Pin::new(&mut self.socket).start_send(message).map_err(into_io)?;
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(into_io)
    }

    /// Sends a close message.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_closing {
            ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(into_io)?;
            Pin::new(&mut self.socket).start_send(close_message()).map_err(into_io)?;
            self.is_closing = true;
        }
        self.poll_flush(cx)
    }
}

fn into_io(error: SocketError) -> io::Error {
    match error {
        SocketError::Io(error) => error,
        SocketError::ConnectionClosed
        | SocketError::AlreadyClosed
        | SocketError::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
        ) => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}
