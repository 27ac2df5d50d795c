//! The reasons why a connection ends early.

use std::io;
use std::time::Duration;

/// The reason why a connection ended without a result for the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection could not be read or written.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The client closed the connection, or the connection was lost.
    #[error("the client closed the connection")]
    Disconnected,
    /// The client violated the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// No byte was sent or received during [`Limits::idle`](crate::Limits::idle).
    #[error("no byte was sent or received for {0:?}")]
    Idle(Duration),
    /// The client did not create its streams during [`Limits::setup`](crate::Limits::setup).
    #[error("the client did not create its streams in {0:?}")]
    Setup(Duration),
    /// The client did not read the last bytes during [`Limits::close`](crate::Limits::close).
    #[error("the client did not read the last bytes in {0:?}")]
    Close(Duration),
}

impl Error {
    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol(message.into())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof => Self::Disconnected,
            io::ErrorKind::InvalidData => Self::Protocol(error.to_string()),
            _ => Self::Io(error),
        }
    }
}
