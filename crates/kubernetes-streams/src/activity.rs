//! Notices connections without traffic.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::Error;

/// The times of the last bytes of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    opened: Instant,
    read: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { opened: Instant::now(), read: Arc::default(), written: Arc::default() }
    }

    /// Waits until no byte was read or written during `limit`.
    pub(crate) async fn idle(&self, limit: Duration) -> Error {
        Self::pause(limit, || self.time(&self.read).max(self.time(&self.written))).await
    }

    /// Waits until no byte was written during `limit` from now.
    pub(crate) async fn stalled(&self, limit: Duration) -> Error {
        let begin = Instant::now();
        Self::pause(limit, || self.time(&self.written).max(begin)).await
    }

    async fn pause(limit: Duration, last: impl Fn() -> Instant) -> Error {
        while last().elapsed() < limit {
            match last().checked_add(limit) {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        }
        Error::Idle(limit)
    }

    /// Returns the recorded time.
    fn time(&self, record: &AtomicU64) -> Instant {
        self.opened + Duration::from_millis(record.load(Ordering::Relaxed))
    }

    /// Records the current time, in milliseconds since the connection was opened.
    fn record(&self, record: &AtomicU64) {
        let elapsed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        record.store(elapsed, Ordering::Relaxed);
    }
}

/// A connection that records its activity.
#[derive(Debug)]
pub(crate) struct Monitored<Io> {
    io: Io,
    activity: Activity,
}

impl<Io> Monitored<Io> {
    pub(crate) fn new(io: Io, activity: &Activity) -> Self {
        Self { io, activity: activity.clone() }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Monitored<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.record(&self.activity.read);
        }
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Monitored<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if matches!(written, Poll::Ready(Ok(count)) if count > 0) {
            self.activity.record(&self.activity.written);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
