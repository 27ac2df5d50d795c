//! The results of policies: denials, warnings and audit annotations.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::policy::{Binding, Policy};
use crate::admission::audit_annotations::go_json;
use crate::admission::{AdmissionError, AdmissionRequest, error};
use crate::object::Tree;

/// The longest value of an audit annotation, in bytes; same as kube-apiserver.
const LONGEST_ANNOTATION: usize = 10 << 10;
/// The largest total length of the values of the audit annotations of one policy, in bytes.
const ANNOTATIONS: usize = 256 << 10;
/// The key of the audit annotation about failed validations.
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The result of one validation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Admit,
    Deny {
        message: String,
        /// The reason of the status; `Invalid` if it is missing.
        reason: Option<String>,
    },
}

/// The result of one audit annotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Annotation {
    Publish {
        key: String,
        value: String,
    },
    Exclude,
    /// The expression failed, and the failure policy is `Fail`.
    Deny(String),
}

/// The first denial of a write.
#[derive(Debug, Default)]
pub(super) struct Denial(Option<(String, Option<String>)>);

impl Denial {
    /// Adds a denial; only the first one is returned to the client.
    pub(super) fn add(
        &mut self,
        policy: &Policy,
        binding: Option<&Binding>,
        message: &str,
        reason: Option<String>,
    ) {
        if self.0.is_some() {
            return;
        }
        let by = binding.map(|binding| format!(" with binding '{}'", binding.name));
        let (policy, by) = (&policy.name, by.unwrap_or_default());
        let message = format!("ValidatingAdmissionPolicy '{policy}'{by} denied request: {message}");
        self.0 = Some((message, reason));
    }

    /// The result of the write.
    ///
    /// # Errors
    /// The denial, if there is one.
    pub(super) fn into_result(
        self,
        request: &AdmissionRequest<'_>,
        object: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some((message, reason)) = self.0 else { return Ok(()) };
        let reason = reason.filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_else(|| "Invalid".to_owned());
        let code = match reason.as_str() {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        let AdmissionRequest { group, resource, .. } = request;
        // The deletion of a collection has no name.
        let name = match request.is_of_collection() {
            true => "Unknown".to_owned(),
            false => error::name(request, object.unwrap_or(&Tree::new())),
        };
        let mut of = (*resource).to_owned();
        let mut details = json!({
            "name": name, "kind": resource, "causes": [{"message": message}],
        });
        if !group.is_empty() {
            of = format!("{of}.{group}");
            details["group"] = Value::from(*group);
        }
        let message = format!("{of} {name:?} is forbidden: {message}");
        Err(AdmissionError::status(code, reason, message, Some(details)))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

/// Records a failed validation in the audit event.
pub(super) fn note_failure(
    request: &AdmissionRequest<'_>,
    binding: &Binding,
    index: usize,
    message: &str,
) {
    if !request.is_audited() {
        return;
    }
    let failure = Failure {
        message,
        policy: &binding.policy,
        binding: &binding.name,
        expression_index: index,
        validation_actions: &binding.action_names,
    };
    if let Ok(failures) = serde_json::to_string(&[failure]) {
        request.annotate(FAILURE, &go_json(&failures));
    }
}

/// The audit annotations of one policy. Each has the distinct values of all bindings and parameters.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    values: BTreeMap<String, Vec<String>>,
    /// The total length of the values, in bytes.
    bytes: usize,
}

impl Annotations {
    /// Adds a value, if the request is audited. A value that exceeds the total length is omitted.
    pub(super) fn add(&mut self, request: &AdmissionRequest<'_>, key: String, mut value: String) {
        if !request.is_audited() {
            return;
        }
        if value.len() > LONGEST_ANNOTATION {
            let fits = |end: &usize| value.is_char_boundary(*end);
            value.truncate((0..=LONGEST_ANNOTATION).rev().find(fits).unwrap_or_default());
        }
        let bytes = self.bytes + value.len();
        let is_known = self.values.get(&key).is_some_and(|values| values.contains(&value));
        if bytes <= ANNOTATIONS && !is_known {
            self.bytes = bytes;
            self.values.entry(key).or_default().push(value);
        }
    }

    pub(super) fn publish(self, policy: &Policy, request: &AdmissionRequest<'_>) {
        for (key, values) in self.values {
            request.annotate(&format!("{}/{key}", policy.name), &values.join(", "));
        }
    }
}
