//! The validation of updates of a Pod: next to nothing of its spec may change.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{PodSpec, Toleration};

use crate::built_in::checks::{FieldErrors, to_json};

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update of the spec.
pub(crate) fn validate(spec: &PodSpec, old: &PodSpec, faults: &mut FieldErrors) {
    let same_length = |a: &Option<Vec<_>>, b: &Option<Vec<_>>| {
        a.as_ref().map_or(0, Vec::len) == b.as_ref().map_or(0, Vec::len)
    };
    let names = |spec: &PodSpec| {
        let all = spec.containers.iter().map(|container| container.name.clone());
        all.collect::<Vec<String>>()
    };
    if names(spec).len() != names(old).len() {
        let why = "pod updates may not add or remove containers";
        return faults.push(FieldError::forbidden("spec.containers", why));
    }
    if !same_length(&spec.init_containers, &old.init_containers) {
        let why = "pod updates may not add or remove containers";
        return faults.push(FieldError::forbidden("spec.initContainers", why));
    }
    match (spec.active_deadline_seconds, old.active_deadline_seconds) {
        (Some(new), Some(old)) if new > old => {
            let why = "must be less than or equal to previous value";
            return faults.push(FieldError::invalid("spec.activeDeadlineSeconds", new, why));
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            return faults.push(FieldError::invalid("spec.activeDeadlineSeconds", "null", why));
        }
        _ => {}
    }
    let before = old.tolerations.as_deref().unwrap_or_default();
    let now = spec.tolerations.as_deref().unwrap_or_default();
    // Their tolerationSeconds may change.
    let lasting =
        |one: &Toleration| to_json(&Toleration { toleration_seconds: None, ..one.clone() });
    let now: BTreeSet<String> = now.iter().map(lasting).collect();
    if !before.iter().map(lasting).all(|one| now.contains(&one)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        faults.push(FieldError::forbidden("spec.tolerations", why));
    }
    let mut rest = spec.clone();
    for (new, old) in rest.containers.iter_mut().zip(&old.containers) {
        new.image.clone_from(&old.image);
    }
    let both = rest.init_containers.iter_mut().flatten().zip(old.init_containers.iter().flatten());
    for (new, old) in both {
        new.image.clone_from(&old.image);
    }
    rest.active_deadline_seconds = old.active_deadline_seconds;
    check_scheduling_gates(&mut rest, old, faults);
    rest.tolerations.clone_from(&old.tolerations);
    if old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        rest.termination_grace_period_seconds = old.termination_grace_period_seconds;
    }
    if rest != *old {
        faults.push(FieldError::forbidden("spec", MAY_CHANGE));
    }
}

/// Scheduling gates may be removed. While there were any, the node selector and the node
/// affinity may change too. What is allowed is set back in `rest`.
fn check_scheduling_gates(rest: &mut PodSpec, old: &PodSpec, faults: &mut FieldErrors) {
    let before = old.scheduling_gates.as_deref().unwrap_or_default();
    let now = rest.scheduling_gates.as_deref().unwrap_or_default();
    let known: BTreeSet<&str> = before.iter().map(|gate| gate.name.as_str()).collect();
    let added = now.iter().enumerate().filter(|(_, gate)| !known.contains(gate.name.as_str()));
    for (index, gate) in added {
        let at = format!("spec.schedulingGates[{index}].name");
        let name = &gate.name;
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        faults.push(FieldError::forbidden(at, &why));
    }
    rest.scheduling_gates.clone_from(&old.scheduling_gates);
    if before.is_empty() {
        return;
    }
    let kept = |(key, value): (&String, &String)| {
        rest.node_selector.as_ref().and_then(|selector| selector.get(key)) == Some(value)
    };
    if !old.node_selector.iter().flatten().all(kept) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        let value = to_json(&rest.node_selector);
        faults.push(FieldError::invalid("spec.nodeSelector", value, why));
    }
    rest.node_selector.clone_from(&old.node_selector);
    if let Some(affinity) = &mut rest.affinity {
        let before = old.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
        affinity.node_affinity = before;
        if old.affinity.is_none() && *affinity == Default::default() {
            rest.affinity = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::{Value, json};

    fn spec(more: Value) -> Value {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    }

    fn faults(old: Value, new: Value) -> Vec<String> {
        let mut faults = Vec::new();
        validate(&object(spec(new)), &object(spec(old)), &mut faults);
        texts(&faults)
    }

    #[test]
    fn what_may_be_updated() {
        let toleration = json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 5});
        let longer = json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 9});
        for (old, new) in [
            (json!({}), json!({"containers": [{"name": "c", "image": "j"}]})),
            (json!({}), json!({"activeDeadlineSeconds": 5})),
            (json!({"activeDeadlineSeconds": 5}), json!({"activeDeadlineSeconds": 4})),
            (json!({"tolerations": [toleration]}), json!({"tolerations": [longer, {"key": "b"}]})),
            (
                json!({"terminationGracePeriodSeconds": -1}),
                json!({"terminationGracePeriodSeconds": 1}),
            ),
            (
                json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}}),
                json!({"nodeSelector": {"a": "b", "c": "d"}}),
            ),
        ] {
            assert_eq!(faults(old, new.clone()), [] as [&str; 0], "{new}");
        }
    }

    #[test]
    fn what_may_not() {
        let other = format!("spec: Forbidden: {MAY_CHANGE}");
        let gate = "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'";
        let toleration = "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds";
        for (old, new, expected) in [
            (json!({}), json!({"nodeName": "n"}), other.as_str()),
            (json!({}), json!({"containers": [{"name": "d", "image": "i"}]}), &other),
            (json!({}), json!({"nodeSelector": {"a": "b"}}), &other),
            (
                json!({}),
                json!({"containers": []}),
                "spec.containers: Forbidden: pod updates may not add or remove containers",
            ),
            (
                json!({}),
                json!({"initContainers": [{"name": "i"}]}),
                "spec.initContainers: Forbidden: pod updates may not add or remove containers",
            ),
            (
                json!({"activeDeadlineSeconds": 4}),
                json!({"activeDeadlineSeconds": 5}),
                "spec.activeDeadlineSeconds: Invalid value: 5: must be less than or equal to previous value",
            ),
            (
                json!({"activeDeadlineSeconds": 4}),
                json!({}),
                "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
            ),
            (json!({"tolerations": [{"key": "a"}]}), json!({"tolerations": []}), toleration),
            (json!({}), json!({"schedulingGates": [{"name": "g"}]}), gate),
            (
                json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}}),
                json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"c": "d"}}),
                "spec.nodeSelector: Invalid value: {\"c\":\"d\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            ),
        ] {
            assert_eq!(faults(old, new.clone()), [expected], "{new}");
        }
    }
}
