//! Defaults: what an object says where its author says nothing.

use serde_json::Value;

use super::{Additional, Schema};
use crate::object::Tree;
use crate::object::metadata::OF_EVERY_OBJECT;

/// So much is filled in at most, in bytes, with so many for each value. What
/// has more is refused for its size.
const LIMIT: usize = 4 << 20;
const VALUE: usize = 64;

impl Schema {
    /// Fills in the defaults of a whole object: of members that are absent in
    /// what is there, be it by default too.
    pub fn fill_defaults(&self, tree: &mut Tree) {
        if self.has_defaults {
            fill_members(self, tree, &OF_EVERY_OBJECT, &mut { LIMIT });
        }
    }
}

fn fill_members(schema: &Schema, tree: &mut Tree, skipped: &[&str], left: &mut usize) {
    for (name, property) in &schema.properties {
        if let Some(default) = &property.default
            && !tree.contains_key(name)
            && !skipped.contains(&name.as_str())
        {
            let size = size(default);
            if size > *left {
                *left = 0;
                return;
            }
            *left -= size;
            tree.insert(name.clone(), default.clone());
        }
    }
    for (name, value) in tree.iter_mut() {
        if skipped.contains(&name.as_str()) {
            continue;
        }
        match (schema.properties.get(name), &schema.additional) {
            (Some(member), _) => fill_value(member, value, left),
            (None, Additional::Of(member)) => fill_value(member, value, left),
            (None, _) => {}
        }
    }
}

/// What a value takes, about.
fn size(value: &Value) -> usize {
    VALUE
        + match value {
            Value::Object(members) => {
                members.iter().map(|(name, value)| name.len() + size(value)).sum()
            }
            Value::Array(items) => items.iter().map(size).sum(),
            Value::String(text) => text.len(),
            _ => 0,
        }
}

fn fill_value(schema: &Schema, value: &mut Value, left: &mut usize) {
    if !schema.has_defaults || *left == 0 {
        return;
    }
    match value {
        Value::Object(members) => fill_members(schema, members, &[], left),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| fill_value(schema, item, left));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_filled_in() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
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
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                    "e": {"type": "number", "default": 1.5},
                }}},
            }},
        }}));
        let fill = |tree: Value| {
            let Value::Object(mut tree) = tree else { unreachable!() };
            schema.fill_defaults(&mut tree);
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
    }
}
