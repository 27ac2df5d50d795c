//! Pruning: what the schema does not know is dropped.

use serde_json::Value;

use super::{Additional, Type};
use crate::error::Path;
use crate::object::Tree;
use crate::object::metadata::{OF_EVERY_OBJECT, UNKNOWN_LIMIT};

/// Drops the members of a whole object that its type does not know, and
/// nulls that are no values; answers with the paths of the former, sorted.
pub fn prune(of: Type<'_>, tree: &mut Tree) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_members(of, tree, &Path::Root, &mut unknown);
    unknown.sort_unstable();
    unknown
}

/// The same of a value.
pub fn prune_value(of: Type<'_>, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_node(of, value, &Path::Member(&Path::Root, ""), &mut unknown);
    unknown
}

fn prune_members(of: Type<'_>, tree: &mut Tree, path: &Path<'_>, unknown: &mut Vec<String>) {
    let is_resource = of.embedded || matches!(path, Path::Root);
    tree.retain(|key, value| {
        if is_resource && OF_EVERY_OBJECT.contains(&key.as_str()) {
            return true;
        }
        let path = Path::Member(path, key);
        let member = match (of.of_member(key), &of.additional) {
            (Some(member), _) => member,
            (None, Additional::Any | Additional::Of(_)) => return true,
            (None, Additional::Unspecified | Additional::Forbidden) => {
                empty(value, &path, unknown);
                return true;
            }
            (None, Additional::Pruned) => {
                if unknown.len() < UNKNOWN_LIMIT {
                    unknown.push(path.to_string());
                }
                return false;
            }
        };
        // A null that is no value is as good as absent.
        if value.is_null() && !member.nullable {
            return !of.knows(key) && of.default_of_element.is_some();
        }
        prune_node(member, value, &path, unknown);
        true
    });
}

/// Drops all members of what no schema says anything of.
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

fn prune_node(of: Type<'_>, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(members) => prune_members(of, members, path, unknown),
        Value::Array(items) => {
            let Some(of) = of.of_items() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                prune_node(of, item, &Path::Item(path, index), unknown);
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
    fn what_goes_and_what_is_told() {
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object"}}},
                "maybe": {"type": "string", "nullable": true},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
            },
        }}}));
        let given = json!({
            "apiVersion": "g/v1", "kind": "Foo", "metadata": {"x": 1}, "more": 1,
            "spec": {
                "list": [{"a": "b"}, {"c": 1}, null, 5], "map": {"x": 1, "y": null},
                "free": {"x": null, "known": {"y": 1}}, "maybe": null, "any": null, "no": {"a": 1},
            },
        });
        let mut tree = given.as_object().unwrap().clone();
        let unknown = prune(schema.root(), &mut tree);
        assert_eq!(unknown, ["more", "spec.free.known.y", "spec.list[1].c", "spec.no"]);
        assert_eq!(
            json!(tree),
            json!({
                "apiVersion": "g/v1", "kind": "Foo", "metadata": {"x": 1},
                "spec": {
                    "list": [{"a": "b"}, {}, null, 5], "map": {"x": 1},
                    "free": {"x": null, "known": {}}, "maybe": null,
                },
            })
        );
    }
}
