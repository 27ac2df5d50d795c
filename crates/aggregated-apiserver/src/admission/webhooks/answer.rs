//! The responses of webhooks: parses them and checks them against the request, with the messages of kube-apiserver.

use crate::admission::{AdmissionError, AdmissionRequest, ReservedMemory};
use crate::object::json_patch::JsonPatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Tree;
use super::ask::Failure;

/// The largest part of a webhook's message that clients get, in characters.
const MESSAGE_LIMIT: usize = 64 << 10;
/// The largest part of a reason that clients get, in characters. The reasons of Kubernetes are shorter.
const REASON_LIMIT: usize = 1 << 10;
const OK: u64 = 200;
const LEAST_REFUSAL: u64 = 400;
const LARGEST_REFUSAL: u64 = 599;

/// The parsed response of a webhook.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub allowed: bool,
    /// The status that the webhook returns with a rejection.
    pub result: Option<Tree>,
    /// The patch as the webhook has sent it.
    pub patch: Option<Vec<u8>>,
    pub patch_type: String,
    pub warnings: Vec<String>,
    /// The annotations for the audit event of the request.
    pub audit_annotations: Annotations,
}

/// Annotations of the audit event, and their memory.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    values: Tree,
    _memory: Option<ReservedMemory>,
}

impl Annotations {
    /// The keys and values. Go decodes null as the empty string.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }
}

/// The properties of the request that a response must match.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub uid: &'a str,
    /// The version of the review.
    pub version: &'a str,
    /// Whether the webhook may change the object.
    pub mutates: bool,
}

/// The JSON of an AdmissionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// The `response` of an AdmissionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    allowed: Option<bool>,
    #[serde(default)]
    patch: Option<PatchBytes>,
    #[serde(default)]
    patch_type: Option<String>,
    #[serde(borrow, default)]
    warnings: Option<&'a RawValue>,
    #[serde(borrow, default)]
    audit_annotations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

/// The bytes of a patch: base64, or a list of numbers, which is the format of Rust's `serde` for bytes, and which Go
/// accepts too.
#[derive(Deserialize)]
#[serde(untagged)]
enum PatchBytes {
    Base64(String),
    Numbers(Vec<u8>),
}

/// Parses the response of a webhook.
///
/// # Errors
/// The reason, if the response is invalid or does not match the request.
pub(super) fn read(
    sent: &[u8],
    asked: Asked<'_>,
    request: &AdmissionRequest<'_>,
) -> Result<Answer, Failure> {
    let uncalled = |why: String| Failure::Call(format!("failed to call webhook: {why}"));
    let unread =
        |why: String| uncalled(format!("couldn't get version/kind; json parse error: {why}"));
    let invalid = |why: String| Failure::Call(format!("received invalid webhook response: {why}"));
    let review: Review<'_> = serde_json::from_slice(sent).map_err(|why| unread(why.to_string()))?;
    let (api_version, kind) =
        (review.api_version.unwrap_or_default(), review.kind.unwrap_or_default());
    check_kind(&api_version, &kind, asked.version).map_err(uncalled)?;
    let response = review.response.ok_or("webhook response was absent".to_owned());
    let response = response.map_err(invalid)?.get();
    let response: Response<'_> =
        serde_json::from_str(response).map_err(|why| unread(format!("response: {why}")))?;
    let is_v1 = asked.version == "v1";
    let uid = response.uid.unwrap_or_default();
    if is_v1 && uid != asked.uid {
        return Err(invalid(format!("expected response.uid={:?}, got {uid:?}", asked.uid)));
    }
    if is_v1 && (api_version.is_empty() || kind.is_empty()) {
        let got = if api_version.contains('/') { api_version } else { format!("/{api_version}") };
        return Err(invalid(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}, Kind={kind}"
        )));
    }
    let patch = match response.patch {
        None => Vec::new(),
        Some(PatchBytes::Numbers(bytes)) => bytes,
        Some(PatchBytes::Base64(text)) => STANDARD
            .decode(text)
            .map_err(|why| unread(format!("response.patch is no base64: {why}")))?,
    };
    let patch_type = if is_v1 {
        check_patch(asked.mutates, &patch, response.patch_type.as_deref()).map_err(invalid)?;
        response.patch_type.unwrap_or_default()
    } else {
        "JSONPatch".to_owned()
    };
    let tree = |part: Option<&RawValue>| match part {
        None => Ok(Value::Null),
        // The memory is not reserved any longer, because these values are small.
        Some(part) => request.read_json(part.get().as_bytes()).map(|(value, _room)| value),
    };
    let warnings = match tree(response.warnings).map_err(unread)? {
        Value::Array(warnings) => warnings,
        _ => Vec::new(),
    };
    let result = match tree(response.status).map_err(unread)? {
        Value::Object(result) => Some(result),
        _ => None,
    };
    let as_text = |warning: Value| match warning {
        Value::String(text) => Some(text),
        _ => None,
    };
    Ok(Answer {
        allowed: response.allowed.unwrap_or_default(),
        result,
        patch: Some(patch).filter(|patch| asked.mutates && !patch.is_empty()),
        patch_type,
        warnings: warnings.into_iter().filter_map(as_text).collect(),
        audit_annotations: annotations(response.audit_annotations, request).map_err(unread)?,
    })
}

/// Parses the annotations for the audit event.
fn annotations(
    sent: Option<&RawValue>,
    request: &AdmissionRequest<'_>,
) -> Result<Annotations, String> {
    let Some(sent) = sent else { return Ok(Annotations::default()) };
    let (read, memory) = request.read_json(sent.get().as_bytes())?;
    let values = match read {
        Value::Null => Tree::new(),
        Value::Object(values) if values.values().all(|one| one.is_string() || one.is_null()) => {
            values
        }
        _ => return Err("response.auditAnnotations: must be a map of strings".to_owned()),
    };
    Ok(Annotations { values, _memory: Some(memory) })
}

/// Checks the apiVersion and kind of a response, if it states both.
fn check_kind(api_version: &str, kind: &str, asked: &str) -> Result<(), String> {
    if api_version.is_empty() || kind.is_empty() {
        return Ok(());
    }
    let version = api_version.strip_prefix("admission.k8s.io/").unwrap_or_default();
    if !["v1", "v1beta1"].contains(&version) || kind != "AdmissionReview" {
        return Err(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    if version != asked {
        return Err(format!(
            "converting ({version}.AdmissionReview) to ({asked}.AdmissionReview): unknown conversion"
        ));
    }
    Ok(())
}

fn check_patch(mutates: bool, patch: &[u8], patch_type: Option<&str>) -> Result<(), String> {
    let why = match (mutates, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// The rejection of a webhook as an API error.
pub(super) fn refusal(name: &str, result: Option<Tree>) -> AdmissionError {
    let mut result = result.unwrap_or_default();
    let said = |name: &str, limit: usize| -> String {
        let text = result.get(name).and_then(Value::as_str).unwrap_or_default();
        text.chars().take(limit).collect()
    };
    let (message, reason) = (said("message", MESSAGE_LIMIT), said("reason", REASON_LIMIT));
    let denied = format!("admission webhook {name:?} denied the request");
    let message = match (message.as_str(), reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let code = result.get("code").and_then(Value::as_u64).unwrap_or(OK);
    let code = code.clamp(LEAST_REFUSAL, LARGEST_REFUSAL);
    let code = u16::try_from(code).unwrap_or(500);
    let details = result.remove("details").filter(Value::is_object);
    AdmissionError::status(code, reason, message, details)
}

/// Parses the operations of a patch.
///
/// # Errors
/// The reason, if it is not a valid JSON patch.
pub(super) fn operations(patch: Result<Value, String>) -> Result<JsonPatch, Failure> {
    patch.and_then(JsonPatch::read).map_err(|why| {
        Failure::Call(format!("received undecodable patch in webhook response: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_need_a_patch_type_and_a_mutating_webhook() {
        for (mutates, patch, patch_type, is_well) in [
            (true, "", None, true),
            (true, "[]", Some("JSONPatch"), true),
            (true, "[]", None, false),
            (true, "", Some("JSONPatch"), false),
            (true, "[]", Some(""), false),
            (false, "", None, true),
            (false, "[]", Some("JSONPatch"), false),
            (false, "", Some("JSONPatch"), false),
        ] {
            let checked = check_patch(mutates, patch.as_bytes(), patch_type);
            assert_eq!(checked.is_ok(), is_well, "{mutates} {patch} {patch_type:?}");
        }
    }

    #[test]
    fn bytes_are_base64_or_numbers() {
        for (patch, expected) in [("\"W10=\"", Some("W10=")), ("[91,93]", None)] {
            let text = format!("{{\"patch\":{patch}}}");
            let read: Response<'_> = serde_json::from_str(&text).unwrap();
            match (read.patch.unwrap(), expected) {
                (PatchBytes::Base64(text), Some(expected)) => assert_eq!(text, expected),
                (PatchBytes::Numbers(bytes), None) => assert_eq!(bytes, b"[]"),
                _ => panic!("{patch}"),
            }
        }
    }
}
