//! Commands in a container: the subresources `exec` and `attach` of Pods.
//!
//! 1. [`Options::from_query`] parses the streams that the client asks for.
//! 2. [`negotiate`] chooses the protocol. The server sends the response and takes the connection from HTTP.
//! 3. [`serve`] calls the handler of the command with its [`Session`], and sends the [`Outcome`].

mod options;
mod outcome;
mod protocol;
mod session;
mod sizes;
mod spdy;
mod websocket;

#[cfg(test)]
mod tests;

use tokio::io::{AsyncRead, AsyncWrite};

pub use options::Options;
pub use outcome::Outcome;
pub use protocol::{Protocol, negotiate};
pub use session::{Output, Session, Stdin};
pub use sizes::{Sizes, TerminalSize};

use crate::websocket::Codec;
use crate::{Error, Limits};
use protocol::Transport;

/// Serves a command over an upgraded connection. Returns the outcome of the session, which the client has received.
///
/// The handler starts when the client has created all of its streams. Its outcome is sent after all of its output.
/// `end` ends the session in an orderly way: its outcome is sent instead of the handler's, and the handler is dropped.
/// Use [`std::future::pending`] for a session that only the handler and the client end.
///
/// Everything runs in the returned future: dropping it drops the handler and closes the connection. Set `TCP_NODELAY`
/// on the connection, because messages are small.
///
/// # Errors
/// When the client closes the connection before the outcome is sent, violates the protocol, or exceeds a
/// limit. After the connection is closed, the handler has [`Limits::close`] to return, and is then dropped.
pub async fn serve<Io, End, Handler, Work>(
    io: Io,
    protocol: Protocol,
    options: Options,
    limits: &Limits,
    end: End,
    handler: Handler,
) -> Result<Outcome, Error>
where
    Io: AsyncRead + AsyncWrite + Unpin,
    End: Future<Output = Outcome>,
    Handler: FnOnce(Session) -> Work,
    Work: Future<Output = Outcome>,
{
    let codec = match protocol.transport {
        Transport::Spdy => {
            return spdy::serve(io, (protocol.version, options), limits, end, handler).await;
        }
        Transport::WebSocket => Codec::Binary,
        Transport::Base64WebSocket => Codec::Base64,
    };
    websocket::serve(io, (protocol.version, codec, options), limits, end, handler).await
}
