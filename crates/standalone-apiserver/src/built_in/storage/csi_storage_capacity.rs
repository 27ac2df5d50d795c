//! CSIStorageCapacities.

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::built_in::checks::{
    FieldErrors, IMMUTABLE, check_immutable, check_not_negative_amount, check_with, is_same,
    to_json,
};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::requiring_resource_version;
use crate::built_in::{label_selector, node_labels};

pub(crate) fn row() -> Row<CSIStorageCapacity> {
    let rules = Validation::new()
        .validate(|capacity, old, _| validate(capacity, old))
        .warn(|capacity, _, _| warnings(capacity));
    Row { columns: vec![Column::created_at()], rules, ..Row::new(requiring_resource_version()) }
}

fn validate(capacity: &CSIStorageCapacity, old: Option<&CSIStorageCapacity>) -> FieldErrors {
    let mut faults = Vec::new();
    if let Some(topology) = &capacity.node_topology {
        label_selector::validate(topology, "nodeTopology", &mut faults);
    }
    let class = &capacity.storage_class_name;
    check_with("storageClassName", class, names::check_dns_1123_subdomain, &mut faults);
    if let Some(amount) = &capacity.capacity {
        check_not_negative_amount("capacity", amount, &mut faults);
    }
    let Some(old) = old else { return faults };
    let topology = &capacity.node_topology;
    if !is_same(topology, &old.node_topology) {
        faults.push(FieldError::invalid("nodeTopology", shown(topology.as_ref()), IMMUTABLE));
    }
    check_immutable("storageClassName", class, &old.storage_class_name, &mut faults);
    faults
}

/// A selector as JSON, in the order of Go.
fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "null".to_owned() };
    let labels = selector.match_labels.as_ref().filter(|labels| !labels.is_empty());
    let expressions = selector.match_expressions.as_ref().filter(|all| !all.is_empty());
    let labels = labels.map(|labels| format!("\"matchLabels\":{}", to_json(labels)));
    let expressions = expressions.map(|all| format!("\"matchExpressions\":{}", to_json(all)));
    format!("{{{}}}", labels.into_iter().chain(expressions).collect::<Vec<_>>().join(","))
}

/// Warnings about deprecated labels of Nodes.
fn warnings(capacity: &CSIStorageCapacity) -> Vec<String> {
    let Some(topology) = &capacity.node_topology else { return Vec::new() };
    let terms = topology.match_expressions.iter().flatten().enumerate();
    let of_terms = terms.filter_map(|(index, term)| {
        let why = node_labels::deprecation(&term.key)?;
        Some(format!("nodeTopology.matchExpressions[{index}].key: {} is {why}", term.key))
    });
    let of_labels = topology.match_labels.iter().flatten().filter_map(|(label, _)| {
        let why = node_labels::deprecation(label)?;
        Some(format!("nodeTopology.matchLabels.{label}: {why}"))
    });
    of_terms.chain(of_labels).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object};
    use serde_json::json;

    #[test]
    fn invalid_capacities_are_rejected() {
        let valid = json!({"storageClassName": "fast", "capacity": "1Gi"});
        assert_eq!(faults_of_new(validate, valid.clone()), [] as [&str; 0]);
        let broken = json!({
            "storageClassName": "", "capacity": "-1",
            "nodeTopology": {"matchExpressions": [{"key": "a", "operator": "X"}]},
        });
        let faults = faults_of_new(validate, broken);
        assert_eq!(
            faults[0],
            "nodeTopology.matchExpressions[0].operator: Invalid value: \"X\": not a valid selector operator"
        );
        assert!(faults[1].starts_with("storageClassName: Invalid value: \"\""), "{faults:?}");
        assert_eq!(
            faults[2],
            "capacity: Invalid value: \"-1\": must be greater than or equal to 0"
        );
        let moved = json!({"storageClassName": "slow", "nodeTopology": {
            "matchLabels": {"b": "c"}, "matchExpressions": [{"key": "a", "operator": "Exists"}],
        }});
        assert_eq!(
            faults_of_update(validate, valid, moved),
            [
                "nodeTopology: Invalid value: {\"matchLabels\":{\"b\":\"c\"},\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\"}]}: field is immutable",
                "storageClassName: Invalid value: \"slow\": field is immutable",
            ]
        );
    }

    #[test]
    fn deprecated_labels_are_warned_about() {
        let topology = json!({
            "matchLabels": {"beta.kubernetes.io/os": "linux"},
            "matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "Exists"}],
        });
        let capacity = object(json!({"storageClassName": "a", "nodeTopology": topology}));
        assert_eq!(
            warnings(&capacity),
            [
                "nodeTopology.matchExpressions[0].key: beta.kubernetes.io/arch is deprecated since v1.14; use \"kubernetes.io/arch\" instead",
                "nodeTopology.matchLabels.beta.kubernetes.io/os: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ]
        );
    }
}
