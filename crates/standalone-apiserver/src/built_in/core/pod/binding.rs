//! `pods/binding`: a scheduler binds a Pod to a node.

use aggregated_apiserver::strategy::{SubresourceError, SubresourceOutcome, SubresourceRequest};
use aggregated_apiserver::{FieldError, Kind};
use k8s_openapi::api::core::v1::Binding;
use serde_json::{Map, Value, json};

use super::{check_name, set_condition};
use crate::built_in::TYPES;
use crate::built_in::checks::quote;
use crate::built_in::row::{BuiltInKindError, PostedSubresource, review};

/// The kind `Binding`: a Binding is handled like one that is posted to `pods/binding`.
///
/// # Errors
/// The reason, if the kind cannot be served.
pub(crate) fn kind() -> Result<Kind, BuiltInKindError> {
    let definition = review::<Binding>().map_err(|why| BuiltInKindError::new("Binding", why))?;
    Ok(Kind::posting_to(definition, &TYPES, "pods", "binding"))
}

pub(super) fn subresource() -> PostedSubresource {
    PostedSubresource::new::<Binding>("binding", bind)
}

fn bind(request: &SubresourceRequest<'_>) -> Result<SubresourceOutcome, SubresourceError> {
    let text = |tree: &Map<String, Value>, part: &str, field: &str| {
        let value = tree.get(part).and_then(|part| part.get(field)?.as_str());
        value.unwrap_or_default().to_owned()
    };
    let (name, node) = (request.key.name(), text(request.body, "target", "name"));
    check(request, &text(request.body, "target", "kind"), &node)?;
    let conflict = |why: String| Err(SubresourceError::Conflict(why));
    let pod = request.object;
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let bound = text(pod, "spec", "nodeName");
    if !bound.is_empty() {
        return conflict(format!("pod {name} is already assigned to node {}", quote(&bound)));
    }
    let gates = pod["spec"]["schedulingGates"].as_array();
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = Value::Object(pod.clone());
    pod["spec"]["nodeName"] = node.into();
    for field in ["annotations", "labels"] {
        let given = request.body["metadata"].get(field).and_then(Value::as_object);
        for (key, value) in given.into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    let scheduled = json!({"type": "PodScheduled", "status": "True"});
    set_condition(&mut pod, scheduled, request.context.now);
    match pod {
        Value::Object(pod) => Ok(SubresourceOutcome::Change(pod)),
        _ => Err(SubresourceError::BadRequest("not a Pod".to_owned())),
    }
}

/// Returns the errors of a binding.
fn check(request: &SubresourceRequest<'_>, kind: &str, node: &str) -> Result<(), SubresourceError> {
    check_name(request, "Binding")?;
    let mut errors = Vec::new();
    if !["", "Node"].contains(&kind) {
        let all = ["Node", "<empty>"];
        errors.push(FieldError::not_supported("target.kind", quote(kind), &all));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        // kube-apiserver returns only this message, as an internal error of its own.
        [one] => Err(SubresourceError::BadRequest(one.clone())),
        many => Err(SubresourceError::BadRequest(format!("[{}]", many.join(", ")))),
    }
}
