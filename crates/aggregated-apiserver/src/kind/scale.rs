//! The kind of the responses of `scale`, same as in Kubernetes.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::Kind;
use super::columns::AGE_DESCRIPTION;

/// `Scale` of `autoscaling/v1`; `None` only if its definition were invalid.
pub fn scale() -> Option<Arc<Kind>> {
    static SCALE: LazyLock<Option<Arc<Kind>>> = LazyLock::new(|| {
        let columns = json!([
            {
                "name": "Desired", "type": "integer", "jsonPath": ".spec.replicas",
                "description": "Number of desired replicas",
            },
            {
                "name": "Available", "type": "integer", "jsonPath": ".status.replicas",
                "description": "Number of actual replicas",
            },
            {
                "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
                "description": AGE_DESCRIPTION,
            },
        ]);
        let definition = json!({
            "metadata": {},
            "spec": {
                // The group of a definition must be a domain.
                "group": "autoscaling.k8s.io",
                "scope": "Namespaced",
                "names": {"kind": "Scale", "plural": "scales"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "replicas": {"type": "integer", "format": "int32"},
                        }},
                        "status": {"type": "object", "properties": {
                            "replicas": {"type": "integer", "format": "int32"},
                            "selector": {"type": "string"},
                        }},
                    }}},
                }],
            },
        });
        let definition = serde_json::from_value(definition).ok()?;
        let kind = Kind::parse(&definition, None).ok()?;
        Some(Arc::new(Kind { group: "autoscaling".to_owned(), ..kind }))
    });
    SCALE.clone()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_scale_kind_is_parsed_as_autoscaling_v1() {
        let scale = super::scale().unwrap();
        assert_eq!(scale.api_version(&scale.storage.name), "autoscaling/v1");
    }
}
