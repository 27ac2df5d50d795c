//! Metrics in the format of tables: `cpu: 40%/80%, 500m/1 (avg)`.

use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::cell_texts::{NONE, UNKNOWN};

/// The number of metrics in a cell.
const SHOWN: usize = 2;

pub(super) fn shown(metrics: &[MetricSpec], current: &[MetricStatus]) -> String {
    if metrics.is_empty() {
        return NONE.to_owned();
    }
    let first = metrics.iter().take(SHOWN).enumerate();
    let first = first.map(|(index, metric)| one(metric, current.get(index)));
    let first = first.collect::<Vec<_>>().join(", ");
    match metrics.len() {
        more @ 3.. => format!("{first} + {} more...", more - SHOWN),
        _ => first,
    }
}

fn one(metric: &MetricSpec, current: Option<&MetricStatus>) -> String {
    match metric.type_.as_str() {
        "External" => {
            let current = current.and_then(|current| current.external.as_ref());
            let target = metric.external.as_ref().map(|source| &source.target);
            value(target, current.map(|current| &current.current))
        }
        "Object" => {
            let current = current.and_then(|current| current.object.as_ref());
            let target = metric.object.as_ref().map(|source| &source.target);
            value(target, current.map(|current| &current.current))
        }
        "Pods" => {
            let current = current.and_then(|current| current.pods.as_ref());
            let current = current.map(|current| amount(current.current.average_value.as_ref()));
            let target = metric.pods.as_ref().map(|source| &source.target);
            let target = amount(target.and_then(|target| target.average_value.as_ref()));
            format!("{}/{target}", current.unwrap_or_else(|| UNKNOWN.to_owned()))
        }
        "Resource" => {
            let current = current.and_then(|current| current.resource.as_ref());
            let current = current.map(|current| &current.current);
            let source = metric.resource.as_ref();
            source.map_or_else(String::new, |source| usage(&source.name, &source.target, current))
        }
        "ContainerResource" => {
            let current = current.and_then(|current| current.container_resource.as_ref());
            let current = current.map(|current| &current.current);
            let source = metric.container_resource.as_ref();
            source.map_or_else(String::new, |source| usage(&source.name, &source.target, current))
        }
        _ => "<unknown type>".to_owned(),
    }
}

/// A value, or an average value: `5/10`, `<unknown>/10 (avg)`.
fn value(target: Option<&MetricTarget>, current: Option<&MetricValueStatus>) -> String {
    let average = target.and_then(|target| target.average_value.as_ref());
    if let Some(target) = average {
        let current = current.and_then(|current| current.average_value.as_ref());
        let current = current.map_or_else(|| UNKNOWN.to_owned(), |one| amount(Some(one)));
        return format!("{current}/{} (avg)", amount(Some(target)));
    }
    let target = amount(target.and_then(|target| target.value.as_ref()));
    let current = current.map(|current| amount(current.value.as_ref()));
    format!("{}/{target}", current.unwrap_or_else(|| UNKNOWN.to_owned()))
}

/// The usage of a resource: `cpu: 40%/80%`, `memory: 1Gi/2Gi`.
fn usage(name: &str, target: &MetricTarget, current: Option<&MetricValueStatus>) -> String {
    if let Some(average) = &target.average_value {
        let current = current.map(|current| amount(current.average_value.as_ref()));
        let current = current.unwrap_or_else(|| UNKNOWN.to_owned());
        return format!("{name}: {current}/{}", amount(Some(average)));
    }
    let percent = |share: i32| format!("{share}%");
    let current = current.and_then(|current| current.average_utilization).map(percent);
    let target = target.average_utilization.map_or_else(|| "<auto>".to_owned(), percent);
    format!("{name}: {}/{target}", current.unwrap_or_else(|| UNKNOWN.to_owned()))
}

/// An amount in the format of Go; a missing amount is `<nil>`.
fn amount(amount: Option<&Amount>) -> String {
    let Some(amount) = amount else { return "<nil>".to_owned() };
    Quantity::parse(&amount.0).map_or_else(|_| amount.0.clone(), |amount| amount.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    #[test]
    fn metrics() {
        let target = |more: Value| {
            let mut target = json!({"type": "x"});
            target.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            target
        };
        let resource = |more: Value, current: Value| {
            (
                json!({"type": "Resource", "resource": {"name": "cpu", "target": target(more)}}),
                json!({"type": "Resource", "resource": {"name": "cpu", "current": current}}),
            )
        };
        let external = |more: Value, current: Value| {
            (
                json!({"type": "External", "external": {"metric": {"name": "m"}, "target": target(more)}}),
                json!({"type": "External", "external": {"metric": {"name": "m"}, "current": current}}),
            )
        };
        for ((metric, current), expected, unknown) in [
            (
                resource(json!({"averageUtilization": 80}), json!({"averageUtilization": 40})),
                "cpu: 40%/80%",
                "cpu: <unknown>/80%",
            ),
            (
                resource(json!({"averageValue": "1024Mi"}), json!({"averageValue": "500m"})),
                "cpu: 500m/1Gi",
                "cpu: <unknown>/1Gi",
            ),
            (external(json!({"value": "10"}), json!({"value": "5"})), "5/10", "<unknown>/10"),
            (
                external(json!({"averageValue": "10"}), json!({"averageValue": "5"})),
                "5/10 (avg)",
                "<unknown>/10 (avg)",
            ),
            (
                (
                    json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": target(json!({"averageValue": "10"}))}}),
                    json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "current": {"averageValue": "5"}}}),
                ),
                "5/10",
                "<unknown>/10",
            ),
        ] {
            let metrics: Vec<MetricSpec> = vec![object(metric)];
            assert_eq!(shown(&metrics, &[object(current)]), expected);
            assert_eq!(shown(&metrics, &[]), unknown);
        }
        let many = vec![MetricSpec::default(); 4];
        assert_eq!(shown(&many, &[]), "<unknown type>, <unknown type> + 2 more...");
        assert_eq!(shown(&[], &[]), "<none>");
    }
}
