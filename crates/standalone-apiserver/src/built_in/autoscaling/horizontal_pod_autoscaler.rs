//! HorizontalPodAutoscalers.

mod metric_cells;
mod metrics;
mod validation;

use aggregated_apiserver::Validation;
use k8s_openapi::Metadata;
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior,
    MetricSpec, MetricTarget, ResourceMetricSource,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::built_in::cell_texts::UNSET;
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy::without_generation;
pub(super) use validation::{validate, validate_status};

/// The default target: the CPU utilization in percent of the requests of Pods.
const CPU_UTILIZATION: i32 = 80;

pub(crate) fn row() -> Row<HorizontalPodAutoscaler> {
    let rules = Validation::new()
        .prepare(|autoscaler, _| prepare(autoscaler))
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

fn columns() -> Vec<Column<HorizontalPodAutoscaler>> {
    columns_of(summary, targets)
}

/// The fields in the columns that every version of an autoscaler has.
pub(super) struct Summary<'a> {
    pub(super) target_kind: &'a str,
    pub(super) target_name: &'a str,
    pub(super) min_replicas: Option<i32>,
    pub(super) max_replicas: i32,
    pub(super) current_replicas: Option<i32>,
}

/// The columns of a version of autoscalers. `targets` formats the metrics, which versions have in different fields.
pub(super) fn columns_of<K>(
    summary: fn(&K) -> Summary<'_>,
    targets: fn(&K) -> String,
) -> Vec<Column<K>>
where
    K: Metadata<Ty = ObjectMeta> + 'static,
{
    vec![
        Column::computed("Reference", move |autoscaler: &K, _| {
            let summary = summary(autoscaler);
            format!("{}/{}", summary.target_kind, summary.target_name)
        }),
        Column::computed("Targets", move |autoscaler: &K, _| targets(autoscaler)),
        Column::computed("MinPods", move |autoscaler: &K, _| {
            let least = summary(autoscaler).min_replicas;
            least.map_or_else(|| UNSET.to_owned(), |least| least.to_string())
        }),
        Column::computed("MaxPods", move |autoscaler: &K, _| summary(autoscaler).max_replicas),
        Column::computed("Replicas", move |autoscaler: &K, _| {
            summary(autoscaler).current_replicas.unwrap_or_default()
        }),
        Column::age(),
    ]
}

fn summary(autoscaler: &HorizontalPodAutoscaler) -> Summary<'_> {
    let (spec, status) = (&autoscaler.spec, autoscaler.status.as_ref());
    Summary {
        target_kind: &spec.scale_target_ref.kind,
        target_name: &spec.scale_target_ref.name,
        min_replicas: spec.min_replicas,
        max_replicas: spec.max_replicas,
        current_replicas: status.and_then(|status| status.current_replicas),
    }
}

/// The current and wanted values of the metrics of an autoscaler.
pub(super) fn targets(autoscaler: &HorizontalPodAutoscaler) -> String {
    let status = autoscaler.status.as_ref();
    let current = status.and_then(|status| status.current_metrics.as_deref());
    let metrics = autoscaler.spec.metrics.as_deref();
    metric_cells::shown(metrics.unwrap_or_default(), current.unwrap_or_default())
}

pub(super) fn prepare(autoscaler: &mut HorizontalPodAutoscaler) {
    let spec = &mut autoscaler.spec;
    spec.min_replicas.get_or_insert(1);
    if spec.metrics.as_ref().is_none_or(Vec::is_empty) {
        spec.metrics = Some(vec![cpu_utilization()]);
    }
    if let Some(behavior) = &mut spec.behavior {
        set_behavior_defaults(behavior);
    }
}

/// Sets the defaults of a behavior.
pub(super) fn set_behavior_defaults(behavior: &mut HorizontalPodAutoscalerBehavior) {
    let up = behavior.scale_up.get_or_insert_default();
    set_scaling_defaults(up, &[("Pods", 4), ("Percent", 100)]);
    // A flag of the controller sets the stabilization window for scaling down.
    up.stabilization_window_seconds.get_or_insert(0);
    let down = behavior.scale_down.get_or_insert_default();
    set_scaling_defaults(down, &[("Percent", 100)]);
}

fn cpu_utilization() -> MetricSpec {
    let target = MetricTarget {
        type_: "Utilization".to_owned(),
        average_utilization: Some(CPU_UTILIZATION),
        ..MetricTarget::default()
    };
    MetricSpec {
        type_: "Resource".to_owned(),
        resource: Some(ResourceMetricSource { name: "cpu".to_owned(), target }),
        ..MetricSpec::default()
    }
}

fn set_scaling_defaults(rules: &mut HPAScalingRules, policies: &[(&str, i32)]) {
    rules.select_policy.get_or_insert_with(|| "Max".to_owned());
    rules.policies.get_or_insert_with(|| {
        let policies = policies.iter().map(|(sort, value)| HPAScalingPolicy {
            type_: (*sort).to_owned(),
            value: *value,
            period_seconds: 15,
        });
        policies.collect()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, prepared};
    use serde_json::json;

    #[test]
    fn defaults() {
        let autoscaler = json!({"spec": {
            "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a"},
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
        }});
        let spec = prepared(prepare, autoscaler)["spec"].clone();
        assert_eq!(spec["minReplicas"], 1);
        assert_eq!(
            spec["metrics"],
            json!([{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
            }}])
        );
        assert_eq!(
            spec["behavior"],
            json!({
                "scaleUp": {
                    "stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                        {"type": "Pods", "value": 4, "periodSeconds": 15},
                        {"type": "Percent", "value": 100, "periodSeconds": 15},
                    ],
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": 5, "selectPolicy": "Max",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                },
            })
        );
    }

    #[test]
    fn horizontal_pod_autoscaler_printer_columns_are_filled() {
        let autoscaler = json!({
            "spec": {
                "minReplicas": 1, "maxReplicas": 3,
                "scaleTargetRef": {"kind": "Deployment", "name": "a"},
            },
            "status": {"currentReplicas": 2, "desiredReplicas": 3},
        });
        assert_eq!(
            cells(columns(), autoscaler),
            json!({
                "Reference": "Deployment/a", "Targets": "<none>", "MinPods": "1", "MaxPods": 3,
                "Replicas": 2, "Age": "<unknown>",
            })
        );
    }
}
