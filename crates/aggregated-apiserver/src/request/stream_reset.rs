//! Resets a stream from outside, so that a client cannot hold the memory of a response by not reading it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

/// Resets the stream of one request. Copies reset the same stream.
#[derive(Clone, Debug, Default)]
pub struct StreamReset(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    is_reset: AtomicBool,
    /// The task that generates and sends the response; the only one that is woken.
    task: AtomicWaker,
    /// The connection that carries the stream.
    connection: CancellationToken,
    /// Whether a task generates and sends the response on a stream of its own.
    has_stream: AtomicBool,
}

impl StreamReset {
    /// The handle of a stream. Cancelling `connection` closes the connection. It is never cancelled if the connection
    /// carries the requests of many users.
    pub fn new(connection: CancellationToken) -> Self {
        Self(Arc::new(Ends { connection, has_stream: true.into(), ..Ends::default() }))
    }

    /// The handle of a connection that carries one request at a time.
    pub fn of_connection(connection: CancellationToken) -> Self {
        Self(Arc::new(Ends { connection, ..Ends::default() }))
    }

    /// Runs the future that generates and sends the response, until it is done or the stream is reset. A stream has one
    /// such task.
    pub async fn guard<F: Future<Output = ()>>(self, stream: F) {
        {
            let mut stream = pin!(stream);
            poll_fn(|context| {
                self.0.task.register(context.waker());
                match self.0.is_reset.load(Ordering::Acquire) {
                    true => Poll::Ready(()),
                    false => stream.as_mut().poll(context),
                }
            })
            .await;
        }
        // The memory of the future is free. Copies of this handle, which may live longer, do not hold the task.
        drop(self.0.task.take());
        self.0.has_stream.store(false, Ordering::Relaxed);
    }

    /// Whether there is a stream that can be reset separately.
    pub fn has_stream(&self) -> bool {
        self.0.has_stream.load(Ordering::Relaxed)
    }

    /// Resets the stream. If the task has finished, unsent bytes can only be removed together with the connection: its
    /// token is cancelled.
    pub fn reset(&self) {
        if self.has_stream() {
            self.0.is_reset.store(true, Ordering::Release);
            self.0.task.wake();
        } else {
            self.0.connection.cancel();
        }
    }
}
