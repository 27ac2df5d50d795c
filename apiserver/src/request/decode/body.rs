//! The body of a request: bounded, JSON or YAML, an object of the kind.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use super::super::route::Target;
use super::parameters::{check_propagation, no_dry_run};
use super::tree::{self, Parsed};
use crate::error::{ApiError, FieldError, Reason, go_type, quote};
use crate::verb::DeleteOptions;
use crate::write::Submitted;

/// As kube-apiserver.
pub(super) const LIMIT: usize = 3 << 20;
/// How long a body may take: it holds a place among the writes.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// So much of a body is shown in messages; as kube-apiserver.
const SHOWN: usize = 30;

/// The language of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Json,
    Yaml,
}

impl Language {
    async fn parse(self, bytes: &Bytes) -> Result<Parsed, String> {
        match self {
            Self::Json => tree::from_json(bytes)
                .map_err(|error| format!("couldn't get version/kind; json parse error: {error}")),
            Self::Yaml => tree::from_yaml(bytes.clone()).await,
        }
    }
}

/// The language of a body; without a type it is taken for JSON.
///
/// # Errors
/// 415 for any other.
pub(super) fn language(headers: &HeaderMap) -> Result<Language, ApiError> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let mut parts = given.unwrap_or_default().split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let is_well_formed = parts.all(|parameter| parameter.is_empty() || parameter.contains('='));
    match media_type.to_ascii_lowercase().as_str() {
        "" | "application/json" if is_well_formed => return Ok(Language::Json),
        "application/yaml" if is_well_formed => return Ok(Language::Yaml),
        _ => {}
    }
    let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
    Err(ApiError::new(Reason::UnsupportedMediaType, message))
}

/// Reads the whole body.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!("Request entity too large: limit is {LIMIT}");
        ApiError::new(Reason::RequestEntityTooLarge, message)
    };
    if let Some(encoding) = headers.get(CONTENT_ENCODING) {
        let message = format!("bodies with Content-Encoding {encoding:?} are not read");
        return Err(ApiError::new(Reason::UnsupportedMediaType, message));
    }
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > LIMIT as u64) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(READ_TIMEOUT, Limited::new(body, LIMIT).collect());
    let Ok(read) = read.await else {
        let message = "Timeout: the body of the request did not arrive in time";
        return Err(ApiError::new(Reason::Timeout, message));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiError::bad_request("the body could not be read").caused_by(error)),
    }
}

/// The object in the body of a request that writes one.
pub(super) async fn object(
    target: &Target,
    language: Language,
    bytes: &Bytes,
) -> Result<Submitted, ApiError> {
    let kind = &target.served.kind;
    let unrecognized = |why: &str| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            kind.names.kind,
            head(bytes)
        ))
    };
    let parsed = language.parse(bytes).await.map_err(|error| unrecognized(&error))?;
    let Value::Object(tree) = parsed.value else {
        return Err(match parsed.value {
            Value::Null => unrecognized("Object 'Kind' is missing in 'null'"),
            other => unrecognized(&no_object(&other)),
        });
    };
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind").is_empty() {
        let body = String::from_utf8_lossy(bytes);
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{body}'")));
    }
    let api_version = text("apiVersion");
    if api_version.matches('/').count() > 1 {
        return Err(unrecognized(&format!("unexpected GroupVersion string: {api_version}")));
    }
    let expected = kind.api_version(&target.version.name);
    if api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    Ok(Submitted { tree, duplicates: parsed.duplicates })
}

/// The options in the body of a deletion. They void those in the query.
pub(super) async fn delete_options(
    language: Language,
    bytes: &Bytes,
) -> Result<DeleteOptions, ApiError> {
    let parsed = language.parse(bytes).await.map_err(ApiError::bad_request)?;
    let mismatch = |found: &Value, field: &str, expected: &str| {
        let found = go_type(found);
        ApiError::bad_request(format!(
            "json: cannot unmarshal {found} into Go struct field DeleteOptions.{field} of type {expected}"
        ))
    };
    let tree = match parsed.value {
        Value::Null => return Ok(DeleteOptions::default()),
        Value::Object(tree) => tree,
        other => return Err(ApiError::bad_request(no_object(&other))),
    };
    match tree.get("kind") {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) if kind.is_empty() || kind == "DeleteOptions" => {}
        Some(kind) => {
            let version = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            return Err(ApiError::bad_request(format!(
                "no kind {kind} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                quote(version)
            )));
        }
    }
    match tree.get("dryRun") {
        None | Some(Value::Null) => {}
        Some(Value::Array(list)) if list.is_empty() => {}
        Some(Value::Array(list)) if list.iter().all(|value| value == "All") => {
            return Err(no_dry_run());
        }
        Some(shown @ Value::Array(_)) => {
            let error = FieldError::not_supported("dryRun", shown, &["All"]);
            return Err(ApiError::invalid_options("DeleteOptions", vec![error]));
        }
        Some(other) => return Err(mismatch(other, "dryRun", "[]string")),
    }
    let orphan = match tree.get("orphanDependents") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(orphan)) => Some(*orphan),
        Some(other) => return Err(mismatch(other, "orphanDependents", "bool")),
    };
    match tree.get("gracePeriodSeconds") {
        None | Some(Value::Null) => {}
        Some(Value::Number(number)) if number.is_i64() => {}
        Some(other) => return Err(mismatch(other, "gracePeriodSeconds", "int64")),
    }
    let policy = match tree.get("propagationPolicy") {
        None | Some(Value::Null) => None,
        Some(Value::String(policy)) => Some(policy.as_str()),
        Some(other) => return Err(mismatch(other, "propagationPolicy", "string")),
    };
    check_propagation(policy, orphan)?;
    let preconditions = tree.get("preconditions").unwrap_or(&Value::Null);
    let text = |field: &str| match preconditions.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(mismatch(other, &format!("preconditions.{field}"), "string")),
    };
    if !matches!(preconditions, Value::Null | Value::Object(_)) {
        return Err(mismatch(preconditions, "preconditions", "v1.Preconditions"));
    }
    Ok(DeleteOptions { uid: text("uid")?, resource_version: text("resourceVersion")? })
}

/// What is said of a document that is no object.
fn no_object(found: &Value) -> String {
    let found = go_type(found);
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// The beginning of a body, as messages show it.
fn head(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    if bytes.is_empty() {
        return "<empty>".to_owned();
    }
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let mut text = if bytes.starts_with(b"{") {
        String::from_utf8_lossy(shown).into_owned()
    } else {
        let mut hexadecimal = String::new();
        for byte in shown {
            let _ = write!(hexadecimal, "{byte:02x}");
        }
        hexadecimal
    };
    if bytes.len() > SHOWN {
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn options_of_a_deletion() {
        let parse = async |text: &'static str| {
            let bytes = Bytes::from_static(text.as_bytes());
            delete_options(Language::Json, &bytes).await.map_err(|error| error.to_string())
        };
        let collector = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Background"}"#;
        let expected = DeleteOptions { uid: Some("u".into()), resource_version: Some("7".into()) };
        assert_eq!(parse(collector).await.unwrap(), expected);
        for nothing in ["{}", "null", r#"{"gracePeriodSeconds": 0}"#, r#"{"dryRun":[]}"#] {
            assert_eq!(parse(nothing).await.unwrap(), DeleteOptions::default());
        }
        for (text, expected) in [
            (r#"{"dryRun":["All"]}"#, "dryRun is not supported yet"),
            (r#"{"dryRun":"All"}"#, "json: cannot unmarshal"),
            (r#"{"propagationPolicy":"Foreground"}"#, "propagationPolicy Foreground is not"),
            (r#"{"kind":"Foo"}"#, "no kind \"Foo\" is registered"),
            (
                r#"{"propagationPolicy":"Background","orphanDependents":true}"#,
                "DeleteOptions.meta.k8s.io",
            ),
            (r#"{"preconditions":{"uid":1}}"#, "json: cannot unmarshal"),
            ("[]", "couldn't get version/kind"),
            ("{", "couldn't get version/kind"),
        ] {
            let error = parse(text).await.unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn heads_of_bodies() {
        assert_eq!(head(b""), "<empty>");
        assert_eq!(head(b"{a"), "{a");
        assert_eq!(head(b"[]"), "5b5d");
        assert_eq!(
            head("{\"name\":\"a name of some length\"}".as_bytes()),
            "{\"name\":\"a name of some length ..."
        );
    }
}
