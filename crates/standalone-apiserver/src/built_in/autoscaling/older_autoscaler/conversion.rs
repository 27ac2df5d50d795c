//! Converts autoscalers between `autoscaling/v1` and `autoscaling/v2`. Annotations have the fields that `autoscaling/v1`
//! does not have, same as in kube-apiserver.

use serde_json::{Map, Value, json};

use super::annotations::{
    BEHAVIOR, CONDITIONS, CURRENT_METRICS, DROPPED, METRICS, SPECS, STATUSES, read_behavior,
    read_conditions, read_current_metrics, read_metrics, write_behavior, write_conditions,
    write_metrics,
};

type Tree = Map<String, Value>;

const UTILIZATION: &str = "/resource/target/averageUtilization";
const CURRENT_UTILIZATION: &str = "/resource/current/averageUtilization";
/// The CPU utilization of an autoscaler without metrics, in percent.
const DEFAULT_UTILIZATION: i32 = 80;

/// Converts an autoscaler to one of `autoscaling/v2`.
pub(super) fn to_stored(mut tree: Tree) -> Tree {
    let annotations = take_annotations(&mut tree);
    let annotation = |key: &str| annotations.get(key).and_then(Value::as_str);
    let mut spec = take_object(&mut tree, "spec");
    let utilization =
        spec.remove("targetCPUUtilizationPercentage").filter(|value| !value.is_null());
    let mut metrics: Vec<Value> = annotation(METRICS).and_then(read_metrics).unwrap_or_default();
    metrics.extend(utilization.map(cpu));
    if metrics.is_empty() {
        metrics.push(cpu(DEFAULT_UTILIZATION.into()));
    }
    spec.insert("metrics".to_owned(), metrics.into());
    if let Some(behavior) = annotation(BEHAVIOR).and_then(read_behavior) {
        spec.insert("behavior".to_owned(), behavior);
    }
    let mut status = take_object(&mut tree, "status");
    let current = status.remove("currentCPUUtilizationPercentage").filter(|value| !value.is_null());
    let current = current.map(|current| {
        json!([{"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": current},
        }}])
    });
    let given = annotation(CURRENT_METRICS).and_then(read_current_metrics);
    if let Some(metrics) = given.map(Value::from).or(current) {
        status.insert("currentMetrics".to_owned(), metrics);
    }
    if let Some(conditions) = annotation(CONDITIONS).and_then(read_conditions) {
        status.insert("conditions".to_owned(), conditions);
    }
    let mut rest = annotations;
    rest.retain(|key, _| !DROPPED.contains(&key.as_str()));
    put(tree, spec, status, rest)
}

/// Converts an autoscaler of `autoscaling/v2` to one of `autoscaling/v1`.
pub(super) fn from_stored(mut tree: Tree) -> Tree {
    let mut annotations = take_annotations(&mut tree);
    annotations.retain(|key, _| !DROPPED.contains(&key.as_str()));
    let mut annotate = |key: &str, text: Option<String>| {
        if let Some(text) = text {
            annotations.insert(key.to_owned(), text.into());
        }
    };
    let mut spec = take_object(&mut tree, "spec");
    let metrics = take_list(&mut spec, "metrics");
    let is_cpu = |metric: &&Value| is_cpu(metric) && metric.pointer(UTILIZATION).is_some();
    if let Some(utilization) = metrics.iter().find(is_cpu).and_then(|one| one.pointer(UTILIZATION))
    {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), utilization.clone());
    }
    let others: Vec<&Value> = metrics.iter().filter(|metric| !is_cpu(metric)).collect();
    annotate(METRICS, write_metrics(&others, SPECS));
    annotate(BEHAVIOR, spec.remove("behavior").as_ref().and_then(write_behavior));
    let mut status = take_object(&mut tree, "status");
    let current = take_list(&mut status, "currentMetrics");
    let of_cpu = current.iter().filter(|metric| self::is_cpu(metric));
    if let Some(utilization) = of_cpu.filter_map(|one| one.pointer(CURRENT_UTILIZATION)).next_back()
    {
        status.insert("currentCPUUtilizationPercentage".to_owned(), utilization.clone());
    }
    annotate(CURRENT_METRICS, write_metrics(&current.iter().collect::<Vec<_>>(), STATUSES));
    annotate(CONDITIONS, write_conditions(&take_list(&mut status, "conditions")));
    put(tree, spec, status, annotations)
}

/// The metric of a CPU utilization in percent.
fn cpu(utilization: Value) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization},
    }})
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn take_annotations(tree: &mut Tree) -> Tree {
    let metadata = tree.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.map(|metadata| take_object(metadata, "annotations")).unwrap_or_default()
}

fn take_object(tree: &mut Tree, field: &str) -> Tree {
    match tree.remove(field) {
        Some(Value::Object(object)) => object,
        _ => Tree::new(),
    }
}

fn take_list(tree: &mut Tree, field: &str) -> Vec<Value> {
    match tree.remove(field) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Puts the converted parts into an autoscaler.
fn put(mut tree: Tree, spec: Tree, status: Tree, annotations: Tree) -> Tree {
    tree.insert("spec".to_owned(), spec.into());
    if !status.is_empty() {
        tree.insert("status".to_owned(), status.into());
    }
    let metadata = tree.entry("metadata").or_insert_with(|| json!({}));
    if let (false, Value::Object(metadata)) = (annotations.is_empty(), metadata) {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(value: Value) -> Tree {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn conversion_round_trips() {
        let quantity = |text: &str| json!(text);
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "memory", "target": {
                "type": "AverageValue", "averageValue": quantity("1Gi"),
            }}},
            {"type": "Pods", "pods": {
                "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
                "target": {"type": "AverageValue", "averageValue": quantity("1500m")},
            }},
            {"type": "Object", "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
                "metric": {"name": "m"}, "target": {"type": "Value", "value": quantity("2k")},
            }},
            {"type": "External", "external": {
                "metric": {"name": "m"},
                "target": {"type": "AverageValue", "averageValue": quantity("30")},
            }},
            {"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 50},
            }},
            {"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 40},
            }},
        ]);
        let behavior = json!({"scaleDown": {
            "selectPolicy": "Max", "stabilizationWindowSeconds": 5,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
        }});
        let stored = json!({
            "metadata": {"name": "a", "annotations": {"x": "y"}},
            "spec": {"maxReplicas": 3, "metrics": metrics, "behavior": behavior},
            "status": {
                "currentMetrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "current": {"averageUtilization": 7, "averageValue": "1"},
                }}],
                "conditions": [{
                    "type": "T", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z",
                    "message": "a < b",
                }],
            },
        });
        let older = from_stored(tree(stored.clone()));
        assert_eq!(older["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 40}));
        assert_eq!(older["status"], json!({"currentCPUUtilizationPercentage": 7}));
        let annotations = &older["metadata"]["annotations"];
        assert_eq!(
            annotations[CONDITIONS],
            r#"[{"type":"T","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z","message":"a \u003c b"}]"#
        );
        assert_eq!(
            annotations[BEHAVIOR],
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":5,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":60}],"Tolerance":null}}"#
        );
        assert_eq!(
            annotations[CURRENT_METRICS],
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":7,"currentAverageValue":"1"}}]"#
        );
        assert_eq!(Value::Object(to_stored(older)), stored);
    }

    #[test]
    fn an_autoscaler_without_metrics_gets_the_default() {
        let stored = to_stored(tree(json!({"spec": {"maxReplicas": 3}})));
        assert_eq!(stored["spec"]["metrics"], json!([cpu(80.into())]));
        // An annotation that cannot be read is dropped.
        let annotated = json!({"metadata": {"annotations": {METRICS: "x"}}, "spec": {}});
        assert_eq!(to_stored(tree(annotated))["metadata"], json!({}));
    }

    #[test]
    fn an_annotation_with_a_value_of_a_wrong_type_is_dropped() {
        let convert = |key: &str, text: &str| {
            to_stored(tree(json!({"metadata": {"annotations": {key: text}}, "spec": {}})))
        };
        for text in [
            r#"[{"type":"Pods","pods":5}]"#,
            r#"[{"type":"Pods","pods":{"metricName":"m","selector":{"matchLabels":5}}}]"#,
            r#"[{"type":"Pods","pods":{"selector":{"matchExpressions":[{"values":"a"}]}}}]"#,
            r#"[{"type":"Object","object":{"target":5}}]"#,
            r#"[{"type":"Resource","resource":{"targetAverageUtilization":3000000000}}]"#,
        ] {
            assert_eq!(
                convert(METRICS, text)["spec"]["metrics"],
                json!([cpu(80.into())]),
                "{text}"
            );
            let current = text.replace("targetAverage", "currentAverage");
            assert_eq!(convert(CURRENT_METRICS, &current).get("status"), None, "{current}");
        }
        for text in [
            r#"{"ScaleUp":{"Policies":[{"Value":"x"}]}}"#,
            r#"{"ScaleUp":{"Policies":[{"Value":3000000000}]}}"#,
            r#"{"ScaleUp":{"Policies":[{"Type":1}]}}"#,
            r#"{"ScaleUp":{"StabilizationWindowSeconds":3000000000}}"#,
            r#"{"ScaleUp":{"SelectPolicy":1}}"#,
            r#"{"ScaleUp":{"Tolerance":"x"}}"#,
        ] {
            assert_eq!(convert(BEHAVIOR, text)["spec"].get("behavior"), None, "{text}");
        }
        for text in [r#"[{"type":5}]"#, r#"[{"lastTransitionTime":"x"}]"#] {
            assert_eq!(convert(CONDITIONS, text).get("status"), None, "{text}");
        }
    }

    #[test]
    fn a_tolerance_may_be_a_number() {
        let text = r#"{"ScaleUp":{"Tolerance":0.1}}"#;
        let annotated = json!({"metadata": {"annotations": {BEHAVIOR: text}}, "spec": {}});
        let stored = to_stored(tree(annotated));
        assert_eq!(stored["spec"]["behavior"], json!({"scaleUp": {"tolerance": "0.1"}}));
    }
}
