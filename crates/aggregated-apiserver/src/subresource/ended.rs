//! The end of a long request.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio_util::sync::CancellationToken;

/// Completes when a request must end: because the server drains, the object is deleted, the user has lost the
/// permission, or the time of the request is over. It also completes when the request has ended by itself, so tasks of
/// the handler can wait for it. A handler that has taken over a connection has five seconds for a farewell, such as the
/// close frame of a WebSocket, before the connection is closed. A handler that has not answered yet is dropped.
#[derive(Clone, Debug, Default)]
pub struct Ended(pub(crate) CancellationToken);

impl Ended {
    /// Returns when the request must end.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Whether the request must end.
    pub fn has_ended(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl<S: Sync> FromRequestParts<S> for Ended {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(head.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
