//! The definitions of `metrics.k8s.io/v1beta1`, with the schemas of Kubernetes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use serde_json::{Value, json};

const GROUP: &str = "metrics.k8s.io";

/// The usage of Pods.
pub fn pods() -> CustomResourceDefinition {
    let container = json!({
        "type": "object", "required": ["name", "usage"],
        "properties": {"name": {"type": "string"}, "usage": usage()},
    });
    let containers = json!({"type": "array", "items": container});
    definition("PodMetrics", "pods", "Namespaced", &json!({"containers": containers}))
}

/// The usage of nodes.
pub fn nodes() -> CustomResourceDefinition {
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
) -> CustomResourceDefinition {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "timestamp": {"type": "string", "format": "date-time"},
            "window": {"type": "string"},
        },
    });
    for (name, property) in properties.as_object().into_iter().flatten() {
        schema["properties"][name] = property.clone();
    }
    let schema: Option<JSONSchemaProps> = serde_json::from_value(schema).ok();
    let version = CustomResourceDefinitionVersion {
        name: "v1beta1".to_owned(),
        served: true,
        storage: true,
        schema: Some(CustomResourceValidation { open_api_v3_schema: schema }),
        ..CustomResourceDefinitionVersion::default()
    };
    let mut definition = CustomResourceDefinition {
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            scope: scope.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.to_owned(),
                plural: plural.to_owned(),
                ..CustomResourceDefinitionNames::default()
            },
            versions: vec![version],
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    };
    definition.metadata.name = Some(format!("{plural}.{GROUP}"));
    definition
}
