//! The streams of a connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{CANCEL, Control, GOAWAY_OK, REFUSED_STREAM};
use super::state::{Shared, State};

/// The maximum size of the data of a frame that is sent, in bytes.
const DATA_LIMIT: usize = 32 << 10;

/// Accepts and opens the streams of a connection.
#[derive(Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Returns the next stream that the other side opens, or `None` if there will be none.
    pub async fn accept(&self) -> Option<Incoming> {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if let Some((id, headers)) = state.incoming.pop_front() {
                let shared = Arc::clone(&self.0);
                let stream = Stream { shared, id, headers, is_refused: true };
                return Poll::Ready(Some(Incoming(stream)));
            }
            if state.is_closing || state.peer_is_closing || state.is_disconnected {
                return Poll::Ready(None);
            }
            state.acceptor = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Opens a stream and waits until the other side has accepted it.
    ///
    /// # Errors
    /// When the other side refuses the stream, or the connection ends.
    pub async fn open(&self, headers: HeaderMap) -> io::Result<Stream> {
        let id = self.0.lock().open(headers.clone())?;
        let stream = Stream { shared: Arc::clone(&self.0), id, headers, is_refused: false };
        poll_fn(|cx| {
            let mut state = self.0.lock();
            let is_disconnected = state.is_disconnected;
            match state.streams.get_mut(&id) {
                Some(stream) if stream.is_accepted => Poll::Ready(io::Result::Ok(())),
                Some(stream) if !stream.is_reset && !is_disconnected => {
                    stream.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            }
        })
        .await?;
        Ok(stream)
    }

    /// Ends all streams, announces the end of the connection, and waits until this is written. The connection ends when
    /// the other side has closed it, too.
    ///
    /// # Errors
    /// When the connection ended before.
    pub async fn close(&self) -> io::Result<()> {
        self.0.lock().close(GOAWAY_OK);
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.is_sent {
                return Poll::Ready(Ok(()));
            }
            if state.is_disconnected {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            state.closer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A stream that the other side wants to open. It is refused when it is dropped.
#[derive(Debug)]
pub struct Incoming(Stream);

impl Incoming {
    /// Returns the number of the stream.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// Returns the headers of the stream.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// Accepts the stream.
    pub fn accept(self) -> Stream {
        let mut stream = self.0;
        stream.is_refused = false;
        let reply = Control::SynReply { id: stream.id, fin: false, headers: HeaderMap::new() };
        stream.shared.lock().send(&reply);
        stream
    }
}

/// A stream of a connection.
///
/// Reading fails with `ConnectionReset` after the other side has reset the stream, and with `ConnectionAborted` if the
/// connection ended before the stream did. Dropping a stream ends its data in an orderly way, and discards what is
/// still received.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    id: u32,
    headers: HeaderMap,
    /// Whether the other side waits for a reply, and the stream is refused when it is dropped.
    is_refused: bool,
}

impl Stream {
    /// Returns the number of the stream, which is odd if the client opened it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the headers with which the stream was opened.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Ends the stream in both directions without waiting for its data.
    pub fn reset(self) {
        self.shared.lock().reset(self.id, CANCEL);
    }

    /// Returns why nothing can be written, or `None`.
    fn write_error(&self, state: &State) -> Option<io::Error> {
        let kind = match state.streams.get(&self.id) {
            Some(stream) if !stream.is_reset => {
                let is_closed = stream.is_finished || state.is_closing || state.is_disconnected;
                is_closed.then_some(io::ErrorKind::BrokenPipe)
            }
            _ => Some(io::ErrorKind::ConnectionReset),
        };
        kind.map(io::Error::from)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if self.is_refused {
            state.reset(self.id, REFUSED_STREAM);
        }
        state.drop_stream(self.id);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        let data = state.take_received(self.id, buffer.remaining());
        if !data.is_empty() {
            buffer.put_slice(&data);
            return Poll::Ready(Ok(()));
        }
        let is_disconnected = state.is_disconnected || state.is_closing;
        match state.streams.get_mut(&self.id) {
            Some(stream) if stream.is_reset => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            Some(stream) if !stream.is_received => {
                if is_disconnected {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                stream.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.shared.lock();
        if let Some(error) = self.write_error(&state) {
            return Poll::Ready(Err(error));
        }
        if state.is_full() {
            if let Some(stream) = state.streams.get_mut(&self.id) {
                stream.writer = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        let count = bytes.len().min(DATA_LIMIT);
        if count > 0 {
            state.send_data(self.id, false, bytes.get(..count).unwrap_or_default());
        }
        Poll::Ready(Ok(count))
    }

    /// Does nothing: the connection writes all output as soon as possible.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().finish(self.id);
        Poll::Ready(Ok(()))
    }
}
