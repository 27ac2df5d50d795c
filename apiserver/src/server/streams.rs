//! The streams of an HTTP/2 connection: each can be ended from outside.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use crate::request::StreamReset;

tokio::task_local! {
    static STREAM: StreamReset;
}

/// Runs the streams of a connection, each as a task of its own.
#[derive(Clone)]
pub(super) struct Streams {
    connection: CancellationToken,
}

impl Streams {
    /// Of a connection that ends when this token is cancelled.
    pub(super) fn new(connection: CancellationToken) -> Self {
        Self { connection }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let reset = StreamReset::new(self.connection.clone());
        tokio::spawn(STREAM.scope(reset.clone(), reset.guard(stream)));
    }
}

/// Ends the stream whose task this is; `None` over HTTP/1.1, which has none.
pub(super) fn current() -> Option<StreamReset> {
    STREAM.try_with(StreamReset::clone).ok()
}
