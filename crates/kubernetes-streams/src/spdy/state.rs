//! The state that a connection and its streams share.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::{Buf, BytesMut};
use http::HeaderMap;

use super::frame::{self, Control};
use super::headers::HeaderEncoder;
use crate::{Error, Limits};

/// The number of bytes of output that wait, above which streams cannot write. The connection is not read while so many
/// bytes without data wait, because a client causes them with pings and new streams.
const OUTPUT_LIMIT: usize = 64 << 10;

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

#[derive(Debug)]
pub(super) struct Shared(Mutex<State>);

impl Shared {
    pub(super) fn new(side: Side, limits: &Limits) -> Self {
        Self(Mutex::new(State {
            side,
            streams_limit: limits.streams,
            stream_bytes: limits.stream_bytes,
            streams: HashMap::new(),
            last_received: 0,
            next: if side == Side::Client { 1 } else { 2 },
            incoming: VecDeque::new(),
            output: BytesMut::new(),
            control: 0,
            encoder: HeaderEncoder::default(),
            is_closing: false,
            peer_is_closing: false,
            is_sent: false,
            is_disconnected: false,
            connection: None,
            acceptor: None,
            closer: None,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream of a connection. It exists until both sides have closed it and it was dropped.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    received: BytesMut,
    /// Whether the other side accepted the stream, if this side opened it.
    pub(super) is_accepted: bool,
    pub(super) is_reset: bool,
    /// Whether the other side sends no further data.
    pub(super) is_received: bool,
    /// Whether this side sends no further data.
    pub(super) is_finished: bool,
    is_dropped: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl StreamState {
    fn wake(&mut self) {
        wake(&mut self.reader);
        wake(&mut self.writer);
    }
}

#[derive(Debug)]
pub(super) struct State {
    side: Side,
    streams_limit: usize,
    stream_bytes: usize,
    pub(super) streams: HashMap<u32, StreamState>,
    /// The last stream that the other side opened.
    last_received: u32,
    /// The next stream that this side opens.
    next: u32,
    /// The streams that the other side opened and that were not accepted yet.
    pub(super) incoming: VecDeque<(u32, HeaderMap)>,
    output: BytesMut,
    /// The number of bytes of the output that are not data.
    control: usize,
    encoder: HeaderEncoder,
    /// Whether this side sends nothing further, besides the output that waits.
    pub(super) is_closing: bool,
    pub(super) peer_is_closing: bool,
    /// Whether all output was written after `is_closing` was set.
    pub(super) is_sent: bool,
    pub(super) is_disconnected: bool,
    pub(super) connection: Option<Waker>,
    pub(super) acceptor: Option<Waker>,
    pub(super) closer: Option<Waker>,
}

impl State {
    /// Whether so much output waits that streams should not add to it.
    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= OUTPUT_LIMIT
    }

    /// Whether so much output without data waits that the connection should not be read. Data does not stop reading:
    /// two sides that both wait for the other one to read would never continue.
    pub(super) fn is_overloaded(&self) -> bool {
        self.control >= OUTPUT_LIMIT
    }

    /// Removes the output that waits.
    pub(super) fn take_output(&mut self) -> BytesMut {
        let output = std::mem::take(&mut self.output);
        self.control = 0;
        if !output.is_empty() {
            self.streams.values_mut().for_each(|stream| wake(&mut stream.writer));
        }
        output
    }

    /// Adds a frame to the output.
    pub(super) fn send(&mut self, control: &Control) {
        if self.is_closing {
            return;
        }
        let before = self.output.len();
        control.encode(&mut self.encoder, &mut self.output);
        self.control += self.output.len() - before;
        wake(&mut self.connection);
    }

    /// Adds data to the output.
    pub(super) fn send_data(&mut self, id: u32, fin: bool, data: &[u8]) {
        let before = self.output.len();
        frame::encode_data(id, fin, data, &mut self.output);
        self.control += self.output.len() - before - data.len();
        wake(&mut self.connection);
    }

    /// Adds a stream of this side.
    ///
    /// # Errors
    /// When the connection is closed, or has no further numbers of streams.
    pub(super) fn open(&mut self, headers: HeaderMap) -> io::Result<u32> {
        if self.is_closing || self.peer_is_closing || self.is_disconnected {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let id = self.next;
        if id > i32::MAX.unsigned_abs() {
            return Err(io::Error::other("the connection has no further stream numbers"));
        }
        self.next += 2;
        self.streams.insert(id, StreamState::default());
        self.send(&Control::SynStream { id, fin: false, unidirectional: false, headers });
        Ok(id)
    }

    /// Applies a frame of the other side.
    ///
    /// # Errors
    /// When the frame violates the protocol.
    pub(super) fn receive(&mut self, control: Control) -> Result<(), Error> {
        match control {
            Control::SynStream { id, fin, unidirectional, headers } => {
                self.receive_stream(id, fin, unidirectional, headers)?;
            }
            Control::SynReply { id, fin, .. } => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.is_accepted = true;
                    stream.wake();
                }
                self.receive_end(id, fin);
            }
            Control::Headers { id, fin, .. } => self.receive_end(id, fin),
            Control::RstStream { id, .. } => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.is_reset = true;
                    stream.received = BytesMut::new();
                    stream.wake();
                }
                self.remove_closed(id);
            }
            Control::Ping(id) if is_of(id, self.side.other()) => self.send(&Control::Ping(id)),
            Control::GoAway { .. } => {
                self.peer_is_closing = true;
                wake(&mut self.acceptor);
            }
            Control::Ping(_) | Control::Ignored => {}
        }
        Ok(())
    }

    fn receive_stream(
        &mut self,
        id: u32,
        fin: bool,
        unidirectional: bool,
        headers: HeaderMap,
    ) -> Result<(), Error> {
        if !is_of(id, self.side.other()) || id <= self.last_received {
            return Err(Error::protocol(format!("a stream with the number {id}")));
        }
        self.last_received = id;
        if self.is_closing || self.peer_is_closing {
            return Ok(());
        }
        if self.streams.len() >= self.streams_limit {
            self.send(&Control::RstStream { id, status: frame::REFUSED_STREAM });
            return Ok(());
        }
        let stream = StreamState {
            is_received: fin,
            is_finished: unidirectional,
            is_accepted: true,
            ..StreamState::default()
        };
        self.streams.insert(id, stream);
        self.incoming.push_back((id, headers));
        wake(&mut self.acceptor);
        Ok(())
    }

    /// Moves the begin of the input to a stream, as far as it has capacity. Returns the number of bytes, at most
    /// `length`. Data of closed streams is discarded.
    pub(super) fn receive_data(&mut self, id: u32, input: &mut BytesMut, length: usize) -> usize {
        let mut count = length.min(input.len());
        let stream = self.streams.get_mut(&id).filter(|_| !self.is_closing);
        if let Some(stream) = stream.filter(|s| !s.is_dropped && !s.is_received && !s.is_reset) {
            count = count.min(self.stream_bytes.max(1).saturating_sub(stream.received.len()));
            stream.received.extend_from_slice(input.get(..count).unwrap_or_default());
            wake(&mut stream.reader);
        }
        input.advance(count);
        count
    }

    /// Marks that the other side sends no further data, if `fin`.
    pub(super) fn receive_end(&mut self, id: u32, fin: bool) {
        if let Some(stream) = self.streams.get_mut(&id).filter(|_| fin) {
            stream.is_received = true;
            wake(&mut stream.reader);
            self.remove_closed(id);
        }
    }

    /// Removes received data of a stream, at most `limit` bytes.
    pub(super) fn take_received(&mut self, id: u32, limit: usize) -> BytesMut {
        let Some(stream) = self.streams.get_mut(&id) else { return BytesMut::new() };
        let data = stream.received.split_to(limit.min(stream.received.len()));
        if !data.is_empty() {
            // The connection may wait for capacity of the stream.
            wake(&mut self.connection);
        }
        data
    }

    /// Ends the data of this side.
    pub(super) fn finish(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.is_finished && !stream.is_reset && !self.is_closing {
            stream.is_finished = true;
            self.send_data(id, true, &[]);
        }
    }

    /// Ends a stream in both directions.
    pub(super) fn reset(&mut self, id: u32, status: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let is_open = !(stream.is_reset || stream.is_received && stream.is_finished);
        stream.is_reset = true;
        stream.received = BytesMut::new();
        if is_open {
            self.send(&Control::RstStream { id, status });
        }
        wake(&mut self.connection);
    }

    /// Forgets a stream that this side no longer uses. Its further data is discarded.
    pub(super) fn drop_stream(&mut self, id: u32) {
        self.finish(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_dropped = true;
            stream.received = BytesMut::new();
            wake(&mut self.connection);
        }
        self.remove_closed(id);
    }

    fn remove_closed(&mut self, id: u32) {
        let is_closed = |stream: &StreamState| {
            stream.is_dropped && (stream.is_reset || stream.is_received && stream.is_finished)
        };
        if self.streams.get(&id).is_some_and(is_closed) {
            self.streams.remove(&id);
        }
    }

    /// Ends all streams, and announces it.
    pub(super) fn close(&mut self, status: u32) {
        if self.is_closing {
            return;
        }
        let mut open: Vec<u32> = self.streams.keys().copied().collect();
        open.sort_unstable();
        open.into_iter().for_each(|id| self.finish(id));
        self.send(&Control::GoAway { last: self.last_received, status });
        self.is_closing = true;
        self.wake_all();
    }

    /// Marks that the connection ended.
    pub(super) fn disconnect(&mut self) {
        self.is_disconnected = true;
        self.wake_all();
    }

    fn wake_all(&mut self) {
        self.streams.values_mut().for_each(StreamState::wake);
        wake(&mut self.acceptor);
        wake(&mut self.closer);
        wake(&mut self.connection);
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Whether a number of a stream or ping was chosen by this side.
fn is_of(id: u32, side: Side) -> bool {
    (id % 2 == 1) == (side == Side::Client)
}

pub(super) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
