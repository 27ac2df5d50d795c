//! The streams of an HTTP/2 connection. Each stream can be ended from outside. The number of streams that clients open
//! and reset at once is limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use super::occupant::Occupant;
use crate::request::StreamReset;

tokio::task_local! {
    static STREAM: StreamReset;
}

/// The largest number of streams whose tasks have not started yet. HTTP accepts streams faster than tasks start.
const NOT_BEGUN: usize = 100;
/// The largest number of tasks of streams that the client has reset, in addition to the tasks of open streams. Such a
/// task has not noticed the reset yet.
const TAKEN_BACK: usize = 200;

/// Runs each stream of a connection in its own task.
#[derive(Clone)]
pub(super) struct Streams {
    connection: CancellationToken,
    running: Arc<Running>,
    occupant: Arc<Occupant>,
}

impl Streams {
    /// The streams of a connection that ends when `connection` is cancelled, and that may have `open` streams open.
    pub(super) fn new(connection: CancellationToken, open: u32, occupant: Arc<Occupant>) -> Self {
        let running = Running {
            all: Tasks::new((open as usize).saturating_add(TAKEN_BACK)),
            not_begun: Tasks::new(NOT_BEGUN),
            reader: AtomicWaker::new(),
        };
        Self { connection, running: Arc::new(running), occupant }
    }

    /// The tasks of the streams.
    pub(super) fn running(&self) -> Arc<Running> {
        Arc::clone(&self.running)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let reset = StreamReset::new(self.connection.clone());
        // The future is boxed, because a future that holds and awaits another future reserves its size twice.
        let stream = STREAM.scope(reset.clone(), reset.guard(Box::pin(stream)));
        let not_begun = Counted::new(self.running(), |running| &running.not_begun);
        let running = Counted::new(self.running(), |running| &running.all);
        let in_flight = self.occupant.begin();
        tokio::spawn(async move {
            drop(not_begun);
            stream.await;
            drop((running, in_flight));
        });
    }
}

/// The tasks of the streams of a connection.
pub(super) struct Running {
    all: Tasks,
    not_begun: Tasks,
    /// The task that reads from the connection.
    reader: AtomicWaker,
}

/// The number of tasks, and the number at which reading stops.
struct Tasks {
    limit: usize,
    count: AtomicUsize,
}

impl Tasks {
    fn new(limit: usize) -> Self {
        Self { limit, count: AtomicUsize::new(0) }
    }

    fn is_full(&self) -> bool {
        self.count.load(Ordering::Acquire) >= self.limit
    }
}

impl Running {
    /// Ready when the tasks of more streams may start.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        let is_full = || self.all.is_full() || self.not_begun.is_full();
        if !is_full() {
            return Poll::Ready(());
        }
        self.reader.register(context.waker());
        // A task may have ended since the first check.
        if is_full() { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// Counts a task, until it is dropped.
struct Counted {
    running: Arc<Running>,
    among: fn(&Running) -> &Tasks,
}

impl Counted {
    fn new(running: Arc<Running>, among: fn(&Running) -> &Tasks) -> Self {
        among(&running).count.fetch_add(1, Ordering::AcqRel);
        Self { running, among }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let tasks = (self.among)(&self.running);
        if tasks.count.fetch_sub(1, Ordering::AcqRel) == tasks.limit {
            self.running.reader.wake();
        }
    }
}

/// The stream of the present task; `None` over HTTP/1.1, which has no streams.
pub(super) fn current() -> Option<StreamReset> {
    STREAM.try_with(StreamReset::clone).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ConnectionPriority;
    use futures::FutureExt;
    use futures::future::poll_fn;
    use tokio::sync::oneshot;

    fn occupant() -> Arc<Occupant> {
        Occupant::new([10, 0, 0, 1].into(), ConnectionPriority::default())
    }

    #[tokio::test]
    async fn no_more_is_read_than_begins() {
        let streams = Streams::new(CancellationToken::new(), 1_000, occupant());
        let running = streams.running();
        let room = || poll_fn(|context| running.poll_room(context));
        for _ in 0..NOT_BEGUN {
            assert!(room().now_or_never().is_some());
            streams.execute(std::future::pending());
        }
        assert!(room().now_or_never().is_none());
        // The tasks start when the scheduler runs them.
        room().await;
    }

    #[tokio::test]
    async fn reading_pauses_at_the_limit_of_stream_tasks() {
        let streams = Streams::new(CancellationToken::new(), 1, occupant());
        let running = streams.running();
        let has_room = || poll_fn(|context| Poll::Ready(running.poll_room(context).is_ready()));
        let mut ends = Vec::new();
        for _ in 0..=TAKEN_BACK {
            assert!(has_room().await);
            let (end, ended) = oneshot::channel::<()>();
            streams.execute(async { drop(ended.await) });
            ends.push(end);
            tokio::task::yield_now().await;
        }
        assert!(!has_room().await);
        // The first task that ends wakes the waiting reader.
        let waits = tokio::spawn({
            let running = streams.running();
            async move { poll_fn(|context| running.poll_room(context)).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(ends.pop());
        waits.await.unwrap();
        drop(ends);
    }
}
