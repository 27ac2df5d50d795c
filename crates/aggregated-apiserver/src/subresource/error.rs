//! The errors of handlers.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::error::{ApiError, Given, Reason};
use crate::log_throttle::LogThrottle;

/// Limits the log lines about other programs.
static UNAVAILABLE: LogThrottle = LogThrottle::at_most(30);

/// An error of a handler. The client gets it as a `Status`.
#[derive(Debug)]
pub struct Error(Arc<ApiError>);

/// The error of a response, for the path of the request.
#[derive(Clone)]
pub(crate) struct Refusal(pub Arc<ApiError>);

impl Error {
    /// An error with this reason, which determines the HTTP status code, and with this message for the client.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self::of(ApiError::new(reason, message))
    }

    /// The request is invalid (400).
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// The state of the object does not allow the request (409).
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Reason::Conflict, message)
    }

    /// The handler has failed (500). The client gets the text of the error, and it is logged.
    pub fn internal(error: impl fmt::Display) -> Self {
        Self::of(ApiError::internal(error))
    }

    /// Another program does not answer (503). The text of the error is logged, and the client does not get it.
    pub fn unavailable(error: impl fmt::Display) -> Self {
        UNAVAILABLE.log(|suppressed| tracing::warn!(suppressed, %error, "a handler cannot answer"));
        Self::new(Reason::ServiceUnavailable, "the server behind the subresource does not answer")
    }

    pub(crate) fn of(error: ApiError) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

/// An error response of the cluster is passed to the client. Other errors are internal errors.
impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let details =
                    status.details.as_ref().and_then(|details| serde_json::to_value(details).ok());
                let given = Given { code: status.code, reason: status.reason, details };
                Self::of(ApiError::given(given, status.message))
            }
            other => Self::internal(other),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0.to_status()).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response.extensions_mut().insert(Refusal(self.0));
        response
    }
}
