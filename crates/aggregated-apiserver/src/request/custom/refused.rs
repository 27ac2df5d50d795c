//! Error responses of handlers that are plain text.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::error::{ApiError, Given, Reason};

/// The longest text that becomes a message, in bytes.
const MESSAGE: usize = 16 << 10;
/// The longest time in which the text is read.
const TEXT_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the body of a response is plain text, or empty.
pub(super) fn is_text(response: &Response<Body>) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.map_or(response.body().is_end_stream(), |media| media.starts_with("text/plain"))
}

/// The error of a response that is plain text. The message is the beginning of the text.
pub(super) async fn error(response: Response<Body>) -> ApiError {
    let (head, mut body) = response.into_parts();
    let mut text = Vec::new();
    let read = async {
        while text.len() < MESSAGE
            && let Some(Ok(frame)) = body.frame().await
        {
            text.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        }
    };
    let _ = timeout(TEXT_TIMEOUT, read).await;
    text.truncate(MESSAGE);
    let text = String::from_utf8_lossy(&text);
    let message = match text.trim_end() {
        "" => head.status.canonical_reason().unwrap_or_default(),
        text => text,
    };
    let code = head.status.as_u16();
    let reason = Reason::of_code(code).word().to_owned();
    ApiError::given(Given { code, reason, details: None }, message)
}
