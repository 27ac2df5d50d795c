//! Generates schemas that preserve unknown fields at random places, and values with unknown fields.

use fastrand::Rng;
use serde_json::{Map, Value, json};

const NAMES: [&str; 4] = ["a", "b", "c", "d.e"];
const UNKNOWN: [&str; 3] = ["u", "v", "w x"];
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Returns a schema, at most `depth` levels deep. Random parts of it have `x-kubernetes-preserve-unknown-fields`.
pub fn schema(rng: &mut Rng, depth: usize) -> Value {
    let mut schema = match rng.u32(0..12) {
        0..5 if depth > 0 => object(rng, depth),
        5..7 if depth > 0 => map(rng, depth),
        7..10 if depth > 0 => json!({"type": "array", "items": schema(rng, depth - 1)}),
        10 if depth > 0 => resource(rng, depth),
        _ => scalar(rng),
    };
    if rng.u32(0..4) == 0 {
        schema[PRESERVE] = json!(true);
    }
    if rng.u32(0..6) == 0 && schema[INT_OR_STRING].is_null() {
        schema["nullable"] = json!(true);
    }
    if rng.u32(0..12) == 0 && schema["type"] == "object" {
        schema["allOf"] = json!([{"properties": {"a": {"minLength": 0}}}, {"required": []}]);
    }
    if rng.u32(0..6) == 0
        && let Some(default) = default(rng, &schema)
    {
        schema["default"] = default;
    }
    // Removes the nulls that the reads above have inserted.
    if let Some(members) = schema.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    schema
}

fn object(rng: &mut Rng, depth: usize) -> Value {
    let mut schema = json!({"type": "object"});
    let properties: Map<String, Value> = NAMES
        .iter()
        .filter(|_| rng.bool())
        .copied()
        .collect::<Vec<_>>()
        .into_iter()
        .map(|name| (name.to_owned(), self::schema(rng, depth - 1)))
        .collect();
    if !properties.is_empty() {
        schema["properties"] = properties.into();
    }
    schema
}

fn map(rng: &mut Rng, depth: usize) -> Value {
    let values = match rng.u32(0..6) {
        0 => json!(true),
        1 => json!(false),
        _ => schema(rng, depth - 1),
    };
    json!({"type": "object", "additionalProperties": values})
}

/// Returns the schema of an embedded resource, which may describe its own metadata.
fn resource(rng: &mut Rng, depth: usize) -> Value {
    let mut schema = object(rng, depth);
    schema[EMBEDDED] = json!(true);
    if schema["properties"].is_null() {
        schema[PRESERVE] = json!(true);
    }
    if rng.u32(0..3) == 0 {
        let text = json!({"type": "string"});
        schema["properties"]["metadata"] = json!({
            "type": "object",
            "properties": {"name": text, "labels": {"type": "object", "additionalProperties": text}},
        });
        schema["properties"]["kind"] = text;
    }
    schema
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.u32(0..6) {
        0 => json!({INT_OR_STRING: true}),
        1 => json!({PRESERVE: true}),
        2 => json!({"type": "integer"}),
        3 => json!({"type": "boolean"}),
        _ => json!({"type": "string"}),
    }
}

fn default(rng: &mut Rng, schema: &Value) -> Option<Value> {
    if schema["nullable"] == true && rng.bool() {
        return Some(Value::Null);
    }
    Some(match schema["type"].as_str() {
        Some("object") if schema[EMBEDDED] == true => {
            json!({"apiVersion": "v1", "kind": "Default", "metadata": {"name": "x"}})
        }
        Some("object") if schema[PRESERVE] == true && rng.bool() => json!({"u": {"w": 1}}),
        Some("object") => json!({}),
        Some("array") if schema["items"]["type"] == "object" => json!([{}]),
        Some("array") => json!([]),
        Some("integer") => json!(7),
        Some("boolean") => json!(true),
        Some(_) => json!("text"),
        None => return None,
    })
}

/// Returns a value that mostly matches the schema, with unknown fields and nulls, and rarely has another type.
pub fn value(rng: &mut Rng, schema: Option<&Value>, depth: usize) -> Value {
    let Some(schema) = schema.filter(|_| rng.u32(0..30) != 0) else { return any(rng, depth) };
    if rng.u32(0..20) == 0 {
        return Value::Null;
    }
    match schema["type"].as_str() {
        Some("object") => fields(rng, schema, depth),
        Some("array") => {
            let count = rng.usize(0..4);
            (0..count).map(|_| value(rng, Some(&schema["items"]), depth)).collect()
        }
        Some("integer") => json!(rng.u8(..)),
        Some("boolean") => json!(rng.bool()),
        Some(_) => json!("x"),
        None if schema[INT_OR_STRING] == true => json!(5),
        None => any(rng, depth),
    }
}

fn fields(rng: &mut Rng, schema: &Value, depth: usize) -> Value {
    let mut members = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if rng.u32(0..3) != 0 {
            members.insert(name.clone(), value(rng, Some(property), depth));
        }
    }
    if let Some(values) = schema.get("additionalProperties") {
        for name in ["k", "l"].into_iter().filter(|_| rng.bool()).collect::<Vec<_>>() {
            members.insert(name.to_owned(), value(rng, Some(values), depth.saturating_sub(1)));
        }
    }
    for name in UNKNOWN {
        if rng.u32(0..4) == 0 {
            members.insert(name.to_owned(), any(rng, depth.saturating_sub(1)));
        }
    }
    if schema[EMBEDDED] == true {
        let mut names = names(rng);
        if schema["properties"]["metadata"].is_object() {
            // An applied object may contain a null that its schema forbids.
            names.retain(|name, value| name != "metadata" || !value.is_null());
        }
        members.append(&mut names);
    } else if rng.u32(0..12) == 0 {
        members.insert("metadata".to_owned(), json!({"u": 1, "name": "n"}));
    }
    members.into()
}

/// Returns `apiVersion`, `kind` and `metadata` of an embedded resource, mostly valid.
fn names(rng: &mut Rng) -> Map<String, Value> {
    let mut metadata = json!({"name": "n", "labels": {"a": "b"}});
    if rng.u32(0..3) == 0 {
        metadata["u"] = json!({"v": 1});
    }
    if rng.u32(0..12) == 0 {
        metadata["name"] = Value::Null;
    }
    let mut names = Map::new();
    names.insert("apiVersion".to_owned(), json!("v1"));
    names.insert("kind".to_owned(), json!("Kind"));
    match rng.u32(0..12) {
        0 => drop(names.insert("kind".to_owned(), Value::Null)),
        1 => drop(names.insert("metadata".to_owned(), Value::Null)),
        2 => {}
        _ => drop(names.insert("metadata".to_owned(), metadata)),
    }
    names
}

/// Returns a value of any type.
fn any(rng: &mut Rng, depth: usize) -> Value {
    match rng.u32(0..8) {
        0 => Value::Null,
        1 => json!("any"),
        2 => json!(rng.u8(..)),
        3..5 if depth > 0 => {
            let count = rng.usize(0..3);
            (0..count).map(|_| any(rng, depth - 1)).collect()
        }
        _ if depth > 0 => {
            let names = [UNKNOWN.as_slice(), NAMES.as_slice()].concat();
            let names: Vec<&str> = names.into_iter().filter(|_| rng.u32(0..3) == 0).collect();
            names.into_iter().map(|name| (name.to_owned(), any(rng, depth - 1))).collect()
        }
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_generates_the_same() {
        let of = |seed| {
            let mut rng = Rng::with_seed(seed);
            let schema = schema(&mut rng, 4);
            let value = value(&mut rng, Some(&schema), 4);
            (schema, value)
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(5));
    }
}
