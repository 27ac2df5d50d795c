//! The validation of updates of a Pod: most fields of its spec are immutable.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration,
};

use crate::built_in::checks::{FieldErrors, check_given, is_same, to_json};
use crate::built_in::pod_template::containers::check_image;
use crate::built_in::pod_template::scope::Scope;
use crate::built_in::pod_template::tolerations;

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update of the spec.
pub(crate) fn validate(scope: &Scope<'_>, old: &PodSpec, faults: &mut FieldErrors) {
    let spec = scope.spec;
    let lists = [
        ("spec.containers", Some(&spec.containers), Some(&old.containers)),
        ("spec.initContainers", spec.init_containers.as_ref(), old.init_containers.as_ref()),
    ];
    for (at, new, old) in lists {
        let new = new.map(Vec::as_slice).unwrap_or_default();
        if new.len() != old.map_or(0, Vec::len) {
            let why = "pod updates may not add or remove containers";
            return faults.push(FieldError::forbidden(at, why));
        }
        for (index, container) in new.iter().enumerate() {
            let at = format!("{at}[{index}]");
            check_given(
                &format!("{at}.image"),
                container.image.as_deref().unwrap_or_default(),
                faults,
            );
            check_image(container, &at, faults);
        }
    }
    if !check_deadline(spec, old, faults) {
        return;
    }
    check_tolerations(scope, old, faults);
    check_gates(spec, old, faults);
    let mut rest = spec.clone();
    let both = rest.init_containers.iter_mut().flatten().zip(old.init_containers.iter().flatten());
    for (new, old) in rest.containers.iter_mut().zip(&old.containers).chain(both) {
        new.image.clone_from(&old.image);
    }
    rest.active_deadline_seconds = old.active_deadline_seconds;
    rest.scheduling_gates.clone_from(&old.scheduling_gates);
    rest.tolerations.clone_from(&old.tolerations);
    if old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0)
        && rest.termination_grace_period_seconds == Some(1)
    {
        rest.termination_grace_period_seconds = old.termination_grace_period_seconds;
    }
    if old.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        allow_nodes(&mut rest, old, faults);
    }
    if !is_same(&rest, old) {
        faults.push(FieldError::forbidden("spec", MAY_CHANGE));
    }
}

/// Checks the active deadline. Returns whether the remaining fields are validated, too.
fn check_deadline(spec: &PodSpec, old: &PodSpec, faults: &mut FieldErrors) -> bool {
    const AT: &str = "spec.activeDeadlineSeconds";
    match (spec.active_deadline_seconds, old.active_deadline_seconds) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let why = format!("must be between 0 and {}, inclusive", i32::MAX);
            faults.push(FieldError::invalid(AT, new, &why));
            false
        }
        (Some(new), Some(old)) if new > old => {
            let why = "must be less than or equal to previous value";
            faults.push(FieldError::invalid(AT, new, why));
            false
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            faults.push(FieldError::invalid(AT, "null", why));
            true
        }
        _ => true,
    }
}

/// Checks that tolerations are only added. Their `tolerationSeconds` may change.
fn check_tolerations(scope: &Scope<'_>, old: &PodSpec, faults: &mut FieldErrors) {
    let lasting =
        |one: &Toleration| to_json(&Toleration { toleration_seconds: None, ..one.clone() });
    let new = scope.spec.tolerations.as_deref().unwrap_or_default();
    let now: BTreeSet<String> = new.iter().map(lasting).collect();
    if old.tolerations.iter().flatten().map(lasting).all(|one| now.contains(&one)) {
        tolerations::validate(new, scope, "spec.tolerations", faults);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        faults.push(FieldError::forbidden("spec.tolerations", why));
    }
}

/// Checks that scheduling gates are only removed.
fn check_gates(spec: &PodSpec, old: &PodSpec, faults: &mut FieldErrors) {
    let known: BTreeSet<&str> =
        old.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str()).collect();
    let now = spec.scheduling_gates.iter().flatten().enumerate();
    for (index, gate) in now.filter(|(_, gate)| !known.contains(gate.name.as_str())) {
        let at = format!("spec.schedulingGates[{index}].name");
        let name = &gate.name;
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        faults.push(FieldError::forbidden(at, &why));
    }
}

/// Allows the node selector and the node affinity of a Pod with scheduling gates to become stricter. Allowed changes
/// are reverted in `rest`.
fn allow_nodes(rest: &mut PodSpec, old: &PodSpec, faults: &mut FieldErrors) {
    let kept = |(key, value): (&String, &String)| {
        rest.node_selector.as_ref().and_then(|selector| selector.get(key)) == Some(value)
    };
    if !old.node_selector.iter().flatten().all(kept) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        let value = to_json(&rest.node_selector);
        faults.push(FieldError::invalid("spec.nodeSelector", value, why));
    }
    rest.node_selector.clone_from(&old.node_selector);
    let nodes = |spec: &PodSpec| spec.affinity.as_ref()?.node_affinity.clone();
    let (new_nodes, old_nodes) = (nodes(rest), nodes(old));
    if is_same(&new_nodes, &old_nodes) {
        return;
    }
    check_node_affinity(new_nodes.as_ref(), old_nodes.as_ref(), faults);
    match &mut rest.affinity {
        None => {
            rest.affinity = old_nodes
                .map(|nodes| Affinity { node_affinity: Some(nodes), ..Affinity::default() });
        }
        Some(affinity) => affinity.node_affinity = old_nodes,
    }
    if old.affinity.is_none() && rest.affinity == Some(Affinity::default()) {
        rest.affinity = None;
    }
}

/// Checks that the required node affinity only gets more requirements.
fn check_node_affinity(
    new: Option<&NodeAffinity>,
    old: Option<&NodeAffinity>,
    faults: &mut FieldErrors,
) {
    const AT: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let terms = |affinity: Option<&NodeAffinity>| -> Vec<NodeSelectorTerm> {
        let required = affinity
            .and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        required.map(|required| required.node_selector_terms.clone()).unwrap_or_default()
    };
    let (new, old) = (terms(new), terms(old));
    if old.is_empty() {
        return;
    }
    if new.len() != old.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return faults.push(FieldError::invalid(AT, to_json(&new), why));
    }
    for (index, (new, old)) in new.iter().zip(&old).enumerate() {
        if !only_adds(new, old) {
            let why = "only additions are allowed (no mutations or deletions)";
            faults.push(FieldError::invalid(format!("{AT}[{index}]"), to_json(new), why));
        }
    }
}

/// Whether a term has the requirements of an old one, followed by others. An empty term selects nothing, and must
/// remain empty.
fn only_adds(new: &NodeSelectorTerm, old: &NodeSelectorTerm) -> bool {
    let list = |list: &Option<Vec<NodeSelectorRequirement>>| list.clone().unwrap_or_default();
    let (new, old) = (
        [list(&new.match_expressions), list(&new.match_fields)],
        [list(&old.match_expressions), list(&old.match_fields)],
    );
    if old.iter().all(Vec::is_empty) && !new.iter().all(Vec::is_empty) {
        return false;
    }
    new.iter().zip(&old).all(|(new, old)| new.starts_with(old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::pod_template::scope::Owner;
    use crate::built_in::testing::{object, texts};
    use serde_json::{Value, json};

    fn spec(more: Value) -> Value {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    }

    fn faults(old: Value, new: Value) -> Vec<String> {
        let (new, old): (PodSpec, PodSpec) = (object(spec(new)), object(spec(old)));
        let mut faults = Vec::new();
        validate(&Scope::new(&new, Owner::Pod, None, Some((&old, None))), &old, &mut faults);
        texts(&faults)
    }

    #[test]
    fn mutable_pod_spec_fields_can_be_updated() {
        let toleration = json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 5});
        let longer = json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 9});
        for (old, new) in [
            (json!({}), json!({"containers": [{"name": "c", "image": "j"}]})),
            (json!({}), json!({"activeDeadlineSeconds": 5})),
            (json!({"activeDeadlineSeconds": 5}), json!({"activeDeadlineSeconds": 4})),
            (
                json!({"tolerations": [toleration]}),
                json!({"tolerations": [longer, {"key": "b", "value": "c"}]}),
            ),
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
    fn updates_of_immutable_pod_spec_fields_are_rejected() {
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
                json!({"initContainers": [{"name": "i", "image": "i"}]}),
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
