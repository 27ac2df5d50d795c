//! The response to a request that has succeeded and returns nothing else.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue};

const SUCCESS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;

/// A `Status` that reports success.
#[derive(Clone, Copy, Debug, Default)]
pub struct Success;

impl IntoResponse for Success {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(SUCCESS));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}
