//! The streams of an HTTP/2 connection: each can be ended from outside, and of those that are begun
//! and taken back at once no more are there than can be ended meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use crate::request::StreamReset;

tokio::task_local! {
    static STREAM: StreamReset;
}

/// Streams whose tasks have not begun, at most: HTTP is faster than what it has begun.
const NOT_BEGUN: usize = 100;
/// Streams whose tasks may be there besides those that are open: the client has taken them back, and
/// their tasks do not know it yet.
const TAKEN_BACK: usize = 200;

/// Runs the streams of a connection, each as a task of its own.
#[derive(Clone)]
pub(super) struct Streams {
    connection: CancellationToken,
    running: Arc<Running>,
}

impl Streams {
    /// Of a connection that ends when this token is cancelled, and on which so many may be open.
    pub(super) fn new(connection: CancellationToken, open: u32) -> Self {
        let running = Running {
            limit: (open as usize).saturating_add(TAKEN_BACK),
            count: AtomicUsize::new(0),
            not_begun: AtomicUsize::new(0),
            reader: AtomicWaker::new(),
        };
        Self { connection, running: Arc::new(running) }
    }

    /// Their tasks.
    pub(super) fn running(&self) -> Arc<Running> {
        Arc::clone(&self.running)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let reset = StreamReset::new(self.connection.clone());
        // Boxed, because whatever holds a future and awaits it has room for it twice.
        let stream = STREAM.scope(reset.clone(), reset.guard(Box::pin(stream)));
        let (begins, ends) = (Begins::new(self.running()), Ends::new(self.running()));
        tokio::spawn(async move {
            drop(begins);
            stream.await;
            drop(ends);
        });
    }
}

/// The tasks of the streams of a connection.
pub(super) struct Running {
    limit: usize,
    count: AtomicUsize,
    not_begun: AtomicUsize,
    /// Who reads from the connection.
    reader: AtomicWaker,
}

impl Running {
    /// Ready when there is room for the tasks of more streams.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        let is_full = || {
            self.count.load(Ordering::Acquire) >= self.limit
                || self.not_begun.load(Ordering::Acquire) >= NOT_BEGUN
        };
        if !is_full() {
            return Poll::Ready(());
        }
        self.reader.register(context.waker());
        // One may have ended in between.
        if is_full() { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// Counts a task until it begins.
struct Begins(Arc<Running>);

impl Begins {
    fn new(running: Arc<Running>) -> Self {
        running.not_begun.fetch_add(1, Ordering::AcqRel);
        Self(running)
    }
}

impl Drop for Begins {
    fn drop(&mut self) {
        if self.0.not_begun.fetch_sub(1, Ordering::AcqRel) == NOT_BEGUN {
            self.0.reader.wake();
        }
    }
}

/// Counts a task until it is gone.
struct Ends(Arc<Running>);

impl Ends {
    fn new(running: Arc<Running>) -> Self {
        running.count.fetch_add(1, Ordering::AcqRel);
        Self(running)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == self.0.limit {
            self.0.reader.wake();
        }
    }
}

/// Ends the stream whose task this is; `None` over HTTP/1.1, which has none.
pub(super) fn current() -> Option<StreamReset> {
    STREAM.try_with(StreamReset::clone).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::poll_fn;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn no_more_is_read_than_begins() {
        let streams = Streams::new(CancellationToken::new(), 1_000);
        let running = streams.running();
        let room = || poll_fn(|context| running.poll_room(context));
        for _ in 0..NOT_BEGUN {
            assert!(room().now_or_never().is_some());
            streams.execute(std::future::pending());
        }
        assert!(room().now_or_never().is_none());
        // They begin when they have their turn.
        room().await;
    }

    #[tokio::test]
    async fn no_more_is_read_than_there_is_room_for() {
        let streams = Streams::new(CancellationToken::new(), 1);
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
        // Who waits is woken by the first that ends.
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
