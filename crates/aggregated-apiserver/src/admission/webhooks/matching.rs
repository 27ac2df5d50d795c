//! Decides which webhooks are called for a write.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use serde_json::Value;

use super::Tree;
use super::hook::Hook;
use crate::admission::conditions::{self, Variables};
use crate::admission::matching::{Selectors, is_met, is_selected};
use crate::admission::{AdmissionError, AdmissionRequest, LazyNamespaces};

/// The version in which a webhook gets the objects of a write, if its rules match the write.
pub(super) fn version<'a>(hook: &Hook, request: &'a AdmissionRequest<'_>) -> Option<&'a str> {
    let is_about = |version: &str| hook.rules.iter().any(|rule| is_met(rule, request, version));
    if is_about(request.version) {
        return Some(request.version);
    }
    if hook.is_exact {
        return None;
    }
    // Earlier rules take precedence.
    let others = |rule: &RuleWithOperations| {
        request.other_versions().find(|version| is_met(rule, request, version))
    };
    hook.rules.iter().find_map(others)
}

/// Whether a webhook whose rules match a write in a version is called about it: its selectors match the object or the
/// old object, and its conditions are met.
///
/// # Errors
/// 404 if the namespace is missing, 403 if a condition fails and the failure policy is `Fail`.
pub(super) async fn is_called(
    (hook, version): (&Hook, &str),
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
    namespaces: Option<&LazyNamespaces>,
) -> Result<bool, AdmissionError> {
    let selectors =
        Selectors { namespace: &hook.namespace_selector, object: &hook.object_selector };
    if !is_selected(selectors, request, object, namespaces).await? {
        return Ok(false);
    }
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let shown = request.shown_in_version(object, version).await?;
    let old = request.shown_in_version(request.old_object(), version).await?;
    let (object, old) = (shown.as_deref(), old.as_deref());
    let data = request.attributes(version);
    let data = &conditions::data(&data);
    let variables = Variables { object, old, request: data, namespace: None, params: None };
    match conditions::are_met(&hook.conditions, &variables) {
        Ok(are_met) => Ok(are_met),
        Err(why) if hook.fails_closed => Err(forbidden(request, &why)),
        Err(why) => {
            tracing::debug!(webhook = hook.name, error = %why, "match condition failed; the webhook is not called");
            Ok(false)
        }
    }
}

/// 403. The message is not escaped as HTML, same as in kube-apiserver, because an expression is not from the client.
fn forbidden(request: &AdmissionRequest<'_>, why: &str) -> AdmissionError {
    let AdmissionRequest { group, resource, name, .. } = request;
    let details = [("name", name), ("group", group), ("kind", resource)].into_iter();
    let details = details.filter(|(_, value)| !value.is_empty());
    let details = details.map(|(key, value)| (key.to_owned(), Value::from(*value)));
    let mut of = (*resource).to_owned();
    if !group.is_empty() {
        of = format!("{of}.{group}");
    }
    if !name.is_empty() {
        of = format!("{of} {name:?}");
    }
    let message = format!("{of} is forbidden: {why}");
    AdmissionError::status(403, "Forbidden", message, Some(Value::Object(details.collect())))
}
