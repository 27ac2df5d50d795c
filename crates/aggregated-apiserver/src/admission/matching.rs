//! The matching of writes by rules and selectors, which webhooks and policies share.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::label_selector::{is_empty, matches};
use super::namespace_lifecycle::unread;
use super::{AdmissionError, AdmissionRequest, LazyNamespaces};
use crate::object::Tree;

/// The group of configurations and policies.
const GROUP: &str = "admissionregistration.k8s.io";
/// The kinds to which no policy applies, so that a broken policy cannot prevent its own repair.
const POLICIES: [&str; 4] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];
/// Further kinds for which no webhook is called. Policies apply to them.
const CONFIGURATIONS: [&str; 2] =
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Whether no policy applies to a write.
pub(super) fn is_exempt_from_policies(request: &AdmissionRequest<'_>) -> bool {
    request.group == GROUP && POLICIES.contains(&request.kind)
}

/// Whether no webhook is called for a write.
pub(super) fn is_exempt_from_webhooks(request: &AdmissionRequest<'_>) -> bool {
    let is_configuration = request.group == GROUP && CONFIGURATIONS.contains(&request.kind);
    is_configuration || is_exempt_from_policies(request)
}

/// The namespace of a write in the data for webhooks and policies. The namespace of a Namespace is its own name.
pub(super) fn namespace<'a>(request: &'a AdmissionRequest<'_>) -> &'a str {
    if is_namespace(request) { request.name } else { request.namespace.unwrap_or_default() }
}

/// Whether a write is about a Namespace.
pub(super) fn is_namespace(request: &AdmissionRequest<'_>) -> bool {
    request.group.is_empty() && request.resource == "namespaces"
}

/// Whether a rule matches a write in this version of its kind.
pub(super) fn is_met(
    rule: &RuleWithOperations,
    request: &AdmissionRequest<'_>,
    version: &str,
) -> bool {
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

/// The selectors of a webhook, a policy or a binding.
#[derive(Clone, Copy)]
pub(super) struct Selectors<'a> {
    pub namespace: &'a LabelSelector,
    pub object: &'a LabelSelector,
}

/// Whether selectors match the object of a write, or the old object.
///
/// # Errors
/// 404 if the namespace is missing, 500 if it cannot be read.
pub(super) async fn is_selected(
    selectors: Selectors<'_>,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
    namespaces: Option<&LazyNamespaces>,
) -> Result<bool, AdmissionError> {
    let in_namespace = selects_namespace(selectors.namespace, request, object, namespaces).await;
    if matches!(in_namespace, Ok(false)) {
        return Ok(false);
    }
    let selector = selectors.object;
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
    let found = find_namespace(name, request, namespaces).await?;
    Ok(matches(selector, found.metadata.labels.as_ref()))
}

/// The Namespace with this name.
///
/// # Errors
/// 404 if the namespace is missing, 500 if it cannot be read.
pub(super) async fn find_namespace(
    name: &str,
    request: &AdmissionRequest<'_>,
    namespaces: Option<&LazyNamespaces>,
) -> Result<Arc<Namespace>, AdmissionError> {
    let found = match namespaces {
        Some(namespaces) => {
            let found = namespaces.find(name, &request.user.name).await;
            found.map_err(|error| AdmissionError::answer(unread(error)))?
        }
        None => request.find("v1", "namespaces", None, name)?.map(Arc::new),
    };
    found.ok_or_else(|| AdmissionError::not_found("", "namespaces", name))
}

/// The labels of an object.
pub(super) fn labels(tree: &Tree) -> BTreeMap<String, String> {
    let labels = tree.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    labels.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
}

/// Sets the resourceVersion of an object.
pub(super) fn set_resource_version(tree: &mut Tree, version: &str) {
    if let Some(Value::Object(metadata)) = tree.get_mut("metadata") {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
}
