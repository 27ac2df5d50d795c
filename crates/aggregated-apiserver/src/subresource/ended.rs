//! The end of a long request.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio_util::sync::CancellationToken;

use crate::error::{ApiError, Reason};

/// Completes when a request must end: because the server drains, the object is deleted, the user has lost the
/// permission, or the time of the request is over. It also completes when the request has ended by itself, so tasks of
/// the handler can wait for it. A handler that has taken over a connection has five seconds for a farewell, such as the
/// close frame of a WebSocket, before the connection is closed. A handler that has not answered yet is dropped.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    token: CancellationToken,
    /// The error for the client; none if the request has ended by itself.
    cause: Arc<OnceLock<ApiError>>,
}

impl Ended {
    /// Returns when the request must end.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }

    /// Whether the request must end.
    pub fn has_ended(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Ends the request.
    pub(crate) fn end(&self) {
        self.token.cancel();
    }

    /// Ends the request with an error for its client.
    pub(crate) fn end_with(&self, error: ApiError) {
        // The first error is the cause of the end.
        let _ = self.cause.set(error);
        self.end();
    }

    /// Returns when the request must end: the HTTP status code, the reason and the message for its client.
    pub(super) async fn cause(&self) -> (u16, &'static str, String) {
        self.wait().await;
        let (reason, message) = match self.cause.get() {
            Some(error) => (error.reason(), error.to_string()),
            None => (Reason::ServiceUnavailable, "the request has ended".to_owned()),
        };
        (reason.code(), reason.word(), message)
    }
}

impl<S: Sync> FromRequestParts<S> for Ended {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(head.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
