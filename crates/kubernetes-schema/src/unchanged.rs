//! Unchanged: whether a value equals its old value, so that its errors are tolerated.
//!
//! kube-apiserver compares each part of a value with the same part of the old value. Elements of a list with key fields
//! are matched by their keys, at any position. A field without a type and an element without a key have no match, so a
//! value that contains one counts as changed.

use serde_json::Value;

use super::faults::Faults;
use super::list_types;
use super::node::{ListType, Type};

/// Whether a value of a type equals the old value.
pub fn is_unchanged(of: Type<'_>, old: &Value, value: &Value, faults: &mut Faults) -> bool {
    faults.spend(1);
    if !of.subtree.correlation {
        return old == value;
    }
    match (old, value) {
        (Value::Array(old), Value::Array(items)) => {
            let (ListType::Map(_), Some(of_item)) = (&of.list_type, of.of_items()) else {
                return old == items;
            };
            let before = list_types::by_key(&of.list_type, Some(old));
            let is_same =
                |item| before.of(item).is_some_and(|old| is_unchanged(of_item, old, item, faults));
            old.len() == items.len() && items.iter().all(is_same)
        }
        (Value::Object(old), Value::Object(members)) => {
            let is_same = |(name, member): (&String, &Value)| {
                let before = of.of_member(name).zip(old.get(name));
                before.is_some_and(|(of, old)| is_unchanged(of, old, member, faults))
            };
            old.len() == members.len() && members.iter().all(is_same)
        }
        (old, value) => old == value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Schema;
    use super::*;

    #[test]
    fn values_without_a_matching_old_value_count_as_changed() {
        let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}}});
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": item},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "string"}}},
        }}));
        for (name, old, new, expected) in [
            ("map", json!([{"k": "a"}, {"k": "b"}]), json!([{"k": "b"}, {"k": "a"}]), true),
            ("map", json!([{"k": "a"}]), json!([{"k": "a", "v": ""}]), false),
            ("map", json!([{"v": "a"}]), json!([{"v": "a"}]), false),
            ("map", json!([]), json!([]), true),
            ("set", json!(["a", "b"]), json!(["b", "a"]), false),
            ("set", json!(["a", "b"]), json!(["a", "b"]), true),
            ("plain", json!([{"v": "a"}]), json!([{"v": "a"}]), true),
            ("any", json!({"known": "a"}), json!({"known": "a"}), true),
            ("any", json!({"other": "a"}), json!({"other": "a"}), false),
            ("any", json!({}), json!({}), true),
            ("any", json!(null), json!(null), true),
            ("any", json!({}), json!(null), false),
        ] {
            let of = schema.root().of_member(name).unwrap();
            assert_eq!(
                is_unchanged(of, &old, &new, &mut Faults::new()),
                expected,
                "{name}: {old} {new}"
            );
        }
    }
}
