//! The future that moves the bytes of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

use super::frame::{Decoder, GOAWAY_PROTOCOL_ERROR, Received};
use super::state::{Shared, wake};
use crate::{Error, Limits};

/// The number of bytes that are read at once.
const READ: usize = 16 << 10;
/// The number of rounds until other tasks get a turn.
const ROUNDS: usize = 64;

/// A connection, as a future that moves its bytes. The future ends when the other side has closed the connection.
///
/// Its error is [`Error::Io`] or [`Error::Protocol`]. Streams fail after the connection ended or was dropped.
#[derive(Debug)]
#[must_use = "a connection does nothing unless it is polled"]
pub struct Connection<Io> {
    io: Io,
    shared: Arc<Shared>,
    decoder: Decoder,
    input: BytesMut,
    /// The data of the current frame that was not received yet.
    data: Option<Data>,
    output: BytesMut,
    is_flushed: bool,
}

#[derive(Debug)]
struct Data {
    id: u32,
    fin: bool,
    length: usize,
}

impl<Io> Connection<Io> {
    pub(super) fn new(io: Io, shared: Arc<Shared>, limits: &Limits) -> Self {
        Self {
            io,
            shared,
            decoder: Decoder::new(limits.header_bytes),
            input: BytesMut::new(),
            data: None,
            output: BytesMut::new(),
            is_flushed: true,
        }
    }
}

impl<Io> Drop for Connection<Io> {
    fn drop(&mut self) {
        self.shared.lock().disconnect();
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Future for Connection<Io> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.shared.lock().connection = Some(cx.waker().clone());
        let result = ready!(this.poll_run(cx));
        if let Err(Error::Protocol(_)) = result {
            this.shared.lock().close(GOAWAY_PROTOCOL_ERROR);
            // The other side may learn the reason, but is not waited for.
            let _ = this.poll_output(cx);
        }
        this.shared.lock().disconnect();
        Poll::Ready(result)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Connection<Io> {
    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        for _ in 0..ROUNDS {
            // Read also while the other side does not read.
            if self.poll_output(cx)?.is_ready() {
                self.poll_sent(cx)?;
            }
            if self.receive()? {
                continue;
            }
            if ready!(self.poll_input(cx))? == 0 {
                let is_complete = self.input.is_empty() && self.data.is_none();
                let end = || Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                return Poll::Ready(if is_complete { Ok(()) } else { end() });
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes the output. Ready when all of it is written.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.output.is_empty() {
                self.output = self.shared.lock().take_output();
            }
            if self.output.is_empty() {
                if !self.is_flushed {
                    ready!(Pin::new(&mut self.io).poll_flush(cx))?;
                    self.is_flushed = true;
                }
                return Poll::Ready(Ok(()));
            }
            self.is_flushed = false;
            let count = ready!(Pin::new(&mut self.io).poll_write(cx, &self.output))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(count);
        }
    }

    /// Closes this direction after the last output.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let state = self.shared.lock();
        if !state.is_closing || state.is_sent {
            return Ok(());
        }
        drop(state);
        if Pin::new(&mut self.io).poll_shutdown(cx)?.is_ready() {
            let mut state = self.shared.lock();
            state.is_sent = true;
            wake(&mut state.closer);
        }
        Ok(())
    }

    /// Reads bytes, unless a stream is full or too much output waits. Returns the number of bytes, 0 at the end.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let is_waiting = self.data.is_some() && !self.input.is_empty();
        if is_waiting || self.shared.lock().is_overloaded() {
            return Poll::Pending;
        }
        self.input.reserve(READ);
        poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input)
    }

    /// Applies the frames of the input. Returns whether there was any.
    fn receive(&mut self) -> Result<bool, Error> {
        let mut state = self.shared.lock();
        let mut has_received = false;
        loop {
            if let Some(data) = &mut self.data {
                let count = state.receive_data(data.id, &mut self.input, data.length);
                data.length -= count;
                has_received |= count > 0;
                if data.length > 0 {
                    return Ok(has_received);
                }
                state.receive_end(data.id, data.fin);
                self.data = None;
            }
            if state.is_overloaded() {
                return Ok(has_received);
            }
            match self.decoder.decode(&mut self.input)? {
                Some(Received::Control(control)) => state.receive(control)?,
                Some(Received::Data { id, fin, length }) => {
                    self.data = Some(Data { id, fin, length });
                }
                None => return Ok(has_received),
            }
            has_received = true;
        }
    }
}
