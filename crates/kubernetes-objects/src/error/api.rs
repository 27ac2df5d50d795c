//! `ApiError`: an error as the client receives it.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::status::Given;
use super::text::beginning;
use super::{FieldError, Reason, qualified, quote};

/// One of several causes of an error: a field and the problem with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, …
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// The problem, without the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field, such as `spec.containers[0].name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The subject of an error: `details` of a Kubernetes `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural of the resource, or the kind if the reason is `Invalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The problems that were found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// The time after which the client can retry, in seconds; 0 if no time is given.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
    /// The error of another program, such as a webhook. The client receives it instead of the fields above.
    #[serde(skip)]
    pub given: Option<Given>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An error as the client receives it: a `Status` with an HTTP status code.
///
/// The source, if any, is logged and never sent.
#[derive(Debug)]
pub struct ApiError {
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) details: Option<Box<Details>>,
    warnings: Vec<String>,
    /// A token with which the client can continue a list in spite of the error.
    pub(super) continue_token: Option<String>,
    /// Whether the error is a failed authorization.
    is_of_authorization: bool,
    /// The name of the limit that was exceeded, if any.
    bound: Option<&'static str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The length of field errors after which further errors are omitted, in bytes. The error that crosses the limit is
/// sent.
const ERRORS_LENGTH: usize = 256 << 10;

impl ApiError {
    /// An error with this reason and message, and without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            details: None,
            warnings: Vec::new(),
            continue_token: None,
            is_of_authorization: false,
            bound: None,
            source: None,
        }
    }

    /// Sets `details`.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Sets the warnings that the client receives with the error.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// Marks the error as a failed authorization.
    #[must_use]
    pub fn of_authorization(mut self) -> Self {
        self.is_of_authorization = true;
        self
    }

    /// Whether the error is a failed authorization.
    pub fn is_of_authorization(&self) -> bool {
        self.is_of_authorization
    }

    /// Sets the source of the error, for the log.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &'static str, message: &str, field: &str) -> Self {
        let (message, field) = (message.to_owned(), field.to_owned());
        let details = self.details.get_or_insert_default();
        details.causes.push(Cause { reason, message, field });
        self
    }

    /// The error of another program, such as a webhook.
    pub fn given(given: Given, message: impl Into<String>) -> Self {
        let reason = Reason::of_code(given.code);
        Self::new(reason, message)
            .with_details(Details { given: Some(given), ..Details::default() })
    }

    pub(super) fn as_given(&self) -> Option<&Given> {
        self.details.as_ref().and_then(|details| details.given.as_ref())
    }

    /// The HTTP status code of the response.
    pub fn code(&self) -> u16 {
        self.as_given().map_or_else(|| self.reason.code(), |given| given.code)
    }

    /// 400 with this message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 401 without details, same as kube-apiserver.
    pub fn unauthorized() -> Self {
        Self::new(Reason::Unauthorized, "Unauthorized")
    }

    /// 404 for an object: `llamas.farm.example.com "dolly" not found`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {} not found", qualified(group, resource), quote(name));
        Self::new(Reason::NotFound, message).with_details(about(group, resource, name))
    }

    /// 404 for a path.
    pub fn no_such_resource() -> Self {
        Self::new(Reason::NotFound, "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// 503 for a kind or version that this replica does not serve, although kube-apiserver has forwarded the request to
    /// it. The error has no retry time, so that controllers retry with their own backoff. With a retry time, client-go
    /// would retry in place and block a worker of the controller.
    pub fn not_served_yet(group: &str, version: &str, resource: &str) -> Self {
        let message = format!(
            "this replica does not serve {resource} of {group}/{version}: another release may"
        );
        Self::new(Reason::ServiceUnavailable, message)
    }

    /// 414: the path is longer than any path that is served.
    pub fn path_too_long(limit: usize) -> Self {
        let message = format!("Request URI too long: its path is longer than {limit} bytes");
        Self::new(Reason::UriTooLong, message)
    }

    /// 405: `delete is not supported on resources of kind "farmpods.farm.example.com"`.
    pub fn method_not_allowed(group: &str, resource: &str, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind {}",
            quote(&qualified(group, resource))
        );
        Self::new(Reason::MethodNotAllowed, message).with_details(about(group, resource, ""))
    }

    /// 409: an object with this name exists.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {} already exists", qualified(group, resource), quote(name));
        Self::new(Reason::AlreadyExists, message).with_details(about(group, resource, name))
    }

    /// The same error, with `why` in front of its message.
    #[must_use]
    pub fn because(mut self, why: &str) -> Self {
        self.message = format!("{why}: {}", self.message);
        self
    }

    /// 409: the object is not in the state that the request assumes. `kind` is the plural or, for preconditions of a
    /// deletion, the kind.
    pub fn conflict(group: &str, kind: &str, name: &str, cause: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {}: {cause}",
            qualified(group, kind),
            quote(name)
        );
        Self::new(Reason::Conflict, message).with_details(about(group, kind, name))
    }

    /// 403: `llamas.farm.example.com "dolly" is forbidden: <why>`.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let mut message = qualified(group, resource);
        if !name.is_empty() {
            let _ = write!(message, " {}", quote(name));
        }
        let _ = write!(message, " is forbidden: {why}");
        Self::new(Reason::Forbidden, escape_html(&message))
            .with_details(about(group, resource, name))
    }

    /// 403 for a path that belongs to no resource.
    pub fn forbidden_path(why: &str) -> Self {
        Self::new(Reason::Forbidden, escape_html(&format!("forbidden: {why}")))
            .with_details(Details::default())
    }

    /// 422: the object is invalid; `errors` names the invalid fields.
    ///
    /// The message contains each error text once; the causes contain all errors.
    pub fn invalid(group: &str, kind: &str, name: &str, mut errors: Vec<FieldError>) -> Self {
        let mut length = 0;
        errors.retain(|error| {
            let is_told = length < ERRORS_LENGTH;
            length += error.length();
            is_told
        });
        let mut said = HashSet::new();
        let texts = errors.iter().map(ToString::to_string);
        let texts: Vec<String> = texts.filter(|text| said.insert(text.clone())).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {} is invalid: {list}", qualified(group, kind), quote(name));
        let mut details = about(group, kind, name);
        details.causes = errors.into_iter().map(FieldError::into_cause).collect();
        Self::new(Reason::Invalid, message).with_details(details)
    }

    /// 422 for options in the query: `ListOptions.meta.k8s.io "" is invalid: …`.
    pub fn invalid_options(options: &str, errors: Vec<FieldError>) -> Self {
        Self::invalid("meta.k8s.io", options, "", errors)
    }

    /// 500: an error of the server, with a message that the client may see.
    pub fn internal(message: impl fmt::Display) -> Self {
        let cause = Cause { message: message.to_string(), ..Cause::default() };
        Self::new(Reason::InternalError, format!("Internal error occurred: {message}"))
            .with_details(Details { causes: vec![cause], ..Details::default() })
    }

    /// 500: the store cannot return the object under a key of a kind.
    pub fn unreadable(kind: &str, key: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::internal(format!("{kind} {}: {why}", quote(&key.to_string())))
    }

    /// 410: the revision is no longer in the history.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// 410: the set of fields that are omitted for this reader has changed.
    pub fn fields_have_changed() -> Self {
        Self::expired("The fields that you may see have changed: list the objects again.")
    }

    /// 410: the list cannot be continued at its revision any more. The token continues it with the current objects.
    pub fn continue_too_old(token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
        Self { continue_token: Some(token), ..Self::expired(message) }
    }

    /// 429: the client can retry after this number of seconds.
    pub fn try_again(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(Reason::TooManyRequests, message)
            .with_details(Details { retry_after_seconds: seconds, ..Details::default() })
    }

    /// 429: too many requests are in flight.
    pub fn too_many_requests() -> Self {
        Self::too_many_requests_for(1)
    }

    /// 429 for too many requests that are expected to last for this number of seconds.
    pub fn too_many_requests_for(seconds: u32) -> Self {
        Self::try_again("Too many requests, please try again later.", seconds)
    }

    /// 504: the store did not reach the requested revision in time.
    pub fn revision_too_large(requested: impl fmt::Display, current: impl fmt::Display) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            ..Cause::default()
        };
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(Reason::Timeout, message).with_details(Details {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..Details::default()
        })
    }

    /// Records the limit that was exceeded. `bound` is one of a few names, for metrics.
    #[must_use]
    pub fn bounded_by(mut self, bound: &'static str) -> Self {
        self.bound = Some(bound);
        self
    }

    /// The name of the limit that was exceeded, if any.
    pub fn bound(&self) -> Option<&'static str> {
        self.bound
    }

    /// The reason of the error.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The messages for `Warning` headers.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The time after which the client can retry, in seconds.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        let given = self.as_given().and_then(|given| given.details.as_ref());
        let given = given.and_then(|details| details.get("retryAfterSeconds")?.as_u64());
        let given = given.and_then(|seconds| u32::try_from(seconds).ok());
        let ours = self.details.as_ref().map(|details| details.retry_after_seconds);
        given.or(ours).filter(|&s| s > 0)
    }

    pub(super) fn has_causes(&self) -> bool {
        self.details.as_ref().is_some_and(|details| !details.causes.is_empty())
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ApiError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

fn about(group: &str, kind: &str, name: &str) -> Details {
    Details {
        name: beginning(name).into_owned(),
        group: beginning(group).into_owned(),
        kind: beginning(kind).into_owned(),
        ..Details::default()
    }
}

/// Messages of 403 may contain input of the client, and a browser may display them.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_missing_object() {
        let error = ApiError::not_found("farm.example.com", "llamas", "dolly");
        assert_eq!(
            serde_json::to_string(&error.to_status()).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"llamas.farm.example.com \"dolly\" not found","reason":"NotFound","details":{"name":"dolly","group":"farm.example.com","kind":"llamas"},"code":404}"#
        );
    }

    #[test]
    fn an_invalid_status_deduplicates_messages_but_not_causes() {
        let twice = FieldError::required("spec.weight", "");
        let errors = vec![twice.clone(), twice, FieldError::required("spec.height", "")];
        let error = ApiError::invalid("farm.example.com", "Llama", "a", errors);
        assert_eq!(
            error.to_string(),
            r#"Llama.farm.example.com "a" is invalid: [spec.weight: Required value, spec.height: Required value]"#
        );
        assert_eq!(error.details.unwrap().causes.len(), 3);
    }

    #[test]
    fn forbidden_without_a_name_and_with_markup() {
        let error = ApiError::forbidden("g", "foos", "", "User \"<b>\" cannot");
        assert_eq!(error.to_string(), "foos.g is forbidden: User \"&lt;b&gt;\" cannot");
    }
}
