//! Formats in a schema that are not checked.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::CHECKED;

/// Returns the formats in a schema, as it was written, that are not recognized for the type in the same node.
pub fn unrecognized_formats(schema: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    collect(schema, &mut found);
    found
}

fn collect<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    let Some(node) = schema.as_object() else { return };
    let text = |key: &str| node.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    found.extend(text("format").filter(|format| !is_recognized(format, text("type"))));
    for inner in inner_schemas(node) {
        collect(inner, found);
    }
}

/// Returns the schemas directly within a schema.
fn inner_schemas(node: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let single =
        ["items", "not", "additionalProperties"].into_iter().filter_map(|key| node.get(key));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| node.get(key)?.as_array());
    let properties = node.get("properties").and_then(Value::as_object);
    single.chain(lists.flatten()).chain(properties.into_iter().flat_map(Map::values))
}

/// Whether a format is recognized for values of a type.
pub fn is_recognized(format: &str, json_type: Option<&str>) -> bool {
    match json_type {
        None | Some("string") => {
            // Go's library ignores the dashes in a name.
            let bare = |name: &str| name.replace('-', "");
            let given = bare(format);
            given == "password" || CHECKED.iter().any(|(name, _)| bare(name) == given)
        }
        Some("integer") => ["int32", "int64"].contains(&format),
        Some("number") => ["float", "double"].contains(&format),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_format_is_of_a_type() {
        for (json_type, format, is_known) in [
            ("string", "date-time", true),
            ("string", "password", true),
            ("string", "k8s-short-name", true),
            ("string", "int32", false),
            ("integer", "int32", true),
            ("integer", "double", false),
            ("number", "double", true),
            ("number", "int64", false),
            ("object", "date-time", false),
            ("boolean", "date", false),
        ] {
            let inner = json!({"type": json_type, "format": format});
            let schema =
                json!({"type": "object", "properties": {"a": {"items": {"anyOf": [inner]}}}});
            let expected = if is_known { vec![] } else { vec![format] };
            assert!(unrecognized_formats(&schema).into_iter().eq(expected), "{json_type} {format}");
        }
    }
}
