//! Decides which webhooks are called for a write.

use std::collections::BTreeMap;

use crate::admission::{AdmissionError, AdmissionRequest};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::conditions::{self, Variables};
use super::hook::Hook;
use super::mutating::in_version;
use super::review::Question;
use super::{LazyNamespaces, Tree};
use crate::admission::label_selector::{is_empty, matches};
use crate::admission::namespace_lifecycle::unread;

/// The group of the configurations.
const GROUP: &str = "admissionregistration.k8s.io";
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
    if !is_selected(hook, request, object, namespaces).await? {
        return Ok(false);
    }
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let shown = in_version(request, object, version).await?;
    let old = in_version(request, request.old_object(), version).await?;
    let (object, old) = (shown.as_deref(), old.as_deref());
    let attributes = Question { request, version, object, old }.attributes();
    match conditions::are_met(&hook.conditions, &Variables { object, old, request: &attributes }) {
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

/// Whether the selectors of a webhook match the object of a write, or the old object.
async fn is_selected(
    hook: &Hook,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
    namespaces: Option<&LazyNamespaces>,
) -> Result<bool, AdmissionError> {
    let selector = &hook.namespace_selector;
    let in_namespace = selects_namespace(selector, request, object, namespaces).await;
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

async fn selects_namespace(
    selector: &LabelSelector,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
    namespaces: Option<&LazyNamespaces>,
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
    let found = match namespaces {
        Some(namespaces) => {
            let found = namespaces.labels(name, &request.user.name).await;
            found.map_err(|error| AdmissionError::answer(unread(error)))?
        }
        None => {
            let found: Option<Namespace> = request.find("v1", "namespaces", None, name)?;
            found.map(|namespace| namespace.metadata.labels.unwrap_or_default())
        }
    };
    let found = found.ok_or_else(|| AdmissionError::not_found("", "namespaces", name))?;
    Ok(matches(selector, Some(&found)))
}

fn labels(tree: &Tree) -> BTreeMap<String, String> {
    let labels = tree.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    labels.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
}
