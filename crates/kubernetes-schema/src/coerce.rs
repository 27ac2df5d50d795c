//! Coercion: converts an object of a Go type as if Go had decoded and encoded it. Unknown fields and fields that Go
//! omits are dropped, and times and quantities are normalized. Values of a wrong type are rejected with the messages of
//! Go.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD, STANDARD};
use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Number, Value, json};

use super::node::{GoType, Presence, Type};
use super::{Malformed, Quantity};
use crate::error::{Path, go_type as named, quote};
use crate::object::Tree;
use crate::object::metadata::UNKNOWN_LIMIT;
use crate::quota;

/// The largest total size of added fields, in bytes of memory.
const FILLED_IN_LIMIT: usize = 4 << 20;

/// Converts an object as Go does. Returns the paths of dropped fields.
///
/// # Errors
/// A message of Go's decoder about a value of a wrong type.
pub fn coerce(of: Type<'_>, tree: &mut Tree) -> Result<Vec<String>, String> {
    let types: Vec<(String, Value)> = ["apiVersion", "kind"]
        .into_iter()
        .filter_map(|name| tree.remove(name).map(|value| (name.to_owned(), value)))
        .collect();
    let coerced = coerce_members(of, &Path::Root, tree, Malformed::Refused);
    tree.extend(types);
    coerced
}

/// Converts a part of an object that Go decodes separately. The part is at `path`, and messages describe only the part.
/// `malformed` determines whether fields of a wrong type are dropped.
///
/// # Errors
/// The errors of `coerce`.
pub fn coerce_members(
    of: Type<'_>,
    path: &Path<'_>,
    tree: &mut Tree,
    malformed: Malformed,
) -> Result<Vec<String>, String> {
    let mut coercion = Coercion { unknown: Vec::new(), mismatch: None, filled_in: 0 };
    let at = At { path, go: &GoPath::Root };
    match malformed {
        Malformed::Refused => coercion.members(of, at, tree)?,
        Malformed::Dropped => coercion.well_formed_members(of, at, tree),
    }
    match coercion.mismatch {
        Some(mismatch) => Err(mismatch),
        None => Ok(coercion.unknown),
    }
}

struct Coercion {
    unknown: Vec<String>,
    /// The message about the first value of a wrong type.
    mismatch: Option<String>,
    /// The total size of added fields, in bytes.
    filled_in: usize,
}

/// The position of a value: its path with indexes, and its path in messages of Go. Both are formatted only for
/// messages, because an object can have many values.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a Path<'a>,
    go: &'a GoPath<'a>,
}

/// The field names on the way to a value. Go shows neither indexes nor keys.
enum GoPath<'a> {
    Root,
    /// A field, and the embedded structs that contain it.
    Member(&'a GoPath<'a>, &'a [&'a str], &'a str),
}

impl GoPath<'_> {
    fn text(&self) -> String {
        let mut steps = Vec::new();
        let mut at = self;
        while let GoPath::Member(parent, through, name) = at {
            steps.push(*name);
            steps.extend(through.iter().rev());
            at = parent;
        }
        steps.reverse();
        steps.join(".")
    }
}

impl Coercion {
    fn members(&mut self, of: Type<'_>, at: At<'_>, tree: &mut Tree) -> Result<(), String> {
        let mut fault = None;
        tree.retain(|key, value| {
            // After an error, no more fields are dropped.
            if fault.is_some() {
                return true;
            }
            self.member(of, at, key, value).unwrap_or_else(|why| {
                fault = Some(why);
                true
            })
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        self.fill_in(of, tree)
    }

    /// Adds the missing fields that Go always encodes.
    fn fill_in(&mut self, of: Type<'_>, tree: &mut Tree) -> Result<(), String> {
        let before = tree.len();
        let filled_in = fill_in(of, tree);
        if tree.len() > before {
            self.count(filled_in)?;
        }
        Ok(())
    }

    fn count(&mut self, filled_in: usize) -> Result<(), String> {
        self.filled_in += filled_in;
        if self.filled_in > FILLED_IN_LIMIT {
            return Err(format!(
                "what it leaves out takes more than {FILLED_IN_LIMIT} bytes of memory when it is filled in"
            ));
        }
        Ok(())
    }

    /// Converts fields, and drops each field that contains a value of a wrong type.
    fn well_formed_members(&mut self, of: Type<'_>, at: At<'_>, tree: &mut Tree) {
        tree.retain(|key, value| {
            let stays = self.member(of, at, key, value).unwrap_or(false);
            self.mismatch.take().is_none() && stays
        });
        let _ = self.fill_in(of, tree);
    }

    /// Converts a field. Returns whether Go encodes it.
    fn member(
        &mut self,
        of: Type<'_>,
        at: At<'_>,
        key: &str,
        value: &mut Value,
    ) -> Result<bool, String> {
        let path = Path::Member(at.path, key);
        let Some((member, of_member)) = of.member(key) else {
            if self.unknown.len() < UNKNOWN_LIMIT {
                self.unknown.push(path.to_string());
            }
            return Ok(false);
        };
        if value.is_null() {
            return Ok(false);
        }
        let go = GoPath::Member(at.go, &member.embedded_structs, key);
        let at = At { path: &path, go: &go };
        self.value(of_member, &member.go_type, of.name, at, value)?;
        // Go encodes an empty list as null, if it always encodes the field.
        if member.presence == Presence::Required
            && matches!(value, Value::Array(items) if items.is_empty())
        {
            *value = Value::Null;
        }
        Ok(member.presence != Presence::OmitEmpty || is_not_empty(value))
    }

    /// Converts a value of a type. `owner` is the name of the type that contains the value.
    fn value(
        &mut self,
        of: Type<'_>,
        go_type: &str,
        owner: &str,
        at: At<'_>,
        value: &mut Value,
    ) -> Result<(), String> {
        let Some(go) = of.go else { return Ok(()) };
        if value.is_null() {
            *value = zero_value(of);
            return self.count(quota::of_value(value));
        }
        match (go, &mut *value) {
            (GoType::String, Value::String(_))
            | (GoType::Bool, Value::Bool(_))
            | (GoType::Float64, Value::Number(_))
            | (GoType::IntOrString, Value::String(_))
            | (GoType::Json, _) => {}
            (GoType::Struct, Value::Object(tree)) => self.members(of, at, tree)?,
            (GoType::List, Value::Array(items)) => {
                let go_type = go_type.strip_prefix("[]").unwrap_or(go_type);
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path::Item(at.path, index);
                    if let Some(of) = of.of_items() {
                        self.value(of, go_type, owner, At { path: &path, ..at }, item)?;
                    }
                }
            }
            (GoType::Strings, Value::Array(items)) => self.strings(items, owner, at),
            (GoType::Map, Value::Object(members)) => {
                let go_type = go_type.split_once(']').map_or(go_type, |(_, value)| value);
                for (key, member) in members.iter_mut() {
                    let path = Path::Member(at.path, key);
                    if let Some(of) = of.of_member(key) {
                        self.value(of, go_type, owner, At { path: &path, ..at }, member)?;
                    }
                }
            }
            (GoType::Int32, Value::Number(number)) => {
                if number.as_i64().is_none_or(|number| i32::try_from(number).is_err()) {
                    self.note(&shown(number), owner, at, go_type);
                }
            }
            (GoType::Int64, Value::Number(number)) => {
                if !number.is_i64() {
                    self.note(&shown(number), owner, at, go_type);
                }
            }
            (GoType::Bytes, Value::String(text)) => match bytes(text) {
                Ok(written) => *text = written,
                Err(why) => {
                    self.mismatch.get_or_insert(why);
                }
            },
            // Go also decodes a list of numbers as bytes.
            (GoType::Bytes, Value::Array(items)) => {
                for item in items.iter().filter(|item| !is_byte(item)) {
                    let found = match item {
                        Value::Number(number) => format!("number {number}"),
                        other => crate::error::go_type(other).to_owned(),
                    };
                    self.note(&found, owner, at, "uint8");
                }
                // Null is decoded as zero.
                let byte = |item: &Value| u8::try_from(item.as_u64().unwrap_or_default()).ok();
                let bytes = items.iter().filter_map(byte);
                *value = STANDARD.encode(bytes.collect::<Vec<u8>>()).into();
            }
            (GoType::Time | GoType::MicroTime, Value::String(text)) => {
                *text = time(text, go == GoType::MicroTime)?;
                // Go encodes the zero time as null.
                if text.starts_with("0001-01-01T00:00:00") {
                    *value = Value::Null;
                }
            }
            (GoType::Time | GoType::MicroTime, other) => {
                let found = named(other);
                return Err(format!("json: cannot unmarshal {found} into Go value of type string"));
            }
            (GoType::Quantity, other) => {
                let text = match &*other {
                    Value::String(text) => text.trim().to_owned(),
                    other => other.to_string(),
                };
                *other = Quantity::parse(&text)?.to_string().into();
            }
            (GoType::IntOrString, Value::Number(number)) => {
                if number.as_i64().is_none_or(|number| i32::try_from(number).is_err()) {
                    return Err(unfit(&shown(number), owner, at, "int32"));
                }
            }
            (GoType::IntOrString, other) => return Err(unfit(named(other), owner, at, "int32")),
            (GoType::SchemaOrArray | GoType::SchemaOrBool | GoType::SchemaOrStrings, value) => {
                self.schema(of, owner, at, value)?;
            }
            (_, other) => self.note(named(other), owner, at, go_type),
        }
        Ok(())
    }

    /// Converts a schema, a list of schemas, or another value that is allowed in its place.
    fn schema(
        &mut self,
        of: Type<'_>,
        owner: &str,
        at: At<'_>,
        value: &mut Value,
    ) -> Result<(), String> {
        let Some(schema) = of.of_items() else { return Ok(()) };
        let go_type = "v1.JSONSchemaProps";
        match (of.go, &mut *value) {
            (_, Value::Object(_)) => self.value(schema, go_type, owner, at, value),
            (Some(GoType::SchemaOrArray), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path::Item(at.path, index);
                    self.value(schema, go_type, owner, At { path: &path, ..at }, item)?;
                }
                Ok(())
            }
            (Some(GoType::SchemaOrStrings), Value::Array(items)) => {
                self.strings(items, owner, at);
                Ok(())
            }
            (Some(GoType::SchemaOrBool), Value::Bool(_)) => Ok(()),
            (Some(GoType::SchemaOrBool), _) => Err("boolean or JSON schema expected".to_owned()),
            // Go decodes any other value as nil.
            (_, other) => {
                *other = Value::Null;
                Ok(())
            }
        }
    }

    fn strings(&mut self, items: &mut [Value], owner: &str, at: At<'_>) {
        let found = items.iter().find(|item| !item.is_string() && !item.is_null());
        if let Some(found) = found {
            self.note(named(found), owner, at, "string");
        }
        for item in items.iter_mut().filter(|item| item.is_null()) {
            *item = "".into();
        }
    }

    fn note(&mut self, found: &str, owner: &str, at: At<'_>, go_type: &str) {
        self.mismatch.get_or_insert_with(|| unfit(found, owner, at, go_type));
    }
}

/// Adds the missing fields that Go always encodes. Returns their size in bytes.
fn fill_in(of: Type<'_>, tree: &mut Tree) -> usize {
    let mut filled_in = 0;
    for (name, member) in of.members.iter() {
        if member.presence == Presence::Required && !tree.contains_key(name) {
            let absent =
                if member.is_pointer { Value::Null } else { zero_value(of.at(&member.of)) };
            filled_in +=
                quota::of_member(tree.len()) + quota::of_text(name) + quota::of_value(&absent);
            tree.insert(name.to_owned(), absent);
        }
    }
    filled_in
}

/// Returns Go's encoding of the zero value of a type.
fn zero_value(of: Type<'_>) -> Value {
    match of.go {
        Some(GoType::String | GoType::Bytes) => json!(""),
        Some(GoType::Bool) => json!(false),
        Some(GoType::Int32 | GoType::Int64 | GoType::Float64 | GoType::IntOrString) => json!(0),
        Some(GoType::Quantity) => json!("0"),
        Some(GoType::Struct) => {
            let mut tree = Tree::new();
            fill_in(of, &mut tree);
            tree.into()
        }
        _ => Value::Null,
    }
}

fn unfit(found: &str, owner: &str, at: At<'_>, go_type: &str) -> String {
    let path = at.go.text();
    format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {go_type}")
}

/// Formats a number for messages. An integer that exceeds 64 bits is shown with all of its digits.
fn shown(number: &Number) -> String {
    /// The smallest number that Go shows with an exponent.
    const EXPONENT: f64 = 1e21;
    let is_beyond =
        |number: &f64| number.fract() == 0.0 && (i64::MAX as f64..EXPONENT).contains(&number.abs());
    let beyond = number.as_f64().filter(|found| number.is_f64() && is_beyond(found));
    match beyond {
        Some(number) => format!("number {number}"),
        None => format!("number {number}"),
    }
}

/// Whether a value is not empty, so that Go does not omit it.
fn is_not_empty(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// Returns the position after valid padding, or the position of invalid padding.
fn end_of_padding(text: &str) -> usize {
    let first = text.find('=').unwrap_or(text.len());
    match first % 4 {
        3 => first + 1,
        2 if text[first..].starts_with("==") => first + 2,
        _ => first,
    }
}

fn is_byte(value: &Value) -> bool {
    value.is_null() || value.as_u64().is_some_and(|number| number <= u64::from(u8::MAX))
}

/// Decodes base64 and encodes the bytes again.
fn bytes(text: &str) -> Result<String, String> {
    let bare: String = text.chars().filter(|c| !['\r', '\n'].contains(c)).collect();
    // Unused trailing bits are ignored, as in Go.
    let lenient = PAD.with_decode_allow_trailing_bits(true);
    match GeneralPurpose::new(&alphabet::STANDARD, lenient).decode(&bare) {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(error) => {
            let at = match error {
                // Go counts line breaks too.
                base64::DecodeError::InvalidByte(at, byte) if byte != b'=' => {
                    let digits = text.char_indices().filter(|(_, c)| !['\r', '\n'].contains(c));
                    digits.map(|(at, _)| at).nth(at).unwrap_or(text.len())
                }
                // The position of the incomplete group of four digits.
                _ if !bare.contains('=') => text.len() - bare.len() % 4,
                _ => end_of_padding(&bare),
            };
            Err(format!("illegal base64 data at input byte {at}"))
        }
    }
}

/// Parses a time and formats it again.
fn time(text: &str, is_exact: bool) -> Result<String, String> {
    let layout =
        if is_exact { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let fault = |why: String| format!("parsing time {} as {}{why}", quote(text), quote(layout));
    let cannot = |rest: &str, what: &str| {
        fault(format!(": cannot parse {} as {}", quote(rest), quote(what)))
    };
    let mut rest = text;
    for (width, what) in [
        (4, "2006"),
        (1, "-"),
        (2, "01"),
        (1, "-"),
        (2, "02"),
        (1, "T"),
        (2, "15"),
        (1, ":"),
        (2, "04"),
        (1, ":"),
        (2, "05"),
    ] {
        let taken = rest.get(..width).filter(|taken| match width {
            1 => *taken == what,
            _ => taken.bytes().all(|byte| byte.is_ascii_digit()),
        });
        if taken.is_none() {
            return Err(cannot(rest, what));
        }
        rest = &rest[width..];
    }
    let fraction = rest
        .strip_prefix('.')
        .map_or(0, |digits| 1 + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()));
    if is_exact && fraction != 7 {
        return Err(cannot(rest, ".000000"));
    }
    rest = &rest[fraction..];
    let is_zone = rest == "Z"
        || (rest.len() == 6 && rest.starts_with(['+', '-']) && rest.as_bytes()[3] == b':');
    if !is_zone {
        return Err(cannot(rest, "Z07:00"));
    }
    let out_of_range = || fault(": day out of range".to_owned());
    let Ok(time) = text.parse::<Timestamp>() else {
        // A date that exceeds the supported range is not changed.
        let clock = text.strip_suffix('Z').ok_or_else(out_of_range)?;
        return clock.parse::<DateTime>().map(|_| text.to_owned()).map_err(|_| out_of_range());
    };
    let whole = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time);
    Ok(if is_exact { format!("{time:.6}") } else { whole(time).to_string() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Types;
    use super::*;

    const TABLE: &str = "\
package example.com/api/foo/v1 foo/v1
Foo kind
 metadata 1 Meta +
 spec 2 Spec +
 status 3 Status +
Meta
 name 1 string
 since 2 meta/v1.Time
More
 ready 1 bool
Part
 name 1 string +
 inner 2 Spec *
Spec
 replicas 1 int32 *
 parts 2 []Part
 policy 3 string go=v1.Policy
 labels 4 map[string]string
 port 5 util/intstr.IntOrString
 cpu 6 api/resource.Quantity *
 seen 7 meta/v1.MicroTime +
 blob 8 map[string]bytes
 - 9 More
Status
 count 1 int32
";

    fn shaped(value: Value) -> Result<(Value, Vec<String>), String> {
        let types = Arc::new(Types::parse(&[TABLE])?);
        types.check()?;
        let schema = types.schema("foo", "v1", "Foo").unwrap();
        let mut tree = value.as_object().unwrap().clone();
        let unknown = coerce(schema.root(), &mut tree)?;
        Ok((tree.into(), unknown))
    }

    #[test]
    fn typed_objects_are_coerced_as_in_go() {
        let (value, unknown) = shaped(json!({
            "apiVersion": "v1", "kind": "Foo", "metadata": {"name": "", "x": 1},
            "spec": {
                "replicas": 0, "parts": [null, {"name": "a", "y": 1}], "policy": "", "labels": {"a": null},
                "cpu": 0.5, "ready": false, "port": 0, "blob": {"k": "YQ=="},
            },
            "extra": true,
        }))
        .unwrap();
        assert_eq!(
            value,
            json!({
                "apiVersion": "v1", "kind": "Foo", "metadata": {}, "status": {},
                "spec": {
                    "replicas": 0, "parts": [{"name": ""}, {"name": "a"}], "labels": {"a": ""},
                    "cpu": "500m", "seen": null, "blob": {"k": "YQ=="},
                },
            })
        );
        assert_eq!(unknown, ["extra", "metadata.x", "spec.parts[1].y"]);
    }

    #[test]
    fn type_mismatches_have_the_unmarshal_errors_of_go() {
        let into = |what: &str| format!("json: cannot unmarshal {what}");
        for (spec, expected) in [
            (json!("x"), into("string into Go struct field Foo.spec of type v1.Spec")),
            (json!({"parts": {}}), into("object into Go struct field Spec.spec.parts of type []v1.Part")),
            (json!({"parts": [1]}), into("number into Go struct field Spec.spec.parts of type v1.Part")),
            (
                json!({"parts": [{"name": 1}]}),
                into("number into Go struct field Part.spec.parts.name of type string"),
            ),
            (json!({"policy": []}), into("array into Go struct field Spec.spec.policy of type v1.Policy")),
            (
                json!({"replicas": 5.5}),
                into("number 5.5 into Go struct field Spec.spec.replicas of type int32"),
            ),
            (json!({"labels": {"a": 1}}), into("number into Go struct field Spec.spec.labels of type string")),
            (json!({"blob": {"a": "no base64"}}), "illegal base64 data at input byte 2".to_owned()),
            (json!({"blob": {"a": "YWI==="}}), "illegal base64 data at input byte 4".to_owned()),
            (json!({"blob": {"a": "YWJj\nYWJjY"}}), "illegal base64 data at input byte 9".to_owned()),
            (json!({"blob": {"a": "YWJj\nY!Jj"}}), "illegal base64 data at input byte 6".to_owned()),
            (json!({"seen": 5}), into("number into Go value of type string")),
            (
                json!({"seen": "2020-01-01T00:00:00.5Z"}),
                "parsing time \"2020-01-01T00:00:00.5Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \".5Z\" as \".000000\"".to_owned(),
            ),
        ] {
            assert_eq!(shaped(json!({"kind": "Foo", "spec": spec})).unwrap_err(), expected);
        }
        // The error of a type's own decoder precedes an error about a wrong type.
        assert!(
            shaped(json!({"spec": {"replicas": "x", "cpu": "much"}}))
                .unwrap_err()
                .starts_with("quantities")
        );
    }
}
