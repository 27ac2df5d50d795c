//! Streams over one connection: SPDY/3.1, as far as Kubernetes uses it.
//!
//! [`server`] and [`client`] return a [`Connection`], which is a future that moves the bytes and must be polled, and a
//! [`Handle`], which accepts and opens [`Stream`]s. Dropping the connection closes it.
//!
//! The implementation of Kubernetes (`moby/spdystream`) neither sends nor respects windows. So this one does the same:
//! a full stream stops reading of the whole connection until it is read.

mod connection;
mod frame;
mod headers;
mod state;
mod stream;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

pub use connection::Connection;
pub use stream::{Handle, Incoming, Stream};

use crate::Limits;
use state::{Shared, Side};

/// Begins the side of the server, whose streams have even numbers.
pub fn server<Io: AsyncRead + AsyncWrite + Unpin>(
    io: Io,
    limits: &Limits,
) -> (Connection<Io>, Handle) {
    begin(io, limits, Side::Server)
}

/// Begins the side of the client, whose streams have odd numbers.
pub fn client<Io: AsyncRead + AsyncWrite + Unpin>(
    io: Io,
    limits: &Limits,
) -> (Connection<Io>, Handle) {
    begin(io, limits, Side::Client)
}

fn begin<Io>(io: Io, limits: &Limits, side: Side) -> (Connection<Io>, Handle) {
    let shared = Arc::new(Shared::new(side, limits));
    let connection = Connection::new(io, Arc::clone(&shared), limits);
    (connection, Handle::new(shared))
}
