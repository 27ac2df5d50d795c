//! RuntimeClass: a Pod with a RuntimeClass gets its overhead, node selector and tolerations.

use std::collections::BTreeMap;

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::types::Quantity;
use futures::future::{BoxFuture, ready};
use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::{RuntimeClass as Class, Scheduling};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::creates;

type Tree = Map<String, Value>;
type Amounts = BTreeMap<String, Amount>;

const DIFFERS: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const UNDEFINED: &str =
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// The admission plugin RuntimeClass of Kubernetes.
pub(super) struct RuntimeClass;

impl AdmissionPlugin for RuntimeClass {
    fn name(&self) -> &str {
        "RuntimeClass"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates(request, "", "pods")
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(complete(request, object)))
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(object.map_or(Ok(()), |pod| judge(request, pod))))
    }
}

/// Sets the fields of a Pod that its class defines.
fn complete(
    request: &AdmissionRequest<'_>,
    pod: &mut AdmissionObject<'_>,
) -> Result<(), AdmissionError> {
    let Some(class) = class(request, pod)? else { return Ok(()) };
    let defined = overhead(&class);
    let given = given_overhead(pod).unwrap_or_default();
    if defined.is_some_and(|defined| !given.is_empty() && !is_same(defined, &given)) {
        return Err(AdmissionError::forbidden(DIFFERS));
    }
    let Some(spec) = pod.get("spec").and_then(Value::as_object) else { return Ok(()) };
    let mut changed = Vec::new();
    if class.overhead.is_some() {
        changed.push(("overhead", json!(defined)));
    }
    if let Some(scheduling) = &class.scheduling {
        changed.push(("nodeSelector", node_selector(spec, scheduling)?));
        changed.push(("tolerations", tolerations(spec, scheduling)));
    }
    changed.retain(|(field, value)| spec.get(*field).unwrap_or(&Value::Null) != value);
    if changed.is_empty() {
        return Ok(());
    }
    if let Value::Object(spec) = pod.entry("spec").or_insert_with(|| json!({})) {
        for (field, value) in changed {
            spec.insert(field.to_owned(), value);
        }
    }
    Ok(())
}

fn judge(request: &AdmissionRequest<'_>, pod: &Tree) -> Result<(), AdmissionError> {
    let class = class(request, pod)?;
    let given = given_overhead(pod);
    match class.as_ref().filter(|class| class.overhead.is_some()) {
        Some(class) => {
            let nothing = Amounts::new();
            let defined = overhead(class).unwrap_or(&nothing);
            match is_same(defined, &given.unwrap_or_default()) {
                true => Ok(()),
                false => Err(AdmissionError::forbidden(DIFFERS)),
            }
        }
        None if given.is_some() => Err(AdmissionError::forbidden(UNDEFINED)),
        None => Ok(()),
    }
}

/// The class of a Pod, if the Pod names one.
///
/// # Errors
/// 403 if the class does not exist; 500 for an empty name, same as in kube-apiserver.
fn class(request: &AdmissionRequest<'_>, pod: &Tree) -> Result<Option<Class>, AdmissionError> {
    let name = pod.get("spec").and_then(|spec| spec.get("runtimeClassName")?.as_str());
    let Some(name) = name else { return Ok(None) };
    if name.is_empty() {
        return Err(AdmissionError::status(500, "", "resource name may not be empty", None));
    }
    let found = request.find(Class::API_VERSION, Class::URL_PATH_SEGMENT, None, name)?;
    let missing = || format!("pod rejected: RuntimeClass {} not found", json!(name));
    found.map(Some).ok_or_else(|| AdmissionError::forbidden(missing()))
}

fn overhead(class: &Class) -> Option<&Amounts> {
    class.overhead.as_ref()?.pod_fixed.as_ref()
}

fn given_overhead(pod: &Tree) -> Option<Amounts> {
    let given = pod.get("spec")?.get("overhead").filter(|given| !given.is_null())?;
    Amounts::deserialize(given).ok()
}

/// Whether two lists have equal amounts of the same resources.
fn is_same(one: &Amounts, other: &Amounts) -> bool {
    let amount = |amount: &Amount| Quantity::parse(&amount.0).ok().map(|amount| amount.nanos());
    one.len() == other.len()
        && one.iter().all(|(name, value)| {
            other.get(name).is_some_and(|other| amount(other) == amount(value))
        })
}

/// The node selector of a Pod with that of its class.
///
/// # Errors
/// 403 if both have a label with different values.
fn node_selector(spec: &Tree, scheduling: &Scheduling) -> Result<Value, AdmissionError> {
    let mut merged = spec.get("nodeSelector").and_then(Value::as_object).cloned();
    for (key, value) in scheduling.node_selector.iter().flatten() {
        let merged = merged.get_or_insert_default();
        if let Some(own) = merged.get(key).and_then(Value::as_str).filter(|own| own != value) {
            return Err(AdmissionError::forbidden(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            )));
        }
        merged.insert(key.clone(), value.clone().into());
    }
    Ok(merged.map_or(Value::Null, Value::Object))
}

/// The tolerations of a Pod with those of its class, without those that another one includes.
fn tolerations(spec: &Tree, scheduling: &Scheduling) -> Value {
    let own = spec.get("tolerations").and_then(|all| Vec::<Toleration>::deserialize(all).ok());
    let further = scheduling.tolerations.iter().flatten().cloned();
    let all: Vec<Toleration> = own.into_iter().flatten().chain(further).collect();
    let mut merged: Vec<&Toleration> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let later = all[index + 1..].iter();
        let is_included = merged.iter().any(|other| includes(other, one))
            || later.into_iter().any(|other| other != one && includes(other, one));
        if !is_included {
            merged.push(one);
        }
    }
    if merged.is_empty() { Value::Null } else { json!(merged) }
}

/// Whether a toleration tolerates all that another one does.
fn includes(one: &Toleration, other: &Toleration) -> bool {
    fn text(text: &Option<String>) -> &str {
        text.as_deref().unwrap_or_default()
    }
    if one == other {
        return true;
    }
    let is_of_all_keys = text(&one.key).is_empty() && text(&one.operator) == "Exists";
    if text(&one.key) != text(&other.key) && !is_of_all_keys {
        return false;
    }
    if text(&one.effect) != text(&other.effect) && !text(&one.effect).is_empty() {
        return false;
    }
    let seconds = one.toleration_seconds.filter(|_| text(&one.effect) == "NoExecute");
    if seconds.is_some_and(|most| other.toleration_seconds.is_none_or(|one| one > most)) {
        return false;
    }
    match text(&one.operator) {
        "" | "Equal" => text(&other.operator) == "Equal" && text(&one.value) == text(&other.value),
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_tolerations_are_removed() {
        let merged = |own: Value, further: Value| {
            let spec = json!({"tolerations": own});
            let scheduling = serde_json::from_value(json!({"tolerations": further})).unwrap();
            tolerations(spec.as_object().unwrap(), &scheduling)
        };
        let one = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        let any = json!({"key": "a", "operator": "Exists"});
        let short = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        assert_eq!(merged(json!([one]), json!([one])), json!([one]));
        assert_eq!(merged(json!([one]), json!([any])), json!([any]));
        assert_eq!(merged(json!([any]), json!([one])), json!([any]));
        assert_eq!(merged(json!([short]), json!([long])), json!([long]));
        assert_eq!(merged(json!([long, one]), json!([])), json!([long, one]));
        assert_eq!(merged(json!(null), json!(null)), Value::Null);
    }

    #[test]
    fn node_selectors_are_merged_unless_they_conflict() {
        let scheduling: Scheduling =
            serde_json::from_value(json!({"nodeSelector": {"a": "b"}})).unwrap();
        let merged = |spec: Value| node_selector(spec.as_object().unwrap(), &scheduling);
        assert_eq!(merged(json!({})).unwrap(), json!({"a": "b"}));
        let both = merged(json!({"nodeSelector": {"c": "d"}})).unwrap();
        assert_eq!(both, json!({"a": "b", "c": "d"}));
        assert!(merged(json!({"nodeSelector": {"a": "x"}})).is_err());
    }
}
