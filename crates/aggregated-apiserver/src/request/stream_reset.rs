//! Ends a stream from outside, so that a client cannot hold a response by not reading it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

/// Ends the stream of one request. Clones end the same stream.
#[derive(Clone, Debug, Default)]
pub struct StreamReset(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    is_reset: AtomicBool,
    /// The task that encodes and sends the response.
    task: AtomicWaker,
    /// The connection that carries the stream.
    connection: CancellationToken,
    /// Whether a task sends the response on a stream of its own.
    has_stream: AtomicBool,
}

impl StreamReset {
    /// For a stream of a connection that ends when this token is cancelled. A connection with requests of many users is
    /// never cancelled.
    pub fn new(connection: CancellationToken) -> Self {
        Self(Arc::new(Ends { connection, has_stream: true.into(), ..Ends::default() }))
    }

    /// For a connection that carries one request at a time.
    pub fn of_connection(connection: CancellationToken) -> Self {
        Self(Arc::new(Ends { connection, ..Ends::default() }))
    }

    /// Runs the task that encodes and sends the response, until it is complete or the stream is reset. A stream has one
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
        // The memory of the task is freed. Clones, which may live longer, do not hold the task.
        drop(self.0.task.take());
        self.0.has_stream.store(false, Ordering::Relaxed);
    }

    /// Whether there is a stream that can be reset without its connection.
    pub fn has_stream(&self) -> bool {
        self.0.has_stream.load(Ordering::Relaxed)
    }

    /// Resets the stream. The rest of an encoded response without a stream of its own can only be dropped with its
    /// connection, which is closed then if it may be.
    pub fn reset(&self) {
        if self.has_stream() {
            self.0.is_reset.store(true, Ordering::Release);
            self.0.task.wake();
        } else {
            self.0.connection.cancel();
        }
    }
}
