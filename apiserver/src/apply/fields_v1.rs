//! `fieldsV1`: a set of fields as it stands in `metadata.managedFields`.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Node};
use super::path_element::PathElement;
use crate::error::quote;

/// The member of an object that says that its path is in the set, besides those below.
const ITSELF: &str = ".";

/// Writes a set down.
pub fn write(set: &FieldSet) -> Value {
    let mut written = Map::new();
    for (element, node) in set.iter() {
        let mut below = match write(&node.children) {
            Value::Object(below) => below,
            _ => Map::new(),
        };
        if node.is_member && !below.is_empty() {
            below.insert(ITSELF.to_owned(), Value::Object(Map::new()));
        }
        written.insert(key(element), Value::Object(below));
    }
    Value::Object(written)
}

/// Reads a set. What is of a sort that is not known is left out, with what is below it.
///
/// # Errors
/// What is wrong with it.
pub fn read(written: &Value) -> Result<FieldSet, String> {
    node(written).map(|node| node.children)
}

fn node(written: &Value) -> Result<Node, String> {
    let members = match written {
        Value::Object(members) => members,
        Value::Null => return Ok(Node::member()),
        other => return Err(format!("{other} is no object")),
    };
    let mut nodes = Vec::with_capacity(members.len());
    for (key, below) in members.iter().filter(|(key, _)| *key != ITSELF) {
        if let Some(element) = element(key)? {
            nodes.push((element, node(below)?));
        }
    }
    let children = FieldSet::of(nodes);
    Ok(Node { is_member: members.contains_key(ITSELF) || children.is_empty(), children })
}

fn element(key: &str) -> Result<Option<PathElement>, String> {
    let unreadable = || format!("{} is no path element", quote(key));
    let bytes = key.as_bytes();
    if bytes.len() < 2 || bytes[1] != b':' {
        return Err(unreadable());
    }
    let rest = &key[2..];
    Ok(Some(match bytes[0] {
        b'f' => PathElement::field(rest),
        b'v' => PathElement::Value(serde_json::from_str(rest).map_err(|_| unreadable())?),
        b'k' => {
            let members: Map<String, Value> =
                serde_json::from_str(rest).map_err(|_| unreadable())?;
            let members = members.into_iter().map(|(name, value)| (name.into(), value));
            PathElement::key(members.collect())
        }
        b'i' => PathElement::Index(rest.parse().map_err(|_| unreadable())?),
        _ => return Ok(None),
    }))
}

fn key(element: &PathElement) -> String {
    let mut key = String::new();
    match element {
        PathElement::Field(name) => {
            key.push_str("f:");
            key.push_str(name);
        }
        PathElement::Key(members) => {
            key.push_str("k:{");
            for (index, (name, value)) in members.iter().enumerate() {
                key.push_str(if index == 0 { "" } else { "," });
                write_text(&mut key, name);
                key.push(':');
                write_value(&mut key, value);
            }
            key.push('}');
        }
        PathElement::Value(value) => {
            key.push_str("v:");
            write_value(&mut key, value);
        }
        PathElement::Index(index) => {
            let _ = write!(key, "i:{index}");
        }
    }
    key
}

/// JSON as Go writes it, without spaces.
fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) if number.as_u64().is_none() => write_float(out, float),
            _ => {
                let _ = write!(out, "{number}");
            }
        },
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write_text(out, name);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

/// The shortest form, with an exponent of at least two digits below 1e-6 and from 1e21 on.
fn write_float(out: &mut String, float: f64) {
    let size = float.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        let _ = write!(out, "{float}");
        return;
    }
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
}

/// A text in quotes, with what HTML gives a sense escaped.
fn write_text(out: &mut String, text: &str) {
    let json = Value::String(text.to_owned()).to_string();
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            plain => out.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::field_set::tests::set;
    use super::*;

    #[test]
    fn a_set_is_read_as_it_is_written() {
        for written in [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {"f:e": {}}}}),
            json!({"f:": {}, "f:f:x": {}, "f:a.b/c": {}}),
            json!({"f:l": {"k:{\"name\":\"z\"}": {".": {}, "f:name": {}}}}),
            json!({"f:l": {"k:{\"port\":443,\"protocol\":\"TCP\"}": {}}}),
            json!({"f:l": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {}}}),
            json!({"f:s": {"v:\"\\u003c\\u0026\\u003e\"": {}, "v:\"q\\\"x\"": {}, "v:1.5": {}}}),
            json!({"f:s": {"v:1e-07": {}, "v:1e+21": {}, "v:true": {}, "v:null": {}, "i:3": {}}}),
        ] {
            assert_eq!(write(&read(&written).unwrap()), written);
        }
        assert_eq!(read(&json!({"f:a": {".": {}, "f:b": {}}})).unwrap(), set(&["a", "a.b"]));
    }

    #[test]
    fn what_is_odd_is_read_as_kube_apiserver_does() {
        // An unknown sort is left out; with nothing left below it, a path is in the set.
        let odd = json!({"f:a": {"x:b": {"f:c": {}}}, "x:y": {}, ".": {}});
        assert_eq!(read(&odd).unwrap(), set(&["a"]));
        // The same twice, in other words.
        let twice = json!({"f:l": {"v:1": {"f:a": {}}, "v:1.0": {"f:b": {}}}});
        assert_eq!(write(&read(&twice).unwrap()), json!({"f:l": {"v:1": {"f:a": {}, "f:b": {}}}}));
        assert_eq!(read(&json!({"f:a": null})).unwrap(), set(&["a"]));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for written in [
            json!([]),
            json!({"a": {}}),
            json!({"": {}}),
            json!({"fa": {}}),
            json!({"k:1": {}}),
            json!({"k:{} ": {}, "v:": {}}),
            json!({"v:{": {}}),
            json!({"i:x": {}}),
            json!({"f:a": 1}),
            json!({"f:a": {"f:b": "x"}}),
        ] {
            assert!(read(&written).is_err(), "{written}");
        }
    }
}
