//! The limits of a connection.

use std::time::Duration;

/// The limits of one connection, which bound the memory and the time that a hostile client can use.
///
/// Responses to pings and to new streams need no limit of their own: a connection is not read while 64 KiB of them wait
/// for a client that does not read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of open streams of a SPDY connection, and of channels of a WebSocket. Further streams are
    /// refused. Port forwarding uses two streams for each forwarded connection.
    pub streams: usize,
    /// The maximum number of received bytes that wait in one stream. The connection is not read while a stream is full,
    /// because the SPDY implementation of Kubernetes has no flow control for a single stream.
    pub stream_bytes: usize,
    /// The maximum size of a WebSocket message, in bytes. Clients in Go send at most 32 KiB, other clients may send all
    /// of their input as one message.
    pub message_bytes: usize,
    /// The maximum size of a SPDY control frame, and of its headers after decompression, in bytes. A stream holds its
    /// headers as long as it is open, in some ten times as many bytes.
    pub header_bytes: usize,
    /// The longest time without a byte in either direction. [`Duration::MAX`] is no limit.
    pub idle: Duration,
    /// The longest time until a SPDY client has created the streams of a command, or both streams of a forwarded
    /// connection.
    pub setup: Duration,
    /// The longest time of each step of the end: a handler returns after the client has closed the connection, the
    /// client reads the last bytes of a session that was ended, and the client closes its side of the connection.
    pub close: Duration,
}

impl Limits {
    /// The timeouts of kubelet, and sizes with which the streams of a connection hold at most 16 MiB.
    pub const DEFAULT: Self = Self {
        streams: 256,
        stream_bytes: 64 << 10,
        message_bytes: 1 << 20,
        header_bytes: 4 << 10,
        idle: Duration::from_secs(4 * 60 * 60),
        setup: Duration::from_secs(30),
        close: Duration::from_secs(10),
    };
}

impl Default for Limits {
    /// Returns [`Limits::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}
