//! Decodes protobuf: objects of Kubernetes' own kinds, and the objects that clients send to every kind, such as options
//! and scales.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::super::text::{self, ParseError};
use super::MAGIC;
use crate::error::quote;
use crate::quota::{self, Account, Growth};
use crate::schema::{GoType, Presence, Type, Types};

const NO_MAGIC: &str =
    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
/// The largest nesting depth of messages; a Pod needs nine.
const DEPTH_LIMIT: usize = 64;

/// Decodes a protobuf object in the envelope of requests. Fields that its types do not define are ignored.
///
/// # Errors
/// The reason, if the message is malformed, its kind is not among the types, or it exceeds the limits of a document.
pub fn read(bytes: &[u8], types: &Types, account: &Account) -> Result<Value, ParseError> {
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| NO_MAGIC.to_owned())?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut envelope = Wire { bytes: body };
    while let Some((number, value)) = envelope.next()? {
        match (number, value) {
            (1, WireValue::Bytes(said)) => {
                let mut said = Wire { bytes: said };
                while let Some((number, value)) = said.next()? {
                    match (number, value) {
                        (1, WireValue::Bytes(text)) => api_version = utf8(text)?.to_owned(),
                        (2, WireValue::Bytes(text)) => kind = utf8(text)?.to_owned(),
                        _ => {}
                    }
                }
            }
            (2, WireValue::Bytes(object)) => raw = object,
            (3, WireValue::Bytes(encoding)) if !encoding.is_empty() => {
                return Err("its object is encoded once more".to_owned().into());
            }
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(id) = types.kind(group, version, &kind) else {
        let (kind, version) = (quote(&kind), quote(&api_version));
        let why = format!(
            "no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\""
        );
        return Err(why.into());
    };
    let mut reader = Reader { growth: Growth::new(account.clone()), values: 0 };
    let mut object = reader.message(types.get(id), raw, 0)?;
    reader.growth.settle()?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

struct Reader {
    growth: Growth,
    values: usize,
}

impl Reader {
    fn message(
        &mut self,
        of: Type<'_>,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Map<String, Value>, ParseError> {
        if depth > DEPTH_LIMIT {
            return Err(format!("it nests deeper than {DEPTH_LIMIT}").into());
        }
        let mut object = Map::new();
        let mut wire = Wire { bytes };
        while let Some((number, part)) = wire.next()? {
            if let Some(inlined) = of.inlined_at(number) {
                let WireValue::Bytes(bytes) = part else {
                    return Err(unexpected(inlined.name).into());
                };
                object.extend(self.message(inlined, bytes, depth + 1)?);
                continue;
            }
            let Some((name, member)) = of.numbered(number) else {
                self.count()?;
                continue;
            };
            let of_member = of.at(&member.of);
            if !object.contains_key(name) {
                self.growth.grow(quota::of_member(object.len()) + quota::of_text(name))?;
            }
            match of_member.go {
                Some(GoType::List) => {
                    let Some(of_item) = of_member.of_items() else { continue };
                    let value = self.value(of_item, name, part, depth)?.unwrap_or(Value::Null);
                    let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(list) = list {
                        self.growth.grow(quota::of_item(list.len()))?;
                        list.push(value);
                    }
                }
                Some(GoType::Map) => self.entry(of_member, name, part, depth, &mut object)?,
                _ => {
                    let value = self.value(of_member, name, part, depth)?;
                    let is_optional = member.presence != Presence::OmitEmpty;
                    if let Some(value) = value.filter(|value| is_optional || is_not_empty(value)) {
                        object.insert(name.to_owned(), value);
                    }
                }
            }
        }
        Ok(object)
    }

    fn entry(
        &mut self,
        of: Type<'_>,
        name: &str,
        part: WireValue<'_>,
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), ParseError> {
        let WireValue::Bytes(bytes) = part else { return Err(unexpected(name).into()) };
        let Some(of_value) = of.of_member("") else { return Ok(()) };
        self.count()?;
        let (mut key, mut value) = (String::new(), None);
        let mut wire = Wire { bytes };
        while let Some((number, part)) = wire.next()? {
            match (number, part) {
                (1, WireValue::Bytes(text)) => key = utf8(text)?.to_owned(),
                (2, part) => value = self.value(of_value, name, part, depth)?,
                _ => {}
            }
        }
        // An empty string is omitted on the wire.
        let empty = match of_value.go {
            Some(GoType::String | GoType::Bytes) => Value::String(String::new()),
            _ => Value::Null,
        };
        let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(map) = map {
            self.growth.grow(quota::of_member(map.len()) + quota::of_text(&key))?;
            map.insert(key, value.unwrap_or(empty));
        }
        Ok(())
    }

    /// A value of a type; `None` for an empty time, which JSON represents as null.
    fn value(
        &mut self,
        of: Type<'_>,
        name: &str,
        part: WireValue<'_>,
        depth: usize,
    ) -> Result<Option<Value>, ParseError> {
        self.count()?;
        let Some(go) = of.go else { return Err(unexpected(name).into()) };
        let value = match (go, part) {
            (GoType::String, WireValue::Bytes(bytes)) => utf8(bytes)?.into(),
            (GoType::Bytes, WireValue::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (GoType::Bool, WireValue::Number(number)) => (number != 0).into(),
            (GoType::Int32 | GoType::Int64, WireValue::Number(number)) => {
                #[allow(clippy::cast_possible_wrap)] // negative numbers are encoded like this
                Value::from(number as i64)
            }
            (GoType::Float64, WireValue::Fixed64(bits)) => f64::from_bits(bits).into(),
            (GoType::Time, WireValue::Bytes(bytes)) => return Ok(time(bytes, false)?),
            (GoType::MicroTime, WireValue::Bytes(bytes)) => return Ok(time(bytes, true)?),
            (GoType::Quantity, WireValue::Bytes(bytes)) => utf8(first_bytes(bytes)?)?.into(),
            (GoType::IntOrString, WireValue::Bytes(bytes)) => int_or_string(bytes)?,
            (GoType::Json, WireValue::Bytes(bytes)) => self.json(of.name, first_bytes(bytes)?)?,
            (GoType::Strings, WireValue::Bytes(bytes)) => {
                let mut list = Vec::new();
                let mut wire = Wire { bytes };
                while let Some((number, part)) = wire.next()? {
                    if let (1, WireValue::Bytes(text)) = (number, part) {
                        self.text(text, &mut list)?;
                    }
                }
                Value::Array(list)
            }
            (GoType::SchemaOrArray | GoType::SchemaOrStrings, WireValue::Bytes(bytes)) => {
                let (mut alone, mut list) = (Value::Null, Vec::new());
                let mut wire = Wire { bytes };
                while let Some((number, part)) = wire.next()? {
                    match (number, part) {
                        (1, part) => alone = self.schema(of, part, depth)?,
                        (2, WireValue::Bytes(text)) if go == GoType::SchemaOrStrings => {
                            self.text(text, &mut list)?;
                        }
                        (2, part) => list.push(self.schema(of, part, depth)?),
                        _ => {}
                    }
                }
                if list.is_empty() { alone } else { Value::Array(list) }
            }
            (GoType::SchemaOrBool, WireValue::Bytes(bytes)) => {
                let (mut allows, mut schema) = (false, Value::Null);
                let mut wire = Wire { bytes };
                while let Some((number, part)) = wire.next()? {
                    match (number, part) {
                        (1, WireValue::Number(number)) => allows = number != 0,
                        (2, part) => schema = self.schema(of, part, depth)?,
                        _ => {}
                    }
                }
                if schema.is_null() { allows.into() } else { schema }
            }
            (GoType::Struct, WireValue::Bytes(bytes)) => {
                Value::Object(self.message(of, bytes, depth + 1)?)
            }
            _ => return Err(unexpected(name).into()),
        };
        if let Value::String(text) = &value {
            self.growth.grow(quota::of_text(text))?;
        }
        Ok(Some(value))
    }

    /// Counts a value, or an unknown field.
    fn count(&mut self) -> Result<(), ParseError> {
        self.values += 1;
        if self.values > text::VALUES_LIMIT {
            return Err(format!("it has more than {} values", text::VALUES_LIMIT).into());
        }
        Ok(())
    }

    /// Decodes a string of a list.
    fn text(&mut self, bytes: &[u8], list: &mut Vec<Value>) -> Result<(), ParseError> {
        self.count()?;
        let text = utf8(bytes)?;
        self.growth.grow(quota::of_item(list.len()) + quota::of_text(text))?;
        list.push(text.into());
        Ok(())
    }

    /// Decodes a schema that is nested in a type with another JSON representation.
    fn schema(
        &mut self,
        of: Type<'_>,
        part: WireValue<'_>,
        depth: usize,
    ) -> Result<Value, ParseError> {
        let Some(schema) = of.of_items() else { return Ok(Value::Null) };
        let value = self.value(schema, "schema", part, depth + 1)?;
        Ok(value.unwrap_or(Value::Null))
    }

    /// Parses embedded JSON. Its values count towards the limit of the message.
    fn json(&mut self, of: &str, bytes: &[u8]) -> Result<Value, ParseError> {
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        let left = text::VALUES_LIMIT.saturating_sub(self.values);
        let parsed = text::from_json_within(bytes, left, self.growth.account());
        let parsed = parsed.map_err(|unread| match unread {
            ParseError::Malformed(why) => ParseError::Malformed(format!("{of}: {why}")),
            refused => refused,
        })?;
        self.values += parsed.values;
        // `from_json_within` has charged the memory already.
        self.growth.add_charged(parsed.tree);
        Ok(parsed.value)
    }
}

/// Whether Go encodes a value with `omitempty`.
fn is_not_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Bool(is_true) => *is_true,
        _ => true,
    }
}

/// Decodes a time; an empty message is null.
fn time(bytes: &[u8], is_exact: bool) -> Result<Option<Value>, String> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut wire = Wire { bytes };
    while let Some((number, part)) = wire.next()? {
        #[allow(clippy::cast_possible_wrap)] // negative numbers are encoded like this
        match (number, part) {
            (1, WireValue::Number(number)) => seconds = number as i64,
            (2, WireValue::Number(number)) => {
                nanoseconds = i32::try_from(number as i64).unwrap_or(0);
            }
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let nanoseconds = if is_exact { nanoseconds } else { 0 };
    let time = Timestamp::new(seconds, nanoseconds).map_err(|error| error.to_string())?;
    Ok(Some(if is_exact { format!("{time:.6}") } else { time.to_string() }.into()))
}

/// The bytes in the only field of a message.
fn first_bytes(bytes: &[u8]) -> Result<&[u8], String> {
    let mut wire = Wire { bytes };
    while let Some((number, part)) = wire.next()? {
        if let (1, WireValue::Bytes(found)) = (number, part) {
            return Ok(found);
        }
    }
    Ok(&[])
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number_, mut text) = (false, 0, String::new());
    let mut wire = Wire { bytes };
    while let Some((number, part)) = wire.next()? {
        #[allow(clippy::cast_possible_wrap)] // negative numbers are encoded like this
        match (number, part) {
            (1, WireValue::Number(number)) => is_text = number == 1,
            (2, WireValue::Number(number)) => number_ = number as i64,
            (3, WireValue::Bytes(bytes)) => text = utf8(bytes)?.to_owned(),
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number_.into() })
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text in it is not UTF-8".to_owned())
}

fn unexpected(what: &str) -> String {
    format!("a {what} in it is written as something else")
}

/// A value on the wire.
#[derive(Clone, Copy)]
enum WireValue<'a> {
    Number(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order of the wire.
struct Wire<'a> {
    bytes: &'a [u8],
}

impl<'a> Wire<'a> {
    /// The next field, with its number.
    fn next(&mut self) -> Result<Option<(u32, WireValue<'a>)>, String> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a number of a field is too large")?;
        let part = match tag & 7 {
            0 => WireValue::Number(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                WireValue::Fixed64(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| "it ends too early")?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                WireValue::Fixed32
            }
            other => return Err(format!("there is no wire type {other}")),
        };
        Ok(Some((number, part)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number in it is too long".to_owned())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or("it ends too early")?;
        self.bytes = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "\
package example.com/api/foo/v1 example.com/v1
Foo kind
 metadata 1 Meta
 data 2 map[string]string
 parts 3 []Part
 port 4 util/intstr.IntOrString
 since 5 meta/v1.Time
 replicas 6 int32 *
 ready 7 bool
 blob 8 bytes
 cpu 9 api/resource.Quantity
 - 10 Part
Meta
 name 1 string
Part
 name 1 string
 inner 2 Part
";

    /// A length-delimited field.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        out.push(u8::try_from(length).unwrap());
        out.extend(bytes);
        out
    }

    fn envelope(raw: &[u8]) -> Vec<u8> {
        let types = [field(1, b"example.com/v1"), field(2, b"Foo")].concat();
        [MAGIC, &field(1, &types), &field(2, raw)].concat()
    }

    fn read_(raw: &[u8]) -> Result<Value, String> {
        crate::codec::read_protobuf(&envelope(raw), &Types::parse(&[TABLE]).unwrap())
    }

    #[test]
    fn an_object() {
        let raw = [
            field(1, &field(1, b"a")),
            field(2, &[field(1, b"k"), field(2, b"v")].concat()),
            field(2, &field(1, b"empty")),
            field(3, &field(1, b"p")),
            field(3, &[]),
            field(4, &[8, 0, 16, 80]),
            field(5, &[8, 100]),
            vec![6 << 3, 0],
            vec![7 << 3, 0],
            field(8, b"xyz"),
            field(9, &field(1, b"100m")),
            field(10, &field(1, b"q")),
            field(15, b"unknown"),
        ];
        assert_eq!(
            read_(&raw.concat()).unwrap(),
            json!({
                "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"},
                "data": {"k": "v", "empty": ""}, "parts": [{"name": "p"}, {}], "port": 80,
                "since": "1970-01-01T00:01:40Z", "replicas": 0, "blob": "eHl6", "cpu": "100m", "name": "q",
            })
        );
        let text = field(4, &[&[8, 1][..], &field(3, b"http")].concat());
        assert_eq!(read_(&text).unwrap()["port"], "http");
        assert_eq!(read_(&field(5, &[])).unwrap().get("since"), None);
    }

    #[test]
    fn malformed_or_excessive_protobuf_is_rejected() {
        let fields = Types::parse(&[TABLE]).unwrap();
        for (bytes, expected) in [
            (b"{}".to_vec(), NO_MAGIC),
            (
                MAGIC.to_vec(),
                "no kind \"\" is registered for version \"\" in scheme \"pkg/runtime/scheme.go:111\"",
            ),
            (envelope(&[0x0a, 0xff]), "it ends too early"),
            (envelope(&[0xff; 11]), "a number in it is too long"),
            (envelope(&[0x0b]), "there is no wire type 3"),
            (envelope(&[0x08, 1]), "a metadata in it is written as something else"),
            (envelope(&field(1, &field(1, b"\xff"))), "a text in it is not UTF-8"),
        ] {
            assert_eq!(crate::codec::read_protobuf(&bytes, &fields).unwrap_err(), expected);
        }
        let mut deep = Vec::new();
        for _ in 0..40 {
            deep = field(2, &deep);
        }
        assert!(read_(&field(3, &deep)).is_ok());
        // Unknown fields, keys and empty strings count towards the limit, too.
        for many in [[0x78, 0].repeat(60_000), field(2, &[]).repeat(60_000)] {
            assert!(read_(&many).unwrap_err().starts_with("it has more than"));
        }
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
            let _ = read_(&bytes);
        }
    }
}
