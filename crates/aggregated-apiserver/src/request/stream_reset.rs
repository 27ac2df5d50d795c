//! Ends a stream from outside: nobody may hold an answer by not reading it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

/// Ends the stream of one request. Copies end the same one.
#[derive(Clone, Debug, Default)]
pub struct StreamReset(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    is_reset: AtomicBool,
    /// The task that makes and sends the answer, which is the only one to be told.
    task: AtomicWaker,
    /// The connection that carries the stream.
    connection: CancellationToken,
    /// Whether a task makes and sends the answer on a stream of its own.
    has_stream: AtomicBool,
}

impl StreamReset {
    /// Of a stream of a connection that ends when this token is cancelled. Of one that carries the
    /// requests of many users nobody cancels it.
    pub fn new(connection: CancellationToken) -> Self {
        Self(Arc::new(Ends { connection, has_stream: true.into(), ..Ends::default() }))
    }

    /// Of a connection that carries one request at a time.
    pub fn of_connection(connection: CancellationToken) -> Self {
        Self(Arc::new(Ends { connection, ..Ends::default() }))
    }

    /// Runs what makes and sends the answer, until it is done or the stream is reset. There is one such
    /// task of a stream.
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
        // What it held is free. Copies of this, which may live on, do not keep the task.
        drop(self.0.task.take());
        self.0.has_stream.store(false, Ordering::Relaxed);
    }

    /// Whether there is a stream that can be reset by itself.
    pub fn has_stream(&self) -> bool {
        self.0.has_stream.load(Ordering::Relaxed)
    }

    /// Resets the stream. What is left of an answer that has been made and not been sent can
    /// only be taken from its connection: then that ends, if it may.
    pub fn reset(&self) {
        if self.has_stream() {
            self.0.is_reset.store(true, Ordering::Release);
            self.0.task.wake();
        } else {
            self.0.connection.cancel();
        }
    }
}
