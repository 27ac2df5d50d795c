//! HorizontalPodAutoscalers of `autoscaling/v1`: another representation of those of `autoscaling/v2`, which are stored.

mod annotations;
mod conversion;

use aggregated_apiserver::strategy::{RuleContext, View};
use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler as Stored, HorizontalPodAutoscalerBehavior,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::horizontal_pod_autoscaler::{self as stored, Summary};
use crate::built_in::checks::FieldErrors;
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy::without_generation;
use annotations::{OF_SPEC, OF_STATUS};
use conversion::{from_stored, to_stored};

pub(crate) fn row() -> Row<HorizontalPodAutoscaler> {
    let rules = Validation::new()
        .prepare(prepare)
        .validate(|autoscaler, old, _| validate(autoscaler, old))
        .validate_status(|autoscaler, _, _| validate_status(autoscaler));
    Row {
        short_names: &["hpa"],
        categories: ALL,
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(without_generation())
    }
}

/// The view that stores autoscalers of this version as those of `autoscaling/v2`.
pub(crate) fn view() -> View {
    View {
        group: "autoscaling",
        version: "v2",
        plural: "horizontalpodautoscalers",
        to_stored: to_stored_with_defaults,
        from_stored,
    }
}

/// An autoscaler in the stored version, with the defaults of its behavior. This version has no defaults for the behavior
/// in an annotation, so its validation reads the behavior without them.
fn to_stored_with_defaults(autoscaler: Map<String, Value>) -> Map<String, Value> {
    let mut stored = to_stored(autoscaler);
    let behavior = stored.get_mut("spec").and_then(|spec| spec.get_mut("behavior"));
    if let Some(behavior) = behavior
        && let Ok(mut typed) = HorizontalPodAutoscalerBehavior::deserialize(&*behavior)
    {
        stored::set_behavior_defaults(&mut typed);
        *behavior = serde_json::to_value(&typed).unwrap_or_default();
    }
    stored
}

fn columns() -> Vec<Column<HorizontalPodAutoscaler>> {
    stored::columns_of(summary, targets)
}

fn summary(autoscaler: &HorizontalPodAutoscaler) -> Summary<'_> {
    let (spec, status) = (&autoscaler.spec, autoscaler.status.as_ref());
    Summary {
        target_kind: &spec.scale_target_ref.kind,
        target_name: &spec.scale_target_ref.name,
        min_replicas: spec.min_replicas,
        max_replicas: spec.max_replicas,
        current_replicas: status.map(|status| status.current_replicas),
    }
}

/// The metrics are in annotations, so only this cell needs the autoscaler in the stored version.
fn targets(autoscaler: &HorizontalPodAutoscaler) -> String {
    to_typed(autoscaler).as_ref().map(stored::targets).unwrap_or_default()
}

/// Sets the defaults, and the annotations with the fields that this version does not have.
fn prepare(autoscaler: &mut HorizontalPodAutoscaler, context: &RuleContext<'_>) {
    autoscaler.spec.min_replicas.get_or_insert(1);
    if context.is_admitted && !context.is_restored {
        let old = context.old::<HorizontalPodAutoscaler>();
        let old = old.and_then(|old| old.metadata.annotations).unwrap_or_default();
        // A write to the status keeps the spec, and another write keeps the status.
        let kept = if context.subresource.is_empty() { OF_STATUS } else { OF_SPEC };
        for key in kept {
            let annotations = autoscaler.metadata.annotations.get_or_insert_default();
            match old.get(*key) {
                Some(value) => drop(annotations.insert((*key).to_owned(), value.clone())),
                None => drop(annotations.remove(*key)),
            }
        }
        if autoscaler.metadata.annotations.as_ref().is_some_and(|all| all.is_empty()) {
            autoscaler.metadata.annotations = None;
        }
    }
    if let Some(mut normalized) = to_typed(autoscaler) {
        // This version has no defaults for the behavior in an annotation.
        let behavior = normalized.spec.behavior.clone();
        stored::prepare(&mut normalized);
        normalized.spec.behavior = behavior;
        if let Some(normalized) = tree(&normalized).map(from_stored).and_then(typed) {
            *autoscaler = normalized;
        }
    }
}

fn validate(
    autoscaler: &HorizontalPodAutoscaler,
    old: Option<&HorizontalPodAutoscaler>,
) -> FieldErrors {
    let old = old.and_then(to_typed);
    match to_typed(autoscaler) {
        Some(new) => stored::validate(&new, old.as_ref()),
        None => unconvertible(),
    }
}

fn validate_status(autoscaler: &HorizontalPodAutoscaler) -> FieldErrors {
    match to_typed(autoscaler) {
        Some(new) => stored::validate_status(&new),
        None => unconvertible(),
    }
}

/// The error of an autoscaler that cannot be stored. Only annotations can cause it, because the other fields fit.
fn unconvertible() -> FieldErrors {
    vec![FieldError::forbidden("metadata.annotations", "cannot be converted to autoscaling/v2")]
}

/// An autoscaler in the stored version.
fn to_typed(autoscaler: &HorizontalPodAutoscaler) -> Option<Stored> {
    typed(to_stored(tree(autoscaler)?))
}

fn tree(object: &impl Serialize) -> Option<Map<String, Value>> {
    match serde_json::to_value(object) {
        Ok(Value::Object(tree)) => Some(tree),
        _ => None,
    }
}

fn typed<K: DeserializeOwned>(mut tree: Map<String, Value>) -> Option<K> {
    // The types check their own version.
    tree.remove("apiVersion");
    serde_json::from_value(Value::Object(tree)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, object, texts};
    use serde_json::json;

    #[test]
    fn older_autoscalers_are_validated_and_printed_like_stored_ones() {
        let autoscaler = json!({"spec": {
            "minReplicas": 0, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
            "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"},
        }});
        assert_eq!(
            texts(&validate(&object(autoscaler.clone()), None)),
            [
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            ]
        );
        let shown = cells(columns(), autoscaler);
        assert_eq!((&shown["Reference"], &shown["MaxPods"]), (&json!("Deployment/a"), &json!(3)));
        assert_eq!(shown["Targets"], "cpu: <unknown>/50%");
    }
}
