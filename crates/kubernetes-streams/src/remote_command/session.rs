//! The streams of a command, as its handler sees them.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::sizes::Sizes;

/// The streams of a command. Dropping a stream closes it.
#[derive(Debug)]
pub struct Session {
    /// The input from the client; empty if the client did not ask for it.
    pub stdin: Stdin,
    /// The output to the client; discarded if the client did not ask for it.
    pub stdout: Output,
    /// The error output to the client; discarded if the client did not ask for it.
    pub stderr: Output,
    /// The sizes of the terminal of the client; none without a terminal.
    pub sizes: Sizes,
}

/// The input of a command.
///
/// It ends when the client closes it, which clients can do over SPDY and with `v5` over a WebSocket, or when the client
/// closes the WebSocket in an orderly way. Reading fails if the connection was lost before.
pub struct Stdin(Box<dyn AsyncRead + Send + Unpin>);

/// An output of a command. Writing waits while the client does not read, and fails after the session ended.
pub struct Output(Box<dyn AsyncWrite + Send + Unpin>);

impl Stdin {
    pub(super) fn new(input: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self(Box::new(input))
    }

    pub(super) fn from_option(input: Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        input.map_or_else(|| Self::new(tokio::io::empty()), Self::new)
    }
}

impl Output {
    pub(super) fn from_option(output: Option<impl AsyncWrite + Send + Unpin + 'static>) -> Self {
        match output {
            Some(output) => Self(Box::new(output)),
            None => Self(Box::new(tokio::io::sink())),
        }
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stdin")
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

impl AsyncRead for Stdin {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
