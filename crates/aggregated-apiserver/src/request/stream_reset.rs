//! Resets a stream from outside, so that a client cannot hold the memory of a response by not reading it.

use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Resets the stream of one request. Copies reset the same stream.
#[derive(Clone, Debug, Default)]
pub struct StreamReset(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    is_reset: AtomicBool,
    /// The task that generates and sends the response; the only one that is woken.
    task: AtomicWaker,
    connection: Connection,
    /// Whether a task generates and sends the response on a stream of its own.
    has_stream: AtomicBool,
}

/// The connection that carries the stream.
#[derive(Debug)]
enum Connection {
    /// The token that closes the connection.
    Shared(CancellationToken),
    /// A connection that carries one request at a time.
    Own(Box<ConnectionHandle>),
}

impl Default for Connection {
    fn default() -> Self {
        Self::Shared(CancellationToken::new())
    }
}

/// The stream of a connection, which can be closed from outside.
pub trait Close: Send + Sync {
    /// Closes the stream, and frees its memory.
    fn close(&self);
}

/// The time in which a connection must end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// A connection that carries one request at a time, or that code has taken over.
#[derive(Clone)]
pub struct ConnectionHandle {
    /// Cancelled when the connection ends. Cancelling it fails the reads and writes of the connection.
    pub ended: CancellationToken,
    /// The last transfer of bytes.
    pub activity: Activity,
    /// The stream, as long as it is open.
    pub stream: Weak<dyn Close>,
}

impl ConnectionHandle {
    /// Ends the connection, also if the code that has taken it over neither reads nor writes.
    pub async fn end(&self) {
        self.ended.cancel();
        sleep(GRACE).await;
        if let Some(stream) = self.stream.upgrade() {
            stream.close();
        }
    }
}

impl fmt::Debug for ConnectionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectionHandle").field(&self.ended.is_cancelled()).finish()
    }
}

/// The time of the last transfer of bytes. Copies share the time.
#[derive(Clone, Debug)]
pub struct Activity(Arc<Mutex<Instant>>);

impl Default for Activity {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Activity {
    /// Notes that bytes are transferred now.
    pub fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns when no byte was transferred for this time.
    pub async fn idle(&self, longest: Duration) {
        loop {
            let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(until) = last.checked_add(longest) else { return pending().await };
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl StreamReset {
    /// The handle of a stream. Cancelling `connection` closes the connection. It is never cancelled if the connection
    /// carries the requests of many users.
    pub fn new(connection: CancellationToken) -> Self {
        let connection = Connection::Shared(connection);
        Self(Arc::new(Ends { connection, has_stream: true.into(), ..Ends::default() }))
    }

    /// The handle of a connection that carries one request at a time.
    pub fn of_connection(handle: ConnectionHandle) -> Self {
        let connection = Connection::Own(Box::new(handle));
        Self(Arc::new(Ends { connection, ..Ends::default() }))
    }

    /// The connection, if it carries one request at a time.
    pub fn connection(&self) -> Option<&ConnectionHandle> {
        match &self.0.connection {
            Connection::Own(handle) => Some(handle),
            Connection::Shared(_) => None,
        }
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
            match &self.0.connection {
                Connection::Shared(connection) => connection.cancel(),
                Connection::Own(handle) => handle.ended.cancel(),
            }
        }
    }
}
