//! Generates random schemas, values that match them, and changes of such values.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::terms::Term;

/// Names of properties; some of them must be escaped in expressions.
const NAMES: &[&str] = &["a", "b", "c", "d-e", "f_g", "in", "h__i", "namespace", "k.l", "size"];

/// A path into a value, and its type.
#[derive(Clone, Debug)]
pub struct Place {
    pub text: String,
    pub term: Term,
    /// The expression that tests whether the path exists, if it is optional.
    pub asked: Option<String>,
}

/// Returns a schema, at most `depth` levels deep.
pub fn schema(rng: &mut Rng, depth: usize) -> Value {
    let is_leaf = depth == 0 || rng.u32(0..10) < 4;
    let mut schema = if is_leaf { scalar(rng) } else { structure(rng, depth) };
    if rng.u32(0..10) == 0 && schema["x-kubernetes-int-or-string"].is_null() {
        schema["nullable"] = json!(true);
    }
    schema
}

/// Returns the schema of an object with some properties.
pub fn object(rng: &mut Rng, depth: usize) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for name in NAMES {
        if rng.u32(0..10) < 4 {
            properties.insert((*name).to_owned(), schema(rng, depth.saturating_sub(1)));
            if rng.u32(0..4) == 0 {
                required.push(*name);
            }
        }
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if rng.u32(0..8) == 0 {
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    schema
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.u32(0..10) {
        0 => json!({"type": "boolean"}),
        1 | 2 => {
            let format = ["", "int32", "int64"][rng.usize(0..3)];
            with_format(json!({"type": "integer"}), format)
        }
        3 => with_format(json!({"type": "number"}), ["", "double", "float"][rng.usize(0..3)]),
        4 => bounded(rng, json!({"x-kubernetes-int-or-string": true}), "maxLength"),
        5 => {
            let formats = ["date", "date-time", "duration", "byte", "ipv4", "uuid", "uri", "email"];
            let schema =
                with_format(json!({"type": "string"}), formats[rng.usize(0..formats.len())]);
            bounded(rng, schema, "maxLength")
        }
        6 => json!({"type": "string", "enum": ["x", "yy", "a b"]}),
        _ => bounded(rng, json!({"type": "string"}), "maxLength"),
    }
}

fn with_format(mut schema: Value, format: &str) -> Value {
    if !format.is_empty() {
        schema["format"] = json!(format);
    }
    schema
}

/// Mostly adds a size limit to a schema, because the estimated cost of most expressions is too high without one.
fn bounded(rng: &mut Rng, mut schema: Value, bound: &str) -> Value {
    if rng.u32(0..8) != 0 {
        schema[bound] = json!([3, 5, 10, 40][rng.usize(0..4)]);
    }
    schema
}

fn structure(rng: &mut Rng, depth: usize) -> Value {
    match rng.u32(0..12) {
        0..2 => {
            let values = schema(rng, depth - 1);
            bounded(rng, json!({"type": "object", "additionalProperties": values}), "maxProperties")
        }
        2..4 => {
            let items = schema(rng, depth - 1);
            bounded(rng, json!({"type": "array", "items": items}), "maxItems")
        }
        4 => {
            let items =
                [json!({"type": "string"}), json!({"type": "integer"})][rng.usize(0..2)].clone();
            let set = json!({"type": "array", "items": items, "x-kubernetes-list-type": "set"});
            bounded(rng, set, "maxItems")
        }
        5..7 => {
            let mut items = object(rng, depth);
            let key = json!({"type": "string", "maxLength": 10});
            items["properties"]["key"] = key;
            let required = items["required"].as_array().cloned().unwrap_or_default();
            let required = [required, vec![json!("key")]].concat();
            items["required"] = required.into();
            items["x-kubernetes-preserve-unknown-fields"].take();
            if let Some(items) = items.as_object_mut() {
                items.retain(|_, value| !value.is_null());
            }
            let list = json!({
                "type": "array", "items": items,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
            });
            bounded(rng, list, "maxItems")
        }
        7 => {
            let mut embedded = object(rng, depth - 1);
            embedded["x-kubernetes-embedded-resource"] = json!(true);
            if embedded["properties"].as_object().is_none_or(Map::is_empty) {
                embedded["x-kubernetes-preserve-unknown-fields"] = json!(true);
            }
            embedded
        }
        _ => object(rng, depth),
    }
}

/// Returns the CEL type of a schema; `None` if the schema has no type in CEL.
pub fn term(schema: &Value) -> Option<Term> {
    if schema["x-kubernetes-int-or-string"] == true {
        return Some(Term::named("dyn"));
    }
    Some(match schema["type"].as_str()? {
        "boolean" => Term::named("bool"),
        "integer" => Term::named("int"),
        "number" => Term::named("double"),
        "string" => Term::named(match schema["format"].as_str() {
            Some("date" | "date-time") => "timestamp",
            Some("duration") => "duration",
            Some("byte") => "bytes",
            _ => "string",
        }),
        "array" => Term::list(term(&schema["items"])?),
        "object" if schema["additionalProperties"].is_object() => {
            Term::map(Term::named("string"), term(&schema["additionalProperties"])?)
        }
        // Each object schema is a type of its own, whose values only come from paths.
        "object" => Term::named(&format!("object {}", schema["properties"])),
        _ => return None,
    })
}

/// Appends the paths that start at the value of the expression `text`.
pub fn places(schema: &Value, text: &str, depth: usize, into: &mut Vec<Place>) {
    let Some(term) = term(schema) else { return };
    into.push(Place { text: text.to_owned(), term, asked: None });
    if depth == 0 {
        return;
    }
    let is_map = schema["additionalProperties"].is_object();
    if schema["type"] == "array" {
        places(&schema["items"], &format!("{text}[0]"), depth - 1, into);
    } else if is_map {
        places(&schema["additionalProperties"], &format!("{text}['k']"), depth - 1, into);
    } else if schema["x-kubernetes-embedded-resource"] == true {
        for name in ["kind", "apiVersion", "metadata.name"] {
            let text = format!("{text}.{name}");
            let asked = Some(format!("has({text})"));
            into.push(Place { text, term: Term::named("string"), asked });
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let before = into.len();
        // A reserved word of CEL is written with and without escaping.
        let is_plain = name == "namespace" && depth.is_multiple_of(2);
        let name = if is_plain { name.clone() } else { escaped(name) };
        let text = format!("{text}.{name}");
        places(property, &text, depth - 1, into);
        let asks = format!("has({text})");
        for place in &mut into[before..] {
            place.asked = Some(match &place.asked {
                Some(more) => format!("{asks} && {more}"),
                None => asks.clone(),
            });
        }
    }
}

/// Escapes the name of a property for an expression.
fn escaped(name: &str) -> String {
    match name {
        "in" | "namespace" => format!("__{name}__"),
        _ => name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__"),
    }
}

/// Returns a value that mostly matches the schema.
pub fn value(rng: &mut Rng, schema: &Value) -> Value {
    if schema["nullable"] == true && rng.u32(0..4) == 0 {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if rng.bool() { number(rng) } else { text(rng, schema) };
    }
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => rng.bool().into(),
        "integer" => number(rng),
        "number" => {
            [json!(1.5), json!(0), json!(-2.25), json!(1e3), json!(3)][rng.usize(0..5)].clone()
        }
        "string" => text(rng, schema),
        "array" => items(rng, schema),
        _ if schema["additionalProperties"].is_object() => {
            // At most one entry, because Go iterates over a map in random order.
            let mut members = Map::new();
            if rng.u32(0..4) != 0 {
                let key = ["k", "x-y", ""][rng.usize(0..2)];
                members.insert(key.to_owned(), value(rng, &schema["additionalProperties"]));
            }
            members.into()
        }
        _ => {
            let required = schema["required"].as_array();
            let is_required =
                |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
            let mut members = Map::new();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if is_required(name) || rng.u32(0..3) != 0 {
                    members.insert(name.clone(), value(rng, property));
                }
            }
            if schema["x-kubernetes-embedded-resource"] == true {
                members.insert("kind".to_owned(), "Some".into());
                members.insert("apiVersion".to_owned(), "v1".into());
                members.insert("metadata".to_owned(), json!({"name": "n", "labels": {"x": "y"}}));
            }
            if schema["x-kubernetes-preserve-unknown-fields"] == true && rng.bool() {
                members.insert("unknown".to_owned(), json!([1, {"x": null}]));
            }
            members.into()
        }
    }
}

fn items(rng: &mut Rng, schema: &Value) -> Value {
    let kind = schema["x-kubernetes-list-type"].as_str().unwrap_or_default();
    let mut items: Vec<Value> = Vec::new();
    for _ in 0..rng.usize(0..4) {
        let mut item = value(rng, &schema["items"]);
        if kind == "map" {
            item["key"] = ["p", "q", "r"][rng.usize(0..3)].into();
        }
        let is_there = |one: &Value| match kind {
            "map" => one["key"] == item["key"],
            _ => *one == item,
        };
        if kind.is_empty() || !items.iter().any(is_there) {
            items.push(item);
        }
    }
    items.into()
}

fn number(rng: &mut Rng) -> Value {
    [0, 1, -1, 2, 7, 100, i32::MAX][rng.usize(0..7)].into()
}

fn text(rng: &mut Rng, schema: &Value) -> Value {
    let some: &[&str] = match schema["format"].as_str().unwrap_or_default() {
        "date" => &["2020-01-31", "1999-12-31"],
        "date-time" => &["2020-02-29T23:59:58.125Z", "1970-01-01T00:00:00+01:00"],
        "duration" => &["1h30m", "1.5s", "3 days", "0s"],
        "byte" => &["YWJj", "w6k=", ""],
        "ipv4" => &["1.2.3.4"],
        "uuid" => &["123e4567-e89b-12d3-a456-426614174000"],
        "uri" => &["https://x.y/z?a=b"],
        "email" => &["a@b.c"],
        _ if schema["enum"].is_array() => &["x", "yy", "a b"],
        _ => &[
            "",
            "a",
            "abc",
            "é🦙",
            "x.y",
            "1.2.3.4",
            "10.0.0.0/8",
            "1Gi",
            "1.2.3",
            "a,b",
            "A b",
            "100",
        ],
    };
    let longest = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    let fits =
        |text: &&&str| u64::try_from(text.chars().count()).is_ok_and(|count| count <= longest);
    let fitting: Vec<&&str> = some.iter().filter(fits).collect();
    // One string in forty may be too long.
    match fitting.is_empty() || rng.u32(0..40) == 0 {
        true => some[rng.usize(0..some.len())].into(),
        false => (*fitting[rng.usize(0..fitting.len())]).into(),
    }
}

/// Returns a changed value.
pub fn changed(rng: &mut Rng, schema: &Value, old: &Value) -> Value {
    if rng.u32(0..8) == 0 {
        return value(rng, schema);
    }
    match old {
        Value::Object(members) => {
            let mut new = Map::new();
            for (name, member) in members {
                let property = match &schema["properties"][name] {
                    Value::Null => &schema["additionalProperties"],
                    property => property,
                };
                let is_needed =
                    ["kind", "apiVersion", "metadata", "key", "unknown"].contains(&name.as_str());
                match rng.u32(0..10) {
                    0..=4 if is_needed || rng.bool() => {
                        new.insert(name.clone(), member.clone());
                    }
                    _ if is_needed => {
                        new.insert(name.clone(), member.clone());
                    }
                    5 => {}
                    _ => {
                        new.insert(name.clone(), changed(rng, property, member));
                    }
                }
            }
            new.into()
        }
        Value::Array(items) => {
            let mut new = Vec::new();
            for item in items {
                match rng.u32(0..5) {
                    0 => {}
                    1 | 2 => new.push(item.clone()),
                    _ => {
                        let mut changed = changed(rng, &schema["items"], item);
                        if item["key"].is_string() && changed.is_object() {
                            changed["key"] = item["key"].clone();
                        }
                        new.push(changed);
                    }
                }
            }
            if schema["x-kubernetes-list-type"] == "set" {
                let mut seen: Vec<Value> = Vec::new();
                new.retain(|item| {
                    !seen.contains(item) && {
                        seen.push(item.clone());
                        true
                    }
                });
            }
            if rng.bool() {
                new.reverse();
            }
            new.into()
        }
        old if rng.bool() => old.clone(),
        _ => value(rng, schema),
    }
}
