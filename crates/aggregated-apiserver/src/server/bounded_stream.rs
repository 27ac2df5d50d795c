//! The byte stream of a connection, with time limits for what the client sends and receives.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::frame_budget::{FrameBudget, PREFACE};
use super::occupant::Occupant;
use super::streams::Running;
use crate::request::Close;

/// The time limit for the first bytes after the handshake, and for the head of a request over HTTP/1.1 from its first
/// byte. Same as kube-apiserver's header timeout.
const HEAD: Duration = Duration::from_secs(32);
/// The longest pause between two requests over HTTP/1.1. kube-apiserver and clients written in Go use 90 seconds. So
/// these clients close the connection first, and never send a request at the moment when the server closes it.
const IDLE: Duration = Duration::from_secs(95);
/// The longest time in which a client may receive no byte of pending data, which is held in memory.
const STUCK: Duration = Duration::from_secs(60);

/// The number of bytes that are read before the connection's task yields. Requests that were read are held in memory
/// until they are processed.
const TURN: usize = 64 << 10;

/// A stream that holds the slot of its connection. It fails if the head of a request is late, if the client does not
/// receive what is sent, or if the connection is cut.
pub(super) struct BoundedStream<S, H> {
    stream: Arc<SharedStream<S, H>>,
    received: usize,
    /// Whether the received bytes are a prefix of the HTTP/2 preface, or begin with the preface.
    is_preface: bool,
    phase: Phase,
    /// The number of requests when the phase began.
    requests: usize,
    occupant: Arc<Occupant>,
    /// The number of bytes read since the last read without data.
    in_turn: usize,
    /// The deadline of the phase.
    silence: Pin<Box<Sleep>>,
    /// The deadline of pending data.
    deadline: Pin<Box<Sleep>>,
    /// Whether data is pending and `deadline` is set.
    is_stuck: bool,
    /// The tasks of the connection's streams.
    streams: Arc<Running>,
    /// The budget of frames; `None` for the front proxy.
    budget: Option<FrameBudget>,
    /// The time at which reading continues, if the budget is exceeded.
    slowed: Option<Pin<Box<Sleep>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// The stream of a connection, with what is held as long as it is open. Code that has taken over the connection may
/// neither read nor write, so the stream can be closed from outside.
pub(super) struct SharedStream<S, H>(Mutex<Option<(S, H)>>);

impl<S, H> SharedStream<S, H> {
    /// A stream; `held` is dropped with it.
    pub(super) fn new(stream: S, held: H) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some((stream, held)))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(S, H)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation on the stream; an error if it was closed.
    fn poll<T>(
        &self,
        operation: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>>
    where
        S: Unpin,
    {
        match self.lock().as_mut() {
            Some((stream, _)) => operation(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl<S: Send, H: Send> Close for SharedStream<S, H> {
    fn close(&self) {
        let closed = self.lock().take();
        drop(closed);
    }
}

/// The state of a connection of HTTP/1.1, or of one that has not begun to speak HTTP/2.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The head of a request is arriving, or the first bytes of all are awaited.
    Head,
    /// A request is in flight.
    Busy,
    /// The next request is awaited.
    Idle,
    /// The connection speaks HTTP/2, which has pings.
    Http2,
}

impl<S, H> BoundedStream<S, H> {
    /// A stream that fails when `cut` is cancelled. Nothing is read while too many streams run. With a budget, frames
    /// that carry no request are read slowly.
    pub(super) fn new(
        stream: Arc<SharedStream<S, H>>,
        streams: Arc<Running>,
        budget: Option<FrameBudget>,
        occupant: Arc<Occupant>,
        cut: CancellationToken,
    ) -> Self {
        Self {
            stream,
            received: 0,
            is_preface: true,
            phase: Phase::Head,
            requests: 0,
            occupant,
            in_turn: 0,
            silence: Box::pin(sleep(HEAD)),
            deadline: Box::pin(sleep(STUCK)),
            is_stuck: false,
            streams,
            budget,
            slowed: None,
            cut: Box::pin(cut.cancelled_owned()),
        }
    }

    /// Updates the phase after a read, and sets the deadline of the new phase.
    fn note_read(&mut self, new: &[u8]) {
        let preface = PREFACE.get(self.received..).unwrap_or_default();
        let length = preface.len().min(new.len());
        self.is_preface &= new[..length] == preface[..length];
        if self.is_preface && length == preface.len() {
            self.phase = Phase::Http2;
        }
        if self.phase == Phase::Http2 {
            return;
        }
        let requests = self.occupant.received();
        if self.occupant.is_in_use() || requests != self.requests {
            self.phase = Phase::Busy;
            self.requests = requests;
        }
        if self.occupant.is_in_use() {
            return;
        }
        let (next, time) = match (self.phase, new.is_empty()) {
            (Phase::Busy, true) => (Phase::Idle, IDLE),
            (Phase::Busy | Phase::Idle, false) => (Phase::Head, HEAD),
            _ => return,
        };
        self.phase = next;
        if next == Phase::Head {
            self.occupant.await_head();
        }
        self.silence.as_mut().reset(Instant::now() + time);
    }

    /// Pending while more frames have arrived than the budget allows.
    fn poll_budget(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(budget) = &mut self.budget else { return Poll::Ready(()) };
        while let Some(until) = budget.wait() {
            let slowed = self.slowed.get_or_insert_with(|| Box::pin(sleep_until(until)));
            ready!(slowed.as_mut().poll(context));
            self.slowed = None;
        }
        Poll::Ready(())
    }

    /// Notes and counts the bytes that were sent.
    fn sent(&mut self, polled: &Poll<io::Result<usize>>) {
        let Poll::Ready(Ok(length)) = polled else { return };
        self.occupant.activity().note();
        if let Some(budget) = &mut self.budget {
            budget.sent(*length);
        }
    }

    /// Returns `polled`, or an error if it is pending and the connection is cut. Cutting the connection wakes the task.
    fn unless_cut<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.cut.as_mut().poll(context).is_ready() {
            let why = "the connection is cut";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
        polled
    }

    /// Same as `unless_cut` for data that is sent, with a limit for the time that it is pending.
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
        self.unless_cut(polled, context)
    }
}

impl<S: AsyncRead + Unpin, H> AsyncRead for BoundedStream<S, H> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.streams.poll_room(context).is_pending() || self.poll_budget(context).is_pending() {
            return self.unless_cut(Poll::Pending, context);
        }
        if self.in_turn >= TURN {
            self.in_turn = 0;
            context.waker().wake_by_ref();
            return self.unless_cut(Poll::Pending, context);
        }
        let before = buffer.filled().len();
        let polled = self.stream.poll(|stream| stream.poll_read(context, buffer));
        let new = &buffer.filled()[before..];
        if !new.is_empty() {
            self.occupant.activity().note();
        }
        self.note_read(new);
        self.received = self.received.saturating_add(new.len());
        self.in_turn = if polled.is_pending() { 0 } else { self.in_turn + new.len() };
        if let Some(budget) = &mut self.budget {
            budget.received(new);
        }
        let is_limited = polled.is_pending() && matches!(self.phase, Phase::Head | Phase::Idle);
        if is_limited && self.silence.as_mut().poll(context).is_ready() {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the client sends no request");
            return Poll::Ready(Err(late));
        }
        self.unless_cut(polled, context)
    }
}

impl<S: AsyncWrite + Unpin, H> AsyncWrite for BoundedStream<S, H> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = self.stream.poll(|stream| stream.poll_write(context, bytes));
        self.sent(&polled);
        self.unless_stuck(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = self.stream.poll(|stream| stream.poll_write_vectored(context, slices));
        self.sent(&polled);
        self.unless_stuck(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.lock().as_ref().is_some_and(|(stream, _)| stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.stream.poll(|stream| stream.poll_flush(context));
        self.unless_stuck(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.stream.poll(|stream| stream.poll_shutdown(context));
        self.unless_stuck(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ConnectionPriority;
    use crate::server::streams::Streams;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    fn occupant() -> Arc<Occupant> {
        Occupant::new([10, 0, 0, 1].into(), ConnectionPriority::default())
    }

    fn bounded<S>(
        stream: S,
        occupant: &Arc<Occupant>,
        cut: &CancellationToken,
    ) -> BoundedStream<S, ()> {
        let streams = Streams::new(CancellationToken::new(), 1, Arc::clone(occupant)).running();
        let (budget, occupant) = (Some(FrameBudget::new()), Arc::clone(occupant));
        let stream = SharedStream::new(stream, ());
        BoundedStream::new(stream, streams, budget, occupant, cut.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_request_is_disconnected() {
        let (ours, theirs) = duplex(64);
        let began = Instant::now();
        let error = bounded(ours, &occupant(), &CancellationToken::new()).read_u8().await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), HEAD.as_secs());
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_cut() {
        let (ours, theirs) = duplex(64);
        let cut = CancellationToken::new();
        let mut stream = bounded(ours, &occupant(), &cut);
        cut.cancel();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_no_response_is_disconnected_but_a_slow_one_is_not() {
        let (ours, mut theirs) = duplex(64);
        let mut stream = bounded(ours, &occupant(), &CancellationToken::new());
        let sent = tokio::spawn(async move { stream.write_all(&[0; 64 * 5]).await });
        for _ in 0..3 {
            sleep(STUCK * 9 / 10).await;
            theirs.read_exact(&mut [0; 64]).await.unwrap();
        }
        let error = sent.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_http2_may_be_silent() {
        let (ours, mut theirs) = duplex(64);
        let mut stream = bounded(ours, &occupant(), &CancellationToken::new());
        for part in PREFACE.chunks(7) {
            theirs.write_all(part).await.unwrap();
            stream.read_exact(&mut [0; 7][..part.len()]).await.unwrap();
        }
        let silence = tokio::time::timeout(HEAD * 10, stream.read_u8()).await;
        assert!(silence.is_err(), "only the test gives up");
    }

    /// The time until a read fails, in seconds.
    async fn until_cut<S: AsyncRead + Unpin>(stream: &mut BoundedStream<S, ()>) -> u64 {
        let began = Instant::now();
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_closed_when_idle_too_long_but_not_during_a_request() {
        let (ours, mut theirs) = duplex(64);
        let occupant = occupant();
        let mut stream = bounded(ours, &occupant, &CancellationToken::new());
        for _ in 0..2 {
            theirs.write_all(REQUEST).await.unwrap();
            stream.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
            let request = occupant.begin();
            let answered = tokio::time::timeout(HEAD * 10, stream.read_u8()).await;
            assert!(answered.is_err(), "a request is in flight");
            drop(request);
            let paused = tokio::time::timeout(Duration::from_secs(90), stream.read_u8()).await;
            assert!(paused.is_err(), "only the test gives up");
        }
        assert_eq!(until_cut(&mut stream).await, IDLE.as_secs() - 90);
    }

    #[tokio::test(start_paused = true)]
    async fn the_header_timeout_of_a_later_request_starts_at_its_first_byte() {
        let (ours, mut theirs) = duplex(64);
        let occupant = occupant();
        let mut stream = bounded(ours, &occupant, &CancellationToken::new());
        theirs.write_all(REQUEST).await.unwrap();
        stream.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
        drop(occupant.begin());
        assert!(tokio::time::timeout(HEAD * 2, stream.read_u8()).await.is_err());
        assert!(occupant.may_give_way());
        let dribbles = async {
            // Each byte arrives soon, but the head never ends.
            for _ in 0..100 {
                sleep(HEAD / 4).await;
                if theirs.write_all(b"G").await.is_err() {
                    return;
                }
            }
        };
        let cut = async {
            let began = loop {
                if stream.read_u8().await.is_ok() {
                    break Instant::now();
                }
            };
            assert!(!occupant.may_give_way(), "the head of a request arrives");
            while stream.read_u8().await.is_ok() {}
            drop(stream);
            began.elapsed()
        };
        let ((), lasted) = futures::join!(dribbles, cut);
        assert!(lasted <= HEAD + Duration::from_secs(1), "{lasted:?}");
    }
}
