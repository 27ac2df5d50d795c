//! Error responses.

use std::any::Any;

use axum::body::Body;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use super::encode;
use super::negotiate::{Media, Presentation};
use crate::error::{ApiError, Reason};
use crate::log_throttle::LogThrottle;

/// Limits the log lines about internal errors, because clients may cause them repeatedly.
pub static FAILURES: LogThrottle = LogThrottle::at_most(30);

/// Returns an error as a response in JSON. The source of the error is logged.
pub fn refuse(error: &ApiError) -> Response<Body> {
    refuse_as(error, Presentation { media: Media::Json, gzip: false })
}

/// Returns an error as a response in the requested encoding.
pub fn refuse_as(error: &ApiError, presentation: Presentation) -> Response<Body> {
    let source = std::error::Error::source(error).map(ToString::to_string);
    if error.reason() == Reason::InternalError {
        FAILURES.log(|suppressed| {
            let source = source.map(|source| format!(": {source}")).unwrap_or_default();
            tracing::error!(suppressed, "{error}{source}");
        });
    } else {
        tracing::debug!("request rejected: {error}");
    }
    let body = serde_json::to_vec(&error.to_status()).unwrap_or_default();
    let status = StatusCode::from_u16(error.code());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = encode::respond(status, presentation, body);
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    encode::warn(&mut response, error.warnings());
    if error.is_of_authorization() {
        let header = http::header::X_CONTENT_TYPE_OPTIONS;
        response.headers_mut().insert(header, HeaderValue::from_static("nosniff"));
    }
    response
}

/// The message of a panic.
pub fn panic_text(what: &(dyn Any + Send)) -> &str {
    let text = what.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| what.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Returns the response to a request whose handler panicked.
pub fn panicked(what: &(dyn Any + Send)) -> Response<Body> {
    let text = panic_text(what);
    FAILURES.log(|suppressed| tracing::error!(suppressed, panic = text, "panic in a request"));
    refuse(&ApiError::internal("this request caused the server to panic; its log says more"))
}
