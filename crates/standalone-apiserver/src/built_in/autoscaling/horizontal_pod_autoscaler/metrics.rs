//! The validation of metrics.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, MetricIdentifier, MetricSpec, MetricTarget,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::validation::{ApiGroup, check_reference, fault_of_version};
use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::resource_names;

const SORTS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

const RAW_OR_UTILIZATION: &str = "must set either a target raw value or a target utilization";
const NOT_BOTH: &str = "may not set both a target raw value and a target utilization";

pub(super) fn check(
    metrics: &Option<Vec<MetricSpec>>,
    least: Option<i32>,
    old: Option<&HorizontalPodAutoscaler>,
    faults: &mut FieldErrors,
) {
    let old = old.and_then(|old| old.spec.metrics.as_deref()).unwrap_or_default();
    let had_fault = old.iter().filter(|metric| metric.type_ == "Object").any(|metric| {
        let object = metric.object.as_ref().map(|source| &source.described_object);
        let version = object.and_then(|object| object.api_version.as_deref());
        fault_of_version(version.unwrap_or_default(), ApiGroup::MayBeCore).is_some()
    });
    let group = if had_fault { ApiGroup::Any } else { ApiGroup::MayBeCore };
    let metrics = metrics.as_deref().unwrap_or_default();
    for (index, metric) in metrics.iter().enumerate() {
        check_metric(metric, &format!("spec.metrics[{index}]"), group, faults);
    }
    let is_of_others = |metric: &MetricSpec| matches!(metric.type_.as_str(), "Object" | "External");
    if least == Some(0) && !metrics.iter().any(is_of_others) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        faults.push(FieldError::forbidden("spec.metrics", why));
    }
}

fn check_metric(metric: &MetricSpec, at: &str, group: ApiGroup, faults: &mut FieldErrors) {
    let sort = metric.type_.as_str();
    let unknown = || FieldError::not_supported(format!("{at}.type"), quote(sort), &SORTS);
    if sort.is_empty() {
        let why = "must specify a metric source type";
        faults.push(FieldError::required(format!("{at}.type"), why));
    }
    if !SORTS.contains(&sort) {
        faults.push(unknown());
    }
    let sources = [
        ("Object", "object", metric.object.is_some()),
        ("External", "external", metric.external.is_some()),
        ("Pods", "pods", metric.pods.is_some()),
        ("Resource", "resource", metric.resource.is_some()),
        ("ContainerResource", "containerResource", metric.container_resource.is_some()),
    ];
    let present = sources.iter().filter(|(_, _, is_present)| *is_present);
    // Only the first of several sources is validated.
    if let Some((_, field, _)) = present.clone().next() {
        check_source(metric, field, &format!("{at}.{field}"), group, faults);
    }
    match sources.iter().find(|(name, _, _)| *name == sort) {
        Some((_, field, false)) => {
            let why = "must populate information for the given metric source";
            faults.push(FieldError::required(format!("{at}.{field}"), why));
        }
        Some(_) => {}
        None => faults.push(unknown()),
    }
    if present.clone().count() > 1 {
        for (_, field, _) in present.filter(|(name, _, _)| *name != sort) {
            let why = "must populate the given metric source only";
            faults.push(FieldError::forbidden(format!("{at}.{field}"), why));
        }
    }
}

/// Validates the source of a metric, which is in this field.
fn check_source(
    metric: &MetricSpec,
    field: &str,
    at: &str,
    group: ApiGroup,
    faults: &mut FieldErrors,
) {
    let at_average = format!("{at}.target.averageValue");
    let MetricSpec { object, external, pods, resource, container_resource, .. } = metric;
    match (field, object, external, pods, resource, container_resource) {
        ("object", Some(source), ..) => {
            let at_object = format!("{at}.describedObject");
            check_reference(&source.described_object, &at_object, group, faults);
            check_identifier(&source.metric, at, faults);
            check_target(&source.target, at, faults);
            if source.target.value.is_none() && source.target.average_value.is_none() {
                let why = "must set either a target value or averageValue";
                faults.push(FieldError::required(at_average, why));
            }
        }
        ("external", _, Some(source), ..) => {
            check_identifier(&source.metric, at, faults);
            check_target(&source.target, at, faults);
            match (&source.target.value, &source.target.average_value) {
                (None, None) => {
                    let why = "must set either a target value for metric or a per-pod target";
                    faults.push(FieldError::required(at_average, why));
                }
                (Some(_), Some(_)) => {
                    let why = "may not set both a target value for metric and a per-pod target";
                    faults.push(FieldError::forbidden(format!("{at}.target.value"), why));
                }
                _ => {}
            }
        }
        ("pods", _, _, Some(source), ..) => {
            check_identifier(&source.metric, at, faults);
            check_target(&source.target, at, faults);
            if source.target.average_value.is_none() {
                let why = "must specify a positive target averageValue";
                faults.push(FieldError::required(at_average, why));
            }
        }
        ("resource", _, _, _, Some(source), _) => {
            if source.name.is_empty() {
                let why = "must specify a resource name";
                faults.push(FieldError::required(format!("{at}.name"), why));
            }
            check_target(&source.target, at, faults);
            check_usage(&source.target, at, faults);
        }
        (_, _, _, _, _, Some(source)) => {
            let at_name = format!("{at}.name");
            if source.name.is_empty() {
                faults.push(FieldError::required(at_name, "must specify a resource name"));
            } else {
                resource_names::check_of_container(&source.name, &at_name, faults);
            }
            let at_container = format!("{at}.container");
            if source.container.is_empty() {
                faults.push(FieldError::required(at_container, "must specify a container"));
            } else {
                let check = names::check_dns_1123_label;
                check_with(&at_container, &source.container, check, faults);
            }
            check_target(&source.target, at, faults);
            check_usage(&source.target, at, faults);
        }
        _ => {}
    }
}

/// Checks that the target of a resource is either an amount or a percentage.
fn check_usage(target: &MetricTarget, at: &str, faults: &mut FieldErrors) {
    match (target.average_utilization, &target.average_value) {
        (None, None) => {
            let at = format!("{at}.target.averageUtilization");
            faults.push(FieldError::required(at, RAW_OR_UTILIZATION));
        }
        (Some(_), Some(_)) => {
            faults.push(FieldError::forbidden(format!("{at}.target.averageValue"), NOT_BOTH));
        }
        _ => {}
    }
}

fn check_identifier(metric: &MetricIdentifier, at: &str, faults: &mut FieldErrors) {
    let at = format!("{at}.metric.name");
    if metric.name.is_empty() {
        faults.push(FieldError::required(at, "must specify a metric name"));
    } else {
        check_with(&at, &metric.name, names::check_path_segment, faults);
    }
}

fn check_target(target: &MetricTarget, at: &str, faults: &mut FieldErrors) {
    let at = format!("{at}.target");
    if target.type_.is_empty() {
        let why = "must specify a metric target type";
        faults.push(FieldError::required(format!("{at}.type"), why));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&target.type_.as_str()) {
        let why = "must be either Utilization, Value, or AverageValue";
        faults.push(FieldError::invalid(format!("{at}.type"), quote(&target.type_), why));
    }
    for (field, amount) in [("value", &target.value), ("averageValue", &target.average_value)] {
        let parsed = |amount: &Amount| Quantity::parse(&amount.0).ok();
        let Some(amount) = amount.as_ref().and_then(parsed) else { continue };
        if amount.nanos() <= 0 {
            let value = quote(&amount.to_string());
            faults.push(FieldError::invalid(format!("{at}.{field}"), value, "must be positive"));
        }
    }
    if let Some(share) = target.average_utilization.filter(|share| *share < 1) {
        let at = format!("{at}.averageUtilization");
        faults.push(FieldError::invalid(at, share, "must be greater than 0"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::{Value, json};

    #[test]
    fn horizontal_pod_autoscaler_metric_validation_reports_invalid_fields() {
        let average = json!({"type": "AverageValue", "averageValue": "5"});
        for (metric, expected) in [
            (json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": average}}), vec![]),
            (
                json!({"type": ""}),
                vec![
                    "spec.metrics[0].type: Required value: must specify a metric source type",
                    "spec.metrics[0].type: Unsupported value: \"\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"",
                    "spec.metrics[0].type: Unsupported value: \"\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"",
                ],
            ),
            (
                json!({"type": "Pods", "external": {
                    "metric": {"name": ""}, "target": {"type": "X", "value": "0", "averageValue": "-1"},
                }}),
                vec![
                    "spec.metrics[0].external.metric.name: Required value: must specify a metric name",
                    "spec.metrics[0].external.target.type: Invalid value: \"X\": must be either Utilization, Value, or AverageValue",
                    "spec.metrics[0].external.target.value: Invalid value: \"0\": must be positive",
                    "spec.metrics[0].external.target.averageValue: Invalid value: \"-1\": must be positive",
                    "spec.metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
                    "spec.metrics[0].pods: Required value: must populate information for the given metric source",
                ],
            ),
            (
                json!({
                    "type": "Resource", "pods": {"metric": {"name": "m"}, "target": average},
                    "resource": {"name": "cpu", "target": average},
                }),
                vec!["spec.metrics[0].pods: Forbidden: must populate the given metric source only"],
            ),
            (
                json!({"type": "ContainerResource", "containerResource": {
                    "name": "x", "container": "", "target": {"type": "Utilization", "averageUtilization": 0},
                }}),
                vec![
                    "spec.metrics[0].containerResource.name: Invalid value: \"x\": must be a standard resource type or fully qualified",
                    "spec.metrics[0].containerResource.name: Invalid value: \"x\": must be a standard resource for containers",
                    "spec.metrics[0].containerResource.container: Required value: must specify a container",
                    "spec.metrics[0].containerResource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                ],
            ),
            (
                json!({"type": "Resource", "resource": {"name": "", "target": {"type": "Value", "value": "1"}}}),
                vec![
                    "spec.metrics[0].resource.name: Required value: must specify a resource name",
                    "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
                ],
            ),
        ] {
            let metrics: Vec<MetricSpec> = vec![object::<MetricSpec>(metric.clone())];
            let mut faults = Vec::new();
            check(&Some(metrics), Some(1), None, &mut faults);
            assert_eq!(texts(&faults), expected, "{metric}");
        }
    }

    #[test]
    fn an_existing_invalid_api_version_in_an_object_metric_is_allowed() {
        let of = |version: &str| -> HorizontalPodAutoscaler {
            let object_metric = json!({
                "describedObject": {"apiVersion": version, "kind": "X", "name": "a"},
                "metric": {"name": "m"}, "target": {"type": "Value", "value": "1"},
            });
            let spec: Value = json!({
                "maxReplicas": 1, "scaleTargetRef": {"kind": "X", "name": "a"},
                "metrics": [{"type": "Object", "object": object_metric}],
            });
            object(json!({"spec": spec}))
        };
        let faults = |old: Option<&HorizontalPodAutoscaler>| {
            let mut faults = Vec::new();
            check(&of("a/b/c").spec.metrics, Some(1), old, &mut faults);
            faults.len()
        };
        assert_eq!(faults(None), 1);
        assert_eq!(faults(Some(&of("v1"))), 1);
        assert_eq!(faults(Some(&of("x/y/z"))), 0);
    }
}
