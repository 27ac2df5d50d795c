//! Decides which webhooks are called for a write.

use std::collections::BTreeMap;

use aggregated_apiserver::admission::{AdmissionError, AdmissionRequest};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::Tree;
use super::configured::Hook;
use crate::built_in::admissionregistration::GROUP;
use crate::built_in::label_selector::{is_empty, matches};

/// The kinds for which no webhook is called, so that a broken webhook cannot prevent the repair of its own
/// configuration.
const EXEMPT: [&str; 6] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// Whether no webhook is called for a write.
pub(super) fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    request.group == GROUP && EXEMPT.contains(&request.kind)
}

/// The namespace of a write in the data for webhooks. The namespace of a Namespace is its own name.
pub(super) fn namespace<'a>(request: &'a AdmissionRequest<'_>) -> &'a str {
    if is_namespace(request) { request.name } else { request.namespace.unwrap_or_default() }
}

fn is_namespace(request: &AdmissionRequest<'_>) -> bool {
    request.group.is_empty() && request.resource == "namespaces"
}

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

fn is_met(rule: &RuleWithOperations, request: &AdmissionRequest<'_>, version: &str) -> bool {
    let is_in = |list: &Option<Vec<String>>, wanted: &str| {
        list.iter().flatten().any(|one| one == "*" || one == wanted)
    };
    let operation = request.operation.name();
    let has_resource = rule.resources.iter().flatten().any(|one| {
        let (resource, subresource) = one.split_once('/').unwrap_or((one, ""));
        (resource == "*" || resource == request.resource)
            && (subresource == "*" || subresource == request.subresource)
    });
    let has_scope = match rule.scope.as_deref() {
        None | Some("*") => true,
        Some("Namespaced") => request.namespace.is_some(),
        Some("Cluster") => request.namespace.is_none(),
        Some(_) => false,
    };
    has_scope
        && is_in(&rule.operations, operation)
        && is_in(&rule.api_groups, request.group)
        && is_in(&rule.api_versions, version)
        && has_resource
}

/// Whether the selectors of a webhook match the object of a write, or the old object.
///
/// # Errors
/// 404 if the namespace is missing.
pub(super) fn is_selected(
    hook: &Hook,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
) -> Result<bool, AdmissionError> {
    let in_namespace = selects_namespace(&hook.namespace_selector, request, object);
    if matches!(in_namespace, Ok(false)) {
        return Ok(false);
    }
    let selector = &hook.object_selector;
    let selects =
        |tree: Option<&Tree>| tree.is_some_and(|tree| matches(selector, Some(&labels(tree))));
    if !is_empty(selector) && !selects(object) && !selects(request.old_object()) {
        return Ok(false);
    }
    in_namespace
}

fn selects_namespace(
    selector: &LabelSelector,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
) -> Result<bool, AdmissionError> {
    // A cluster-scoped object matches every namespace selector.
    let name = namespace(request);
    if is_empty(selector) || (request.namespace.is_none() && !is_namespace(request)) {
        return Ok(true);
    }
    if let Some(object) = object.filter(|_| is_namespace(request) && request.subresource.is_empty())
    {
        return Ok(matches(selector, Some(&labels(object))));
    }
    let found: Option<Namespace> = request.find("v1", "namespaces", None, name)?;
    let found = found.ok_or_else(|| AdmissionError::not_found("", "namespaces", name))?;
    Ok(matches(selector, found.metadata.labels.as_ref()))
}

fn labels(tree: &Tree) -> BTreeMap<String, String> {
    let labels = tree.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    labels.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
}
