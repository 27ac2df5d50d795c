//! The definitions of `metrics.k8s.io/v1beta1`, with the schemas of Kubernetes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Result, Value, json};

/// The usage of Pods.
pub fn pods() -> Result<CustomResourceDefinition> {
    let container = json!({
        "type": "object", "required": ["name", "usage"],
        "properties": {"name": {"type": "string"}, "usage": usage()},
    });
    let containers = json!({"type": "array", "items": container});
    definition("PodMetrics", "pods", "Namespaced", &json!({"containers": containers}))
}

/// The usage of nodes.
pub fn nodes() -> Result<CustomResourceDefinition> {
    definition("NodeMetrics", "nodes", "Cluster", &json!({"usage": usage()}))
}

/// The usage by resource, such as `{"cpu": "250m", "memory": "64Mi"}`.
fn usage() -> Value {
    let quantity = json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
    json!({"type": "object", "additionalProperties": quantity})
}

fn definition(
    kind: &str,
    plural: &str,
    scope: &str,
    properties: &Value,
) -> Result<CustomResourceDefinition> {
    let mut schema = json!({"type": "object", "properties": properties});
    schema["properties"]["timestamp"] = json!({"type": "string", "format": "date-time"});
    schema["properties"]["window"] = json!({"type": "string"});
    let schema = json!({"openAPIV3Schema": schema});
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.metrics.k8s.io")},
        "spec": {
            "group": "metrics.k8s.io",
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}],
        },
    }))
}
