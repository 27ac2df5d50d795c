//! Removal of null fields, which Rust types write for fields without a value.

use serde_json::Value;

use crate::object::Tree;
use crate::schema::{Additional, Type};

/// Removes fields that are null if a type knows them and does not require them: clients in other languages would not
/// send them back. Null fields that the type does not know are preserved.
pub fn drop_null_fields(of: Type<'_>, tree: &mut Tree) {
    let required = of.constraints().map_or(&[][..], |constraints| &constraints.required);
    tree.retain(|name, value| !value.is_null() || !of.knows(name) || required.contains(name));
    for (name, value) in tree {
        match (of.member(name), &of.node().additional) {
            (Some((_, below)), _) => in_value(below, value),
            (None, Additional::Of(values)) => in_value(of.at(values), value),
            _ => {}
        }
    }
}

fn in_value(of: Type<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => drop_null_fields(of, members),
        Value::Array(list) => {
            let Some(items) = &of.node().items else { return };
            list.iter_mut().for_each(|item| in_value(of.at(items), item));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn nulls_are_removed_except_in_required_or_unknown_fields() {
        let text = json!({"type": "string", "nullable": true});
        let of_two =
            json!({"type": "object", "required": ["a"], "properties": {"a": text, "b": text}});
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {
            "one": of_two,
            "list": {"type": "array", "items": of_two},
            "map": {"type": "object", "additionalProperties": of_two},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "none": of_two,
        }}));
        let nulls = json!({"a": null, "b": null});
        let mut tree = json!({
            "one": nulls, "list": [nulls], "map": {"x": nulls}, "any": nulls, "none": null,
        });
        drop_null_fields(schema.root(), tree.as_object_mut().unwrap());
        let left = json!({"a": null});
        let expected = json!({"one": left, "list": [left], "map": {"x": left}, "any": nulls});
        assert_eq!(tree, expected);
    }
}
