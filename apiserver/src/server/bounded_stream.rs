//! The bytes of one connection, within bounds of time, for as long as it has its place.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::frame_budget::{FrameBudget, PREFACE};
use super::streams::Running;

/// How long the first bytes after the handshake may take; as kube-apiserver's header timeout.
const FIRST_BYTES: Duration = Duration::from_secs(32);
/// How long a client may take nothing of what is sent: what waits for it is held in memory.
const STUCK: Duration = Duration::from_secs(60);

/// How much is read before HTTP is left to answer: what is read of requests is held until they
/// have their turn.
const TURN: usize = 64 << 10;

/// A stream that holds what its connection has taken, and fails if its first bytes do not come
/// in time, if nothing of what is sent is taken, or when it has to give way.
pub(super) struct BoundedStream<S, H> {
    stream: S,
    received: usize,
    /// What was read since there was nothing to read.
    in_turn: usize,
    /// For the first bytes; later for what is sent.
    deadline: Pin<Box<Sleep>>,
    /// Whether something waits to be sent, and the deadline is about that.
    is_stuck: bool,
    /// What becomes of what is read.
    streams: Arc<Running>,
    /// Of a client that speaks for itself.
    budget: Option<FrameBudget>,
    /// When more may be read.
    slowed: Option<Pin<Box<Sleep>>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    _held: H,
}

impl<S, H> BoundedStream<S, H> {
    /// Fails when `evicted` is cancelled; `held` is dropped with it. Nothing is read while too many
    /// streams run, and frames that ask for nothing are read slowly if there is a budget for them.
    pub(super) fn new(
        stream: S,
        streams: Arc<Running>,
        budget: Option<FrameBudget>,
        evicted: CancellationToken,
        held: H,
    ) -> Self {
        Self {
            stream,
            received: 0,
            in_turn: 0,
            deadline: Box::pin(sleep(FIRST_BYTES)),
            is_stuck: false,
            streams,
            budget,
            slowed: None,
            evicted: Box::pin(evicted.cancelled_owned()),
            _held: held,
        }
    }

    /// Not ready while more of these frames have come than may.
    fn poll_budget(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(budget) = &mut self.budget else { return Poll::Ready(()) };
        while let Some(until) = budget.wait() {
            let slowed = self.slowed.get_or_insert_with(|| Box::pin(sleep_until(until)));
            ready!(slowed.as_mut().poll(context));
            self.slowed = None;
        }
        Poll::Ready(())
    }

    /// Counts what was sent.
    fn sent(&mut self, polled: &Poll<io::Result<usize>>) {
        if let (Poll::Ready(Ok(length)), Some(budget)) = (polled, &mut self.budget) {
            budget.sent(*length);
        }
    }

    /// What was polled, unless it is not ready and the connection has to give way; the task
    /// is woken when it has to.
    fn unless_evicted<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.evicted.as_mut().poll(context).is_ready() {
            let why = "others need the place of this connection";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
        polled
    }

    /// The same of what is sent, which must not wait for ever.
    fn unless_stuck<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.is_stuck = false;
            return polled;
        }
        if !self.is_stuck {
            self.is_stuck = true;
            self.deadline.as_mut().reset(Instant::now() + STUCK);
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            let why = "the client takes nothing of what is sent";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        self.unless_evicted(polled, context)
    }
}

impl<S: AsyncRead + Unpin, H: Unpin> AsyncRead for BoundedStream<S, H> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.streams.poll_room(context).is_pending() || self.poll_budget(context).is_pending() {
            return self.unless_evicted(Poll::Pending, context);
        }
        if self.in_turn >= TURN {
            self.in_turn = 0;
            context.waker().wake_by_ref();
            return self.unless_evicted(Poll::Pending, context);
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let new = &buffer.filled()[before..];
        self.received = self.received.saturating_add(new.len());
        self.in_turn = if polled.is_pending() { 0 } else { self.in_turn + new.len() };
        if let Some(budget) = &mut self.budget {
            budget.received(new);
        }
        let is_silent = polled.is_pending() && self.received < PREFACE.len() && !self.is_stuck;
        if is_silent && self.deadline.as_mut().poll(context).is_ready() {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the client says nothing");
            return Poll::Ready(Err(late));
        }
        self.unless_evicted(polled, context)
    }
}

impl<S: AsyncWrite + Unpin, H: Unpin> AsyncWrite for BoundedStream<S, H> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(&polled);
        self.unless_stuck(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(&polled);
        self.unless_stuck(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.unless_stuck(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.unless_stuck(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::streams::Streams;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn streams() -> Arc<Running> {
        Streams::new(CancellationToken::new(), 1).running()
    }

    fn bounded<S>(stream: S) -> BoundedStream<S, ()> {
        let budget = Some(FrameBudget::new());
        BoundedStream::new(stream, streams(), budget, CancellationToken::new(), ())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_cut() {
        let (ours, theirs) = duplex(64);
        let error = bounded(ours).read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_gives_way() {
        let (ours, theirs) = duplex(64);
        let evicted = CancellationToken::new();
        let mut stream = BoundedStream::new(ours, streams(), None, evicted.clone(), ());
        evicted.cancel();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut_and_a_slow_one_is_not() {
        let (ours, mut theirs) = duplex(64);
        let mut stream = bounded(ours);
        let sent = tokio::spawn(async move { stream.write_all(&[0; 64 * 5]).await });
        for _ in 0..3 {
            sleep(STUCK * 9 / 10).await;
            theirs.read_exact(&mut [0; 64]).await.unwrap();
        }
        let error = sent.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_spoken_may_be_silent() {
        let (ours, mut theirs) = duplex(64);
        let mut stream = bounded(ours);
        theirs.write_all(PREFACE).await.unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let silence = tokio::time::timeout(FIRST_BYTES * 10, stream.read_u8()).await;
        assert!(silence.is_err(), "only the test gives up");
    }
}
