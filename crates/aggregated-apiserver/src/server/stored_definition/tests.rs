use serde_json::{Value, json};

use super::*;

fn version(name: &str, properties: &Value) -> Value {
    let schema = json!({"type": "object", "properties": properties});
    json!({
        "name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
    })
}

fn definition(versions: &[Value]) -> CustomResourceDefinition {
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// The number of errors in properties of a definition that replaces another one.
fn count(now: &Value, before: &Value) -> usize {
    let [now, before] = [now, before].map(|properties| definition(&[version("v1", properties)]));
    faults(&now, Some(&before)).len()
}

#[test]
fn only_errors_of_the_previous_definition_are_tolerated() {
    let list = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": ""});
    let default = json!({"type": "string", "default": 5});
    let rule = |rule: &str| json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]});
    let (broken, other) = (rule("self =="), rule("self >"));
    for (wrong, wrong_otherwise) in [(&list, &default), (&default, &list), (&broken, &other)] {
        let now = json!({"a": wrong});
        assert_eq!(count(&now, &json!({})), 1, "{wrong}");
        assert_eq!(count(&now, &now), 0, "{wrong}");
        let beside_more = json!({"a": wrong, "b": {"type": "string"}});
        assert_eq!(count(&beside_more, &now), 0, "{wrong}");
        assert_eq!(count(&json!({"a": wrong, "b": wrong}), &now), 1, "{wrong}");
        assert_eq!(count(&json!({"a": wrong_otherwise}), &now), 1, "{wrong}");
    }
    // An allowed error does not hide errors that are found later.
    let before = json!({"a": list});
    assert_eq!(count(&json!({"a": list, "b": default}), &before), 1);
    assert_eq!(count(&json!({"a": list, "b": broken}), &before), 1);
}

#[test]
fn excessive_rule_costs_are_tolerated_in_an_unchanged_schema() {
    let dear = |rule: &str| json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": rule}]});
    let before = json!({"a": dear("self.all(x, self.all(y, x != y))")});
    assert_ne!(count(&before, &json!({})), 0);
    assert_eq!(count(&before, &before), 0);
    let dearer = json!({"a": dear("self.all(x, self.all(y, self.all(z, x != y + z)))")});
    assert_eq!(count(&dearer, &before), count(&dearer, &json!({})));
}

#[test]
fn an_unchanged_error_at_the_schema_root_does_not_block_other_changes() {
    let rooted = |root: &Value, properties: &Value| {
        let mut version = version("v1", properties);
        version["subresources"] = json!({"status": {}});
        let schema = version["schema"]["openAPIV3Schema"].as_object_mut().unwrap();
        schema.extend(root.as_object().unwrap().clone());
        definition(&[version])
    };
    let (wrong, text) = (json!({"minProperties": 1}), json!({"a": {"type": "string"}}));
    let before = rooted(&wrong, &json!({}));
    assert_eq!(faults(&before, None).len(), 1);
    assert_eq!(faults(&rooted(&wrong, &text), Some(&before)), [] as [String; 0]);
    assert_eq!(faults(&rooted(&wrong, &text), Some(&rooted(&json!({}), &text))).len(), 1);
}

#[test]
fn unchanged_errors_are_matched_by_version_name() {
    let (good, bad) = (json!({}), json!({"a": {"type": "string", "x-kubernetes-list-type": ""}}));
    let before = definition(&[version("v1", &good), version("v2", &bad)]);
    let turned = definition(&[version("v2", &bad), version("v1", &good)]);
    assert!(!faults(&before, None).is_empty());
    assert!(faults(&turned, Some(&before)).is_empty());
    let moved = definition(&[version("v1", &bad), version("v2", &good)]);
    assert!(!faults(&moved, Some(&before)).is_empty());
}
