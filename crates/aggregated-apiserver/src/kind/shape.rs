//! The shape of a kind: a hash of the parts of its definition that determine the content of objects.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::Kind;
use super::conversion::Converter;
use crate::object::{Shape, to_json};

/// The schema keywords that determine pruning, defaults and field ownership. All other keywords only validate or
/// describe.
const KEYWORDS: [&str; 9] = [
    "default",
    "nullable",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];

impl Kind {
    /// Computes the shape of a kind whose definition can be replaced. Objects store the shape with which they were
    /// written.
    #[must_use]
    pub fn with_shape(self) -> Self {
        let mut hasher = DefaultHasher::new();
        self.storage.name.hash(&mut hasher);
        let mut versions: Vec<_> = self.all_versions().collect();
        versions.sort_by(|one, other| one.name.cmp(&other.name));
        versions.dedup_by(|one, other| one.name == other.name);
        for version in versions {
            version.name.hash(&mut hasher);
            hash(&version.open_api_schema(), &mut hasher);
        }
        if let Some(Converter::Webhook(webhook)) = &self.conversion {
            // Another webhook may convert objects of an older version in another way.
            (&webhook.url, &webhook.ca_bundle).hash(&mut hasher);
        }
        // Zero is the shape of kinds whose definition cannot change.
        Self { shape: Shape::new(hasher.finish() | 1), ..self }
    }
}

fn hash(schema: &Value, hasher: &mut impl Hasher) {
    for keyword in KEYWORDS {
        if let Some(value) = schema.get(keyword) {
            (keyword, to_json(value)).hash(hasher);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        match schema.get(keyword) {
            Some(Value::Bool(allowed)) => (keyword, allowed).hash(hasher),
            Some(schema) => {
                keyword.hash(hasher);
                hash(schema, hasher);
            }
            None => {}
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        ("properties", name).hash(hasher);
        hash(schema, hasher);
    }
    "end".hash(hasher);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape(change: impl FnOnce(&mut Value)) -> Shape {
        let mut definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {
                            "a": {"type": "string"}, "b": {"type": "string"},
                        }}},
                    }}},
                    {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {
                        "type": "object",
                    }}},
                ],
            },
        });
        change(&mut definition["spec"]["versions"]);
        let kind = Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap();
        assert_eq!(kind.shape, Shape::default());
        kind.with_shape().shape
    }

    #[test]
    fn only_changes_that_affect_object_content_change_the_shape_of_a_kind() {
        fn of(versions: &mut Value) -> &mut Value {
            &mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        }
        let before = shape(|_| {});
        assert_eq!(before, shape(|_| {}));
        assert_eq!(before, shape(|versions| of(versions)["a"]["maxLength"] = json!(5)));
        assert_eq!(before, shape(|versions| of(versions)["a"]["description"] = json!("x")));
        let columns = json!([{"name": "A", "type": "string", "jsonPath": ".spec.a"}]);
        assert_eq!(before, shape(|versions| versions[0]["additionalPrinterColumns"] = columns));
        let changes: [&dyn Fn(&mut Value); 7] = [
            &|versions| of(versions)["a"]["default"] = json!("x"),
            &|versions| of(versions)["c"] = json!({"type": "string"}),
            &|versions| drop(of(versions).as_object_mut().unwrap().remove("b")),
            &|versions| of(versions)["a"]["nullable"] = json!(true),
            &|versions| {
                let spec = &mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
                spec["x-kubernetes-map-type"] = json!("atomic");
            },
            &|versions| {
                versions[0]["storage"] = json!(false);
                versions[1]["storage"] = json!(true);
            },
            &|versions| {
                let schema = &mut versions[1]["schema"]["openAPIV3Schema"];
                schema["properties"] = json!({"spec": {"type": "object"}});
            },
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert_ne!(before, shape(change), "{index}");
        }
    }
}
