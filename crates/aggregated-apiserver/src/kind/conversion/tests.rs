//! Tests of the conversion between the storage version and other versions.

use super::*;
use serde_json::json;

#[test]
fn conversion_changes_the_api_version_and_prunes_unknown_fields() {
    let property = |name: &str| json!({"openAPIV3Schema": {"type": "object", "properties": {name: {"type": "string"}}}});
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"kind": "Foo", "plural": "foos"},
            "versions": [
                {"name": "v1", "served": true, "storage": false, "schema": property("new")},
                {"name": "v1beta1", "served": true, "storage": true, "schema": property("old")},
            ],
        },
    });
    let kind = Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap();
    let tree = json!({
        "apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {"name": "a", "uid": "u"}, "new": "x", "old": "y",
    });
    let v1 = kind.version("v1").unwrap();
    let submitted = Object::from_tree(tree.as_object().unwrap()).unwrap();
    let kept = Arc::new(kind.to_storage(submitted, v1).unwrap());
    let expected = json!({
        "apiVersion": "example.com/v1beta1", "kind": "Foo",
        "metadata": {"name": "a", "uid": "u"}, "old": "y",
    });
    assert_eq!(json!(kept.to_tree()), expected);
    let shown = kind.in_version(&kept, v1).unwrap();
    assert_eq!(shown.to_tree()["apiVersion"], "example.com/v1");
    assert_eq!(shown.to_tree().get("old"), None);
    assert!(Arc::ptr_eq(&kept, &kind.in_version(&kept, &kind.storage).unwrap()));
}

#[test]
fn storage_version_defaults_apply_when_an_object_is_read() {
    let kind = |default: &str| {
        let version = |name: &str, properties: Value| {
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
            json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
        };
        let text = json!({"type": "string"});
        let of_v1 = json!({"a": {"type": "string", "default": default}, "b": text});
        let of_v2 = json!({"a": text, "b": {"type": "string", "default": "of v2"}});
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [version("v1", of_v1), version("v2", of_v2)],
            },
        });
        Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap().with_shape()
    };
    let (first, second) = (kind("first"), kind("second"));
    let mut tree = json!({
        "apiVersion": "example.com/v2", "kind": "Foo",
        "metadata": {"name": "a", "uid": "u"}, "b": "of v2",
    });
    let v2 = first.version("v2").unwrap();
    let kept = Object::from_tree(tree.as_object().unwrap()).unwrap();
    let kept = Arc::new(first.to_storage(kept, v2).unwrap());
    assert_eq!(kept.to_tree().get("a"), None);
    for (kind, default) in [(&first, "first"), (&second, "second")] {
        for version in kind.all_versions() {
            let shown = kind.in_version(&kept, version).unwrap().to_tree();
            assert_eq!((&shown["a"], &shown["b"]), (&json!(default), &json!("of v2")));
        }
    }
    // An object that sets the field itself is stored with that value.
    tree["a"] = json!("own");
    let kept = Object::from_tree(tree.as_object().unwrap()).unwrap();
    let kept = first.to_storage(kept, v2).unwrap();
    assert!(first.is_current(&kept));
}

/// A kind whose only version has these fields in `spec`.
fn generation(members: &Value) -> Kind {
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": members},
                }},
            }}],
        },
    });
    Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap().with_shape()
}

#[test]
fn an_object_of_an_unknown_version_is_not_guessed_at() {
    let kind = generation(&json!({"a": {"type": "string"}}));
    let tree = json!({
        "apiVersion": "example.com/v2", "kind": "Foo",
        "metadata": {"name": "a", "uid": "u"}, "spec": {"a": "1", "b": "1"},
    });
    let kept = Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap());
    let refused = kind.in_version(&kept, &kind.storage).unwrap_err().to_string();
    let expected = "foos.example.com \"a\" cannot be converted to example.com/v1: request to convert CR from an invalid group/version: example.com/v2";
    assert_eq!(refused, expected);
    // The object can be deleted, and its deletion mark is stored without conversion.
    assert!(Arc::ptr_eq(&kept, &kind.in_storage_version(&kept)));
}

#[test]
fn an_object_of_an_older_definition_is_converted_once() {
    let text = json!({"type": "string"});
    let first = generation(&json!({"a": text, "b": text}));
    let tree = json!({
        "apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {"name": "a", "uid": "u"}, "spec": {"a": "1", "b": "1"},
    });
    let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
    let kept = Arc::new(first.to_storage(object, &first.storage).unwrap());
    assert!(first.is_shown_as_kept(&kept, &first.storage));
    assert!(Arc::ptr_eq(&kept, &first.in_version(&kept, &first.storage).unwrap()));
    let second = generation(&json!({"a": text, "c": {"type": "string", "default": "c2"}}));
    assert!(!second.is_shown_as_kept(&kept, &second.storage));
    let shown = second.in_version(&kept, &second.storage).unwrap();
    assert_eq!(shown.to_tree()["spec"], json!({"a": "1", "c": "c2"}));
    assert!(Arc::ptr_eq(&shown, &second.in_version(&kept, &second.storage).unwrap()));
    assert!(second.is_shown_as_kept(&shown, &second.storage));
    // The stored object is unchanged, so the next definition can show fields again that this one has dropped.
    let third = generation(&json!({"b": text}));
    let shown = third.in_version(&kept, &third.storage).unwrap();
    assert_eq!(shown.to_tree()["spec"], json!({"b": "1"}));
    // A request that began under the first definition receives an object of that definition.
    assert!(Arc::ptr_eq(&kept, &first.in_version(&kept, &first.storage).unwrap()));
    let known = generation(&json!({"a": text, "b": text, "c": text}));
    let shown = known.in_version(&kept, &known.storage).unwrap();
    assert!(shown.same_content(&kept) && known.is_shown_as_kept(&shown, &known.storage));
}
