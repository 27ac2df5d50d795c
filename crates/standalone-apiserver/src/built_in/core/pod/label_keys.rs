//! Selectors of a Pod for other Pods that share, or do not share, labels with it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

type Labels = BTreeMap<String, String>;

/// Adds requirements to the selectors of a new Pod: its own values of `matchLabelKeys` and `mismatchLabelKeys`.
pub(super) fn add_requirements(spec: &mut PodSpec, labels: Option<&Labels>) {
    let Some(labels) = labels else { return };
    if let Some(affinity) = &mut spec.affinity {
        let to = affinity.pod_affinity.as_mut().map(|one| {
            let required = &mut one.required_during_scheduling_ignored_during_execution;
            (required, &mut one.preferred_during_scheduling_ignored_during_execution)
        });
        let away = affinity.pod_anti_affinity.as_mut().map(|one| {
            let required = &mut one.required_during_scheduling_ignored_during_execution;
            (required, &mut one.preferred_during_scheduling_ignored_during_execution)
        });
        for (required, preferred) in to.into_iter().chain(away) {
            let preferred = preferred.iter_mut().flatten();
            let preferred = preferred.map(|weighted| &mut weighted.pod_affinity_term);
            for term in required.iter_mut().flatten().chain(preferred) {
                add_to_term(term, labels);
            }
        }
    }
    for constraint in spec.topology_spread_constraints.iter_mut().flatten() {
        if let Some(selector) = &mut constraint.label_selector {
            add(selector, constraint.match_label_keys.as_deref(), "In", labels);
        }
    }
}

fn add_to_term(term: &mut PodAffinityTerm, labels: &Labels) {
    if let Some(selector) = &mut term.label_selector {
        add(selector, term.match_label_keys.as_deref(), "In", labels);
        add(selector, term.mismatch_label_keys.as_deref(), "NotIn", labels);
    }
}

/// Adds a requirement for each key that the Pod has.
fn add(selector: &mut LabelSelector, keys: Option<&[String]>, operator: &str, labels: &Labels) {
    for key in keys.into_iter().flatten() {
        let Some(value) = labels.get(key) else { continue };
        let requirement = LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.to_owned(),
            values: Some(vec![value.clone()]),
        };
        selector.match_expressions.get_or_insert_default().push(requirement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::json;

    #[test]
    fn requirements() {
        let term = json!({
            "topologyKey": "t", "labelSelector": {}, "matchLabelKeys": ["a", "none"],
            "mismatchLabelKeys": ["b"],
        });
        let affinity =
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let mut spec: PodSpec = object(json!({"containers": [], "affinity": affinity}));
        let labels = object(json!({"a": "1", "b": "2"}));
        add_requirements(&mut spec, Some(&labels));
        let affinity = spec.affinity.unwrap().pod_affinity.unwrap();
        let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap();
        assert_eq!(
            serde_json::to_value(&terms[0].label_selector).unwrap(),
            json!({"matchExpressions": [
                {"key": "a", "operator": "In", "values": ["1"]},
                {"key": "b", "operator": "NotIn", "values": ["2"]},
            ]})
        );
    }
}
