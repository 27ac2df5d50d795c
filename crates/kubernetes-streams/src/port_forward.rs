//! Connections to the ports of a Pod: the subresource `portforward` of Pods.
//!
//! 1. [`negotiate`] chooses the protocol. The server sends the response and takes the connection from HTTP.
//! 2. [`serve`] opens a connection to a port whenever the client asks for one, and copies the data.

mod channels;
mod pairs;
mod protocol;
mod streams;

#[cfg(test)]
mod tests;

use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};

pub use protocol::{Protocol, negotiate};

use crate::activity::{Activity, Monitored};
use crate::tunnel::Tunnel;
use crate::{Error, Limits};
use protocol::Transport;

/// Forwards connections over an upgraded connection, until the client closes it.
///
/// `open` connects to a port. Its error is a message for the client. kubectl stops forwarding after such a message. If
/// a connection fails later, only its stream is reset.
///
/// `end` ends all connections in an orderly way. Its message is sent to the client for each of them. Use
/// [`std::future::pending`] to forward until the client closes the connection.
///
/// Everything runs in the returned future: dropping it closes all connections. Set `TCP_NODELAY` on the connection,
/// because messages are small.
///
/// # Errors
/// When the client violates the protocol or exceeds a limit. A client ends the forwarding by closing the
/// connection. This is not an error.
pub async fn serve<Io, End, Open, Opening, Target>(
    io: Io,
    protocol: &Protocol,
    limits: &Limits,
    end: End,
    open: Open,
) -> Result<(), Error>
where
    Io: AsyncRead + AsyncWrite + Unpin,
    End: Future<Output = String>,
    Open: Fn(u16) -> Opening,
    Opening: Future<Output = Result<Target, String>>,
    Target: AsyncRead + AsyncWrite + Unpin,
{
    let activity = Activity::new();
    let io = Monitored::new(io, &activity);
    let end = end.shared();
    let result = match &protocol.transport {
        Transport::Spdy => streams::serve(io, (&activity, limits), end, open).await,
        Transport::Tunnel => {
            let tunnel = Tunnel::accept(io, limits).await;
            streams::serve(tunnel, (&activity, limits), end, open).await
        }
        Transport::Channels(codec, ports) => {
            channels::serve(io, (*codec, ports), (&activity, limits), end, open).await
        }
    };
    match result {
        Err(Error::Disconnected) => Ok(()),
        result => result,
    }
}
