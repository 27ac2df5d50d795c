//! Pruning: drops fields that the schema does not declare.

use serde_json::Value;

use super::{Additional, Type};
use crate::error::Path;
use crate::object::Tree;
use crate::object::metadata::{OF_EVERY_OBJECT, UNKNOWN_LIMIT};

/// Drops the undeclared fields of a whole object, and nulls where null is not allowed. Returns the paths of the
/// undeclared fields, sorted.
pub fn prune(of: Type<'_>, tree: &mut Tree) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_members(of, of.preserves, tree, &Path::Root, &mut unknown);
    unknown.sort_unstable();
    unknown
}

/// Drops the undeclared fields of a value, and nulls where null is not allowed. Returns the paths of the undeclared
/// fields.
pub fn prune_value(of: Type<'_>, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_node(of, of.preserves, value, &Path::Member(&Path::Root, ""), &mut unknown);
    unknown
}

/// Prunes the fields of an object. If `keeps` is set, unknown fields are retained.
fn prune_members(
    of: Type<'_>,
    keeps: bool,
    tree: &mut Tree,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) {
    let is_root = matches!(path, Path::Root);
    tree.retain(|key, value| {
        if (of.embedded || is_root) && OF_EVERY_OBJECT.contains(&key.as_str()) {
            return is_root || !drop_null_of_member(of, key, value);
        }
        let path = Path::Member(path, key);
        let member = match (of.of_member(key), &of.additional) {
            (Some(member), _) => member,
            (None, Additional::Unspecified | Additional::Forbidden) => {
                empty(value, &path, unknown);
                return true;
            }
            (None, _) if keeps => return true,
            (None, _) => {
                if unknown.len() < UNKNOWN_LIMIT {
                    unknown.push(path.to_string());
                }
                return false;
            }
        };
        if is_dropped_null(of, key, member, value) {
            return false;
        }
        prune_node(member, member.preserves, value, &path, unknown);
        true
    });
}

/// Whether a field is null, although null is not allowed. The default of a declared field replaces the missing field
/// later. The default of undeclared fields replaces the null itself.
fn is_dropped_null(parent: Type<'_>, key: &str, of: Type<'_>, value: &Value) -> bool {
    value.is_null() && !of.nullable && (parent.knows(key) || parent.default_of_element.is_none())
}

/// Drops nulls within `apiVersion`, `kind` and `metadata` of an embedded resource, of which nothing else is pruned.
/// Returns whether the field itself must be dropped.
fn drop_null_of_member(parent: Type<'_>, key: &str, value: &mut Value) -> bool {
    let Some(of) = parent.of_member(key) else { return false };
    let has_default = match parent.member(key) {
        Some((member, _)) => member.default.is_some(),
        None => parent.default_of_element.is_some(),
    };
    // A null with a default stays: `metadata` becomes an empty object and gets no default.
    if value.is_null() && !of.nullable && !has_default {
        return true;
    }
    drop_nulls(of, value);
    false
}

fn drop_nulls(of: Type<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|key, value| !drop_null_of_member(of, key, value));
        }
        Value::Array(items) => {
            let Some(of) = of.of_items() else { return };
            items.iter_mut().for_each(|item| drop_nulls(of, item));
        }
        _ => {}
    }
}

/// Drops all fields of a value that has no schema.
fn empty(value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let left = UNKNOWN_LIMIT.saturating_sub(unknown.len());
            let names = members.keys().take(left);
            unknown.extend(names.map(|name| Path::Member(path, name).to_string()));
            members.clear();
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                empty(item, &Path::Item(path, index), unknown);
            }
        }
        _ => {}
    }
}

fn prune_node(
    of: Type<'_>,
    keeps: bool,
    value: &mut Value,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(members) => prune_members(of, keeps, members, path, unknown),
        Value::Array(items) => {
            let of_items = of.of_items();
            for (index, item) in items.iter_mut().enumerate() {
                let path = Path::Item(path, index);
                match of_items {
                    // The elements of a list that retains unknown fields retain theirs too.
                    Some(of) => prune_node(of, keeps || of.preserves, item, &path, unknown),
                    None if keeps => {}
                    None => empty(item, &path, unknown),
                }
            }
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
    fn unknown_fields_are_pruned_and_reported() {
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object"}}},
                "maybe": {"type": "string", "nullable": true},
                "kept": {
                    "type": "array", "x-kubernetes-preserve-unknown-fields": true,
                    "items": {"type": "object", "properties": {"known": {"type": "object"}}},
                },
                "text": {"type": "string"},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
            },
        }}}));
        let given = json!({
            "apiVersion": "g/v1", "kind": "Foo", "metadata": {"x": 1}, "more": 1,
            "spec": {
                "list": [{"a": "b"}, {"c": 1}, null, 5], "map": {"x": 1, "y": null},
                "free": {"x": null, "known": {"y": 1}}, "maybe": null, "any": null, "no": {"a": 1},
                "kept": [{"x": [1], "known": {"y": 1}}, [{"z": 1}]], "text": [[{"a": 1}]],
            },
        });
        let mut tree = given.as_object().unwrap().clone();
        let unknown = prune(schema.root(), &mut tree);
        assert_eq!(
            unknown,
            [
                "more",
                "spec.free.known.y",
                "spec.kept[0].known.y",
                "spec.list[1].c",
                "spec.no",
                "spec.text[0][0].a",
            ]
        );
        assert_eq!(
            json!(tree),
            json!({
                "apiVersion": "g/v1", "kind": "Foo", "metadata": {"x": 1},
                "spec": {
                    "list": [{"a": "b"}, {}, null, 5], "map": {"x": 1},
                    "free": {"x": null, "known": {}}, "maybe": null,
                    "kept": [{"x": [1], "known": {}}, [{"z": 1}]], "text": [[{}]],
                },
            })
        );
    }
}
