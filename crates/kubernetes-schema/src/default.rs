//! Defaults: fills in missing fields.

use serde_json::Value;

use super::Type;
use super::normalize::drop_unknown_metadata;
use crate::object::Tree;
use crate::object::metadata::OF_EVERY_OBJECT;
use crate::quota;

/// The largest total size of added defaults in one object, in bytes of memory. An object with more is rejected for its
/// size.
const LIMIT: usize = 4 << 20;

/// Fills in the defaults of a whole object: of fields that are missing, or are null where null is not allowed. Fields
/// of an object that is itself a default are filled in too.
pub fn fill_defaults(of: Type<'_>, tree: &mut Tree) {
    if of.subtree.defaults {
        fill_members(of, tree, &OF_EVERY_OBJECT, &mut { LIMIT });
        // A default can contain metadata that ObjectMeta does not have.
        drop_unknown_metadata(of, tree);
    }
}

fn fill_members(of: Type<'_>, tree: &mut Tree, skipped: &[&str], left: &mut usize) {
    for (name, member) in of.members.iter() {
        if let Some(default) = &member.default
            && tree.get(name).is_none_or(|it| it.is_null() && !of.at(&member.of).nullable)
            && !skipped.contains(&name)
        {
            let size = size(default);
            if size > *left {
                *left = 0;
                return;
            }
            *left -= size;
            tree.insert(name.to_owned(), default.clone());
        }
    }
    for (name, value) in tree.iter_mut() {
        if skipped.contains(&name.as_str()) {
            continue;
        }
        match of.of_member(name) {
            Some(other) if !of.knows(name) => fill_other(of, other, value, left),
            Some(member) => fill_value(member, value, left),
            None => {}
        }
    }
}

fn size(value: &Value) -> usize {
    quota::of_value(value) + quota::of_member(0)
}

/// Fills in the default of a list element or of an undeclared field.
fn fill_other(parent: Type<'_>, of: Type<'_>, value: &mut Value, left: &mut usize) {
    if let Some(default) =
        parent.default_of_element.as_ref().filter(|_| value.is_null() && !of.nullable)
    {
        let size = size(default);
        if size > *left {
            *left = 0;
            return;
        }
        *left -= size;
        *value = default.clone();
    }
    fill_value(of, value, left);
}

fn fill_value(of: Type<'_>, value: &mut Value, left: &mut usize) {
    if !of.subtree.defaults || *left == 0 {
        return;
    }
    match value {
        Value::Object(members) => fill_members(of, members, &[], left),
        Value::Array(items) => {
            let Some(of_item) = of.of_items() else { return };
            items.iter_mut().for_each(|item| fill_other(of, of_item, item, left));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_do_not_add_unknown_metadata_fields() {
        let metadata = json!({"name": "Bar", "unknown": "x", "labels": 5});
        let resource = json!({"apiVersion": "foos/v1", "kind": "Foo", "metadata": metadata});
        let text = |default: &str| json!({"type": "string", "default": default});
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {
            "fields": {
                "type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"metadata": {"type": "object", "properties": {
                    "name": text("Bar"), "unknown": text("x"),
                }}},
            },
            "whole": {
                "type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true, "default": resource,
            },
            "around": {
                "type": "object", "default": {"inner": resource},
                "properties": {"inner": {"type": "object", "x-kubernetes-embedded-resource": true}},
            },
        }}));
        let Value::Object(mut tree) = json!({"fields": {"metadata": {}}}) else { unreachable!() };
        fill_defaults(schema.root(), &mut tree);
        let made = json!({"apiVersion": "foos/v1", "kind": "Foo", "metadata": {"name": "Bar"}});
        assert_eq!(tree["fields"], json!({"metadata": {"name": "Bar"}}));
        assert_eq!((&tree["whole"], &tree["around"]["inner"]), (&made, &made));
    }

    #[test]
    fn defaults_fill_missing_fields_and_non_nullable_nulls() {
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string", "default": "x"},
                "maybe": {"type": "string", "nullable": true, "default": "y"},
                "inner": {"type": "object", "default": {}, "properties": {
                    "b": {"type": "integer", "default": 5},
                }},
                "absent": {"type": "object", "properties": {"c": {"type": "string", "default": "z"}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {
                    "d": {"type": "boolean", "default": true},
                }}},
                "nulls": {"type": "array", "items": {"type": "integer", "default": 7}},
                "others": {"type": "object", "additionalProperties": {"type": "integer", "default": 8}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                    "e": {"type": "number", "default": 1.5},
                }}},
            }},
        }}));
        let fill = |tree: Value| {
            let Value::Object(mut tree) = tree else { unreachable!() };
            fill_defaults(schema.root(), &mut tree);
            json!(tree)
        };
        assert_eq!(fill(json!({"kind": "Foo"})), json!({"kind": "Foo"}));
        assert_eq!(
            fill(json!({"spec": {"maybe": null, "list": [{}, {"d": false}], "map": {"k": {}}}})),
            json!({"spec": {
                "a": "x", "maybe": null, "inner": {"b": 5},
                "list": [{"d": true}, {"d": false}], "map": {"k": {"e": 1.5}},
            }})
        );
        assert_eq!(fill(json!({"spec": 5})), json!({"spec": 5}));
        assert_eq!(
            fill(
                json!({"spec": {"a": "", "inner": {"b": 1}, "maybe": "", "nulls": [null, 2], "others": {"k": null}}})
            ),
            json!({"spec": {"a": "", "inner": {"b": 1}, "maybe": "", "nulls": [7, 2], "others": {"k": 8}}})
        );
    }
}
