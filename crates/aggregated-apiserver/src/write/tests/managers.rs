//! Tests of `managedFields` from clients and from other servers.

use crate::object::Shape;

use super::*;

/// An object with a manager of these fields.
fn managed(fields: &Value) -> Value {
    let manager = json!({
        "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": "a",
        "operation": "Update", "time": "2026-01-01T00:00:00Z",
    });
    let metadata = json!({
        "name": "foo", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1, "managedFields": [manager],
    });
    foo(metadata, json!({"size": 1, "list": [{"x": true}]}))
}

/// Updates the object at this revision.
fn update(world: &World, revision: &Revision, mut tree: Value) -> (Value, Revision) {
    tree["metadata"]["resourceVersion"] = revision.to_string().into();
    let Value::Object(tree) = tree else { panic!("not an object") };
    let change = Change::Update(Submitted::new(tree, Vec::new()));
    let written = world.write((Some("foo"), Part::Main), change, FieldValidation::Strict);
    let Versioned { object, revision } = written.unwrap().versioned;
    (Value::Object(object.to_tree()), revision)
}

#[test]
fn field_sets_of_another_server_are_adapted_to_the_schema() {
    // An atomic list has no owners of its elements.
    let apart = json!({"f:spec": {"f:list": {"i:0": {}}}});
    let whole = json!({"f:spec": {"f:list": {}}});
    for (shape, expected) in [(Shape::default(), &apart), (Shape::of_another_server(), &whole)] {
        let world = World::new(kind());
        let mut tree = managed(&apart);
        let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
        let revision = world.keep_object(object.of_shape(shape));
        tree["metadata"].as_object_mut().unwrap().remove("managedFields");
        tree["spec"]["size"] = 2.into();
        let (written, _) = update(&world, &revision, tree);
        assert_eq!(written["metadata"]["managedFields"][0]["fieldsV1"], *expected, "{shape:?}");
    }
}

#[test]
fn field_sets_nested_too_deeply_to_decode_are_not_stored() {
    let deep = |depth: usize| (0..depth).fold(json!({}), |below, _| json!({ "f:a": below }));
    // The field set is nested in an entry of the list in the metadata.
    for (depth, is_kept) in [(122, true), (123, false), (127, false), (1_000, false)] {
        let world = World::new(kind());
        let revision = world.keep(managed(&json!({"f:spec": {"f:size": {}}})).as_object().unwrap());
        // Protobuf contains field sets as separate JSON, so no other limit of the depth applies.
        let (written, revision) = update(&world, &revision, managed(&deep(depth)));
        let managers = written["metadata"].get("managedFields").and_then(Value::as_array);
        assert_eq!(
            managers.is_some_and(|all| all[0]["fieldsV1"] == deep(depth)),
            is_kept,
            "{depth}"
        );
        // The object can be updated once more.
        let (again, _) = update(&world, &revision, written.clone());
        assert_eq!(again["spec"], written["spec"], "{depth}");
    }
}

#[test]
fn separate_managed_fields_override_those_in_the_tree() {
    let object = managed(&json!({"f:spec": {}}));
    let tree = object.as_object().unwrap();
    for beside in ["", "[]"] {
        let object = Object::from_parts(tree, beside.as_bytes()).unwrap();
        assert_eq!(object.to_parts().1, beside);
        assert_eq!(object.to_tree(), serde_json::from_slice::<Tree>(&object.json()).unwrap());
    }
    assert_ne!(Object::from_tree(tree).unwrap().to_parts().1, "");
}
