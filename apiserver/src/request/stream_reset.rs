//! Ends a stream from outside: nobody may hold an answer by not reading it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Ends the stream of one request. Copies end the same one.
#[derive(Clone, Debug, Default)]
pub struct StreamReset(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    stream: CancellationToken,
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

    /// Runs what makes and sends the answer, until it is done or the stream is reset.
    pub async fn guard<F: Future<Output = ()>>(self, stream: F) {
        self.0.stream.run_until_cancelled(stream).await;
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
            self.0.stream.cancel();
        } else {
            self.0.connection.cancel();
        }
    }
}
