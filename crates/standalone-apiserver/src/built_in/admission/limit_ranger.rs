//! LimitRanger: sets default requests and limits of containers, and checks the requests and limits of containers, Pods
//! and claims.

mod constraints;
mod pod_sums;

use std::collections::BTreeMap;

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use serde_json::{Map, Value};

use super::{creates, is_of};
use constraints::{Asked, faults_of_claim, faults_of_limit};

type Tree = Map<String, Value>;
type Amounts = BTreeMap<String, Amount>;

const PODS: &str = "pods";
const CLAIMS: &str = "persistentvolumeclaims";

/// The annotation with the fields that the plugin has set in a Pod.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The admission plugin LimitRanger of Kubernetes.
pub(super) struct LimitRanger;

impl AdmissionPlugin for LimitRanger {
    fn name(&self) -> &str {
        "LimitRanger"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        // The resources of containers do not change in an update.
        let is_claim =
            is_of(request, "", CLAIMS) && request.operation != AdmissionOperation::Delete;
        creates(request, "", PODS) || is_claim
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let set = match request.resource {
            PODS => ranges(request).map(|ranges| {
                for range in &ranges {
                    set_defaults(range, object);
                }
            }),
            _ => Ok(()),
        };
        Box::pin(ready(set))
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let judged = object.map_or(Ok(()), |object| judge(request, object));
        Box::pin(ready(judged))
    }
}

/// The LimitRanges of the namespace of a request.
fn ranges(request: &AdmissionRequest<'_>) -> Result<Vec<LimitRange>, AdmissionError> {
    request.find_all("v1", "limitranges", request.namespace)
}

fn limits(range: &LimitRange) -> &[LimitRangeItem] {
    range.spec.as_ref().map(|spec| spec.limits.as_slice()).unwrap_or_default()
}

/// Sets the default requests and limits of a LimitRange in the containers of a Pod that lack them.
fn set_defaults(range: &LimitRange, pod: &mut AdmissionObject<'_>) {
    let (mut limited, mut requested) = (Amounts::new(), Amounts::new());
    for limit in limits(range).iter().filter(|limit| limit.type_ == "Container") {
        limited.extend(limit.default.clone().unwrap_or_default());
        requested.extend(limit.default_request.clone().unwrap_or_default());
    }
    if limited.is_empty() && requested.is_empty() {
        return;
    }
    let mut said = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)?.as_array_mut());
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            set_in_container(container, what, (&limited, &requested), &mut said);
        }
    }
    if said.is_empty() {
        return;
    }
    let metadata = pod.entry("metadata").or_insert_with(|| Map::new().into());
    let Value::Object(metadata) = metadata else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
    let Value::Object(annotations) = annotations else { return };
    let said = format!("LimitRanger plugin set: {}", said.join("; "));
    annotations.insert(ANNOTATION.to_owned(), said.into());
}

fn set_in_container(
    container: &mut Tree,
    what: &str,
    (limited, requested): (&Amounts, &Amounts),
    said: &mut Vec<String>,
) {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let resources = container.entry("resources").or_insert_with(|| Map::new().into());
    let Value::Object(resources) = resources else { return };
    // The request of a container defaults to its own limit, which takes precedence over the LimitRange.
    let own = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    let own =
        own.into_iter().filter_map(|(name, amount)| Some((name, amount.as_str()?.to_owned())));
    let own: Amounts = own.map(|(name, amount)| (name, Amount(amount))).collect();
    fill(resources, "requests", &own);
    for (field, what_of, amounts) in
        [("requests", "request", requested), ("limits", "limit", limited)]
    {
        let set = fill(resources, field, amounts);
        if !set.is_empty() {
            said.push(format!("{} {what_of} for {what} {name}", set.join(", ")));
        }
    }
}

/// Sets missing amounts, and returns their names.
fn fill<'a>(resources: &mut Tree, field: &str, amounts: &'a Amounts) -> Vec<&'a str> {
    if amounts.is_empty() {
        return Vec::new();
    }
    let there = resources.entry(field).or_insert_with(|| Map::new().into());
    let Value::Object(there) = there else { return Vec::new() };
    let mut set = Vec::new();
    for (name, amount) in amounts {
        if !there.contains_key(name) {
            there.insert(name.clone(), amount.0.clone().into());
            set.push(name.as_str());
        }
    }
    set
}

fn judge(request: &AdmissionRequest<'_>, object: &Tree) -> Result<(), AdmissionError> {
    let goes = |old: &Tree| old.get("metadata")?.get("deletionTimestamp").cloned();
    if request.old_object().and_then(goes).is_some() {
        return Ok(());
    }
    let ranges = ranges(request)?;
    if ranges.is_empty() {
        return Ok(());
    }
    // Validation reports an object that does not match its type.
    let object = Value::Object(object.clone());
    let asked = match request.resource {
        PODS => serde_json::from_value::<Pod>(object).ok().map(Box::new).map(Asked::Pod),
        _ => serde_json::from_value::<PersistentVolumeClaim>(object)
            .ok()
            .map(Box::new)
            .map(Asked::Claim),
    };
    let Some(asked) = asked else { return Ok(()) };
    for range in &ranges {
        let faults = limits(range).iter().flat_map(|limit| match &asked {
            Asked::Pod(pod) => faults_of_limit(limit, pod),
            Asked::Claim(claim) => faults_of_claim(limit, claim),
        });
        let mut faults: Vec<String> = faults.collect();
        let mut seen = std::collections::BTreeSet::new();
        faults.retain(|fault| seen.insert(fault.clone()));
        match faults.as_slice() {
            [] => {}
            [one] => return Err(AdmissionError::forbidden(one.clone())),
            all => return Err(AdmissionError::forbidden(format!("[{}]", all.join(", ")))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limit_range_defaults_are_set_in_a_container() {
        let amounts = |amounts: &[(&str, &str)]| -> Amounts {
            let amounts = amounts.iter();
            amounts
                .map(|(name, amount)| ((*name).to_owned(), Amount((*amount).to_owned())))
                .collect()
        };
        let limited = amounts(&[("cpu", "2"), ("memory", "1Gi")]);
        let requested = amounts(&[("cpu", "1"), ("memory", "1Gi")]);
        let mut container = Tree::new();
        container.insert("name".to_owned(), "c".into());
        container.insert("resources".to_owned(), json!({"limits": {"cpu": "500m"}}));
        let mut said = Vec::new();
        set_in_container(&mut container, "container", (&limited, &requested), &mut said);
        assert_eq!(
            container["resources"],
            json!({
                "limits": {"cpu": "500m", "memory": "1Gi"},
                "requests": {"cpu": "500m", "memory": "1Gi"},
            })
        );
        assert_eq!(said, ["memory request for container c", "memory limit for container c"]);
        said.clear();
        set_in_container(&mut container, "container", (&limited, &requested), &mut said);
        assert_eq!(said, [] as [&str; 0]);
    }
}
