//! AdmissionError: the reason for which a plugin rejects a write.

use http::StatusCode;
use serde_json::Value;

use crate::error::{ApiError, FieldError, Given, Reason};
use crate::object::{Tree, metadata};

use super::AdmissionRequest;

/// The reason for which a plugin rejects a write.
#[derive(Debug)]
pub struct AdmissionError(Why);

#[derive(Debug)]
enum Why {
    Forbidden(String),
    Invalid(Vec<FieldError>),
    Unavailable(String),
    Answer(Box<ApiError>),
}

impl AdmissionError {
    /// 403: the write is not allowed. The client gets `llamas.farm.example.com "dolly" is forbidden: <why>`.
    pub fn forbidden(why: impl Into<String>) -> Self {
        Self(Why::Forbidden(why.into()))
    }

    /// 422: fields of the object are invalid.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        Self(Why::Invalid(errors))
    }

    /// 503: the plugin cannot decide now. The client may retry.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self(Why::Unavailable(why.into()))
    }

    /// 429: the server has no capacity for the resources that the plugin needs. The client may retry.
    pub fn busy(why: impl Into<String>) -> Self {
        Self::answer(ApiError::try_again(why, 1).bounded_by("webhooks"))
    }

    /// The error of a program that the plugin has called, for example a webhook: its status, reason, message and
    /// details.
    pub fn status(
        code: u16,
        reason: impl Into<String>,
        message: impl Into<String>,
        details: Option<Value>,
    ) -> Self {
        let code = StatusCode::from_u16(code).map_or(500, |code| code.as_u16());
        let reason = reason.into();
        Self::answer(ApiError::given(Given { code, reason, details }, message))
    }

    /// 400: the plugin cannot handle such a request.
    pub fn bad_request(why: impl Into<String>) -> Self {
        Self::answer(ApiError::bad_request(why))
    }

    /// 500: the plugin has failed. The client gets `Internal error occurred: <why>`.
    pub fn internal(why: impl Into<String>) -> Self {
        Self::answer(ApiError::internal(why.into()))
    }

    /// 404: this object is missing.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::answer(ApiError::not_found(group, resource, name))
    }

    /// This API error.
    pub(crate) fn answer(error: ApiError) -> Self {
        Self(Why::Answer(Box::new(error)))
    }

    /// Whether a limit was exceeded: 413 or 429.
    pub(super) fn is_of_limit(&self) -> bool {
        matches!(&self.0, Why::Answer(error) if matches!(error.code(), 413 | 429))
    }

    /// The message without the name of the object.
    pub(super) fn message(&self) -> String {
        match &self.0 {
            Why::Forbidden(why) | Why::Unavailable(why) => why.clone(),
            Why::Invalid(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                errors.join(", ")
            }
            Why::Answer(error) => error.to_string(),
        }
    }

    /// The API error for the client. `object` is the object as it would have been stored.
    pub(crate) fn into_answer(self, request: &AdmissionRequest<'_>, object: &Tree) -> ApiError {
        let (group, resource) = (request.group, request.resource);
        match self.0 {
            Why::Forbidden(why) => {
                ApiError::forbidden(group, resource, &name(request, object), &why)
            }
            Why::Invalid(errors) => {
                let name = metadata::name(object);
                let name = if name.is_empty() { request.name } else { name };
                ApiError::invalid(group, request.kind, name, errors)
            }
            Why::Unavailable(why) => ApiError::new(Reason::ServiceUnavailable, why),
            Why::Answer(error) => *error,
        }
    }
}

/// The name of an object in messages. For an object without a name it is the prefix or `Unknown`, same as in
/// kube-apiserver.
pub(super) fn name(request: &AdmissionRequest<'_>, object: &Tree) -> String {
    let given = [metadata::name(object), metadata::prefix(object).unwrap_or_default()];
    let known = [request.name].into_iter().chain(given).find(|name| !name.is_empty());
    known.unwrap_or("Unknown").to_owned()
}
