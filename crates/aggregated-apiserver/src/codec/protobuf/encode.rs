//! Encodes objects as protobuf, the preferred encoding of Go clients.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::MAGIC;
use crate::object::{Tree, to_json};
use crate::schema::{GoType, Type, TypeId, Types};

/// The wire type of a length-delimited value.
const DELIMITED: u8 = 2;
const VARINT: u8 = 0;
const FIXED64: u8 = 1;

/// Encodes a JSON object as protobuf, in the envelope of responses. Returns `None` if its kind is not among the types.
pub fn to_protobuf(object: &Tree, types: &Types) -> Option<Vec<u8>> {
    let (types_of_object, id) = kind(object, types)?;
    let raw = message(types.get(id), object);
    Some(envelope(&types_of_object, &raw))
}

/// The message of an object without its envelope, for a list.
fn message(of: Type<'_>, object: &Tree) -> Vec<u8> {
    let mut out = Vec::new();
    write_message(of, object, &mut out);
    out
}

/// A watch event, with its length in front. Returns `None` if the kind of its object is not among the types.
pub fn event(event_type: &str, object: &Tree, types: &Types) -> Option<Vec<u8>> {
    let object = to_protobuf(object, types)?;
    let mut raw = Vec::with_capacity(object.len() + 8);
    write_bytes(1, &object, &mut raw);
    let mut event = Vec::with_capacity(raw.len() + 24);
    write_bytes(1, event_type.as_bytes(), &mut event);
    write_bytes(2, &raw, &mut event);
    let length = u32::try_from(event.len()).ok()?;
    Some([&length.to_be_bytes()[..], &event].concat())
}

/// The bytes before and after the items of a list, which have `items` bytes together. A message starts with its length.
pub fn list_frame(
    api_version: &str,
    kind: &str,
    metadata: &Tree,
    items: usize,
    types: &Types,
) -> (Vec<u8>, Vec<u8>) {
    let mut said = Vec::new();
    if let Some(of) = types.named("meta/v1", "ListMeta") {
        write_bytes(1, &message(of, metadata), &mut said);
    }
    let mut head = MAGIC.to_vec();
    write_bytes(1, &type_meta(api_version, kind), &mut head);
    write_tag(2, DELIMITED, &mut head);
    write_varint((said.len() + items) as u64, &mut head);
    head.extend_from_slice(&said);
    let mut tail = Vec::new();
    write_end(&mut tail);
    (head, tail)
}

/// An item of a list.
pub fn item(of: Type<'_>, object: &Tree, items: &mut Vec<u8>) {
    write_bytes(2, &message(of, object), items);
}

/// The apiVersion and kind of an object as a message, and its type.
fn kind(object: &Tree, types: &Types) -> Option<(Vec<u8>, TypeId)> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let id = types.kind(group, version, kind)?;
    Some((type_meta(api_version, kind), id))
}

fn type_meta(api_version: &str, kind: &str) -> Vec<u8> {
    let mut said = Vec::new();
    write_bytes(1, api_version.as_bytes(), &mut said);
    write_bytes(2, kind.as_bytes(), &mut said);
    said
}

fn envelope(types: &[u8], raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + types.len() + 32);
    out.extend_from_slice(MAGIC);
    write_bytes(1, types, &mut out);
    write_bytes(2, raw, &mut out);
    write_end(&mut out);
    out
}

/// Same as Go: `contentEncoding` and `contentType` are empty.
fn write_end(out: &mut Vec<u8>) {
    write_bytes(3, &[], out);
    write_bytes(4, &[], out);
}

fn write_message(of: Type<'_>, object: &Tree, out: &mut Vec<u8>) {
    for (number, name, member) in of.members.by_number() {
        if let Some(value) = object.get(name) {
            write_member(of.at(&member.of), number, value, out);
        }
    }
    for (number, embedded) in of.inlined_types() {
        delimited(number, out, |out| write_message(embedded, object, out));
    }
}

fn write_member(of: Type<'_>, number: u32, value: &Value, out: &mut Vec<u8>) {
    match (of.go, value) {
        (Some(GoType::List), Value::Array(items)) => {
            let Some(of) = of.of_items() else { return };
            for item in items {
                // A null in a list keeps its position.
                match item {
                    Value::Null => write_bytes(number, &[], out),
                    item => write_value(of, number, item, out),
                }
            }
        }
        (Some(GoType::Map), Value::Object(members)) => {
            for (key, value) in members {
                let Some(of) = of.of_member(key) else { continue };
                delimited(number, out, |out| {
                    write_bytes(1, key.as_bytes(), out);
                    write_value(of, 2, value, out);
                });
            }
        }
        _ => write_value(of, number, value, out),
    }
}

/// Encodes one value of a type. A value of another type is omitted, because objects match their types here.
fn write_value(of: Type<'_>, number: u32, value: &Value, out: &mut Vec<u8>) {
    match (of.go, value) {
        (Some(GoType::Json), value) => {
            delimited(number, out, |out| write_bytes(1, to_json(value).as_bytes(), out));
        }
        (_, Value::Null) => {}
        (Some(GoType::String), Value::String(text)) => write_bytes(number, text.as_bytes(), out),
        (Some(GoType::Bytes), Value::String(text)) => {
            write_bytes(number, &STANDARD.decode(text).unwrap_or_default(), out);
        }
        (Some(GoType::Bool), Value::Bool(value)) => {
            write_tag(number, VARINT, out);
            out.push(u8::from(*value));
        }
        (Some(GoType::Int32 | GoType::Int64), Value::Number(value)) => {
            write_tag(number, VARINT, out);
            write_varint(integer(value), out);
        }
        (Some(GoType::Float64), Value::Number(value)) => {
            write_tag(number, FIXED64, out);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        (Some(GoType::Time | GoType::MicroTime), Value::String(text)) => {
            let Ok(time) = text.parse::<Timestamp>() else { return };
            delimited(number, out, |out| {
                write_tag(1, VARINT, out);
                write_varint(time.as_second().cast_unsigned(), out);
                write_tag(2, VARINT, out);
                write_varint(i64::from(time.subsec_nanosecond()).cast_unsigned(), out);
            });
        }
        (Some(GoType::Quantity), Value::String(text)) => {
            delimited(number, out, |out| write_bytes(1, text.as_bytes(), out));
        }
        (Some(GoType::IntOrString), value) => delimited(number, out, |out| {
            write_tag(1, VARINT, out);
            out.push(u8::from(value.is_string()));
            write_tag(2, VARINT, out);
            write_varint(value.as_i64().unwrap_or_default().cast_unsigned(), out);
            write_bytes(3, value.as_str().unwrap_or_default().as_bytes(), out);
        }),
        (Some(GoType::Strings), Value::Array(items)) => {
            delimited(number, out, |out| write_texts(1, items, out));
        }
        (Some(GoType::SchemaOrArray | GoType::SchemaOrStrings), Value::Array(items)) => {
            delimited(number, out, |out| match of.go {
                Some(GoType::SchemaOrStrings) => write_texts(2, items, out),
                _ => {
                    let Some(of) = of.of_items() else { return };
                    items.iter().for_each(|item| write_value(of, 2, item, out));
                }
            });
        }
        (Some(GoType::SchemaOrArray | GoType::SchemaOrStrings), schema) => {
            delimited(number, out, |out| {
                if let Some(of) = of.of_items() {
                    write_value(of, 1, schema, out);
                }
            });
        }
        (Some(GoType::SchemaOrBool), value) => delimited(number, out, |out| {
            write_tag(1, VARINT, out);
            out.push(u8::from(*value != Value::Bool(false)));
            if let (Some(of), Value::Object(_)) = (of.of_items(), value) {
                write_value(of, 2, value, out);
            }
        }),
        (Some(GoType::Struct), Value::Object(members)) => {
            delimited(number, out, |out| write_message(of, members, out));
        }
        _ => {}
    }
}

fn write_texts(number: u32, items: &[Value], out: &mut Vec<u8>) {
    for item in items {
        write_bytes(number, item.as_str().unwrap_or_default().as_bytes(), out);
    }
}

/// An integer as it is encoded: a negative number as a large one.
fn integer(number: &serde_json::Number) -> u64 {
    number.as_i64().map(i64::cast_unsigned).or_else(|| number.as_u64()).unwrap_or_default()
}

fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_tag(number, DELIMITED, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes the output of `write`, with its length in front.
fn delimited(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_tag(number, DELIMITED, out);
    let start = out.len();
    write(out);
    // The output is moved by the size of its length, once for each level.
    let mut length = Vec::with_capacity(5);
    write_varint((out.len() - start) as u64, &mut length);
    out.splice(start..start, length);
}

fn write_tag(number: u32, wire_type: u8, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | u64::from(wire_type), out);
}

fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        #[allow(clippy::cast_possible_truncation)] // it is masked
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)] // it is less than 0x80
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::read_protobuf;
    use serde_json::json;

    #[test]
    fn protobuf_objects_survive_encoding_and_decoding() {
        const TABLE: &str = "\
package example.com/api/foo/v1 example.com/v1
Extra = strings
Foo kind
 metadata 1 meta/v1.ObjectMeta +
 parts 2 []Part
 data 3 map[string]bytes
 extra 4 map[string]Extra
 - 5 Source
 seen 6 meta/v1.MicroTime *
 ratio 7 float64
 count 8 int32 *
 schema 9 JSONSchemaPropsOrBool
 any 10 pkg/runtime.RawExtension
JSONSchemaProps
 type 1 string
 items 2 JSONSchemaPropsOrArray
JSONSchemaPropsOrArray = schema-or-array
JSONSchemaPropsOrBool = schema-or-bool
Part
 name 1 string
 port 2 util/intstr.IntOrString
 cpu 3 api/resource.Quantity
Source
 path 1 string
";
        let types = Types::parse(&[TABLE]).unwrap();
        types.check().unwrap();
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {"name": "a", "labels": {"b": "", "c": "d"}, "generation": -1},
            "parts": [{"name": "p", "port": 80, "cpu": "100m"}, {"port": "http"}, {}],
            "data": {"k": "/+8="}, "extra": {"e": ["x", "y"]}, "path": "/p",
            "seen": "2026-01-02T03:04:05.678900Z", "ratio": -1.5, "count": 0,
            "schema": {"items": [{"type": "string"}, {"items": {"type": "x"}}]},
            "any": {"b": [1, null, {"c": 2.5}]},
        });
        let written = to_protobuf(object.as_object().unwrap(), &types).unwrap();
        assert_eq!(read_protobuf(&written, &types).unwrap(), object);
        assert_eq!(to_protobuf(json!({"kind": "Bar"}).as_object().unwrap(), &types), None);
    }
}
