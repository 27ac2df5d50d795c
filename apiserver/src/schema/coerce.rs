//! What becomes of an object of Kubernetes' own kinds when Go reads it and
//! writes it down again: what is unknown is dropped, nothing counts as absent
//! where it does in Go, times and quantities are written in one way, and what has
//! another type is refused in Go's words.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD, STANDARD};
use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Value, json};

use super::quantity::Quantity;
use super::types::{Field, FieldCount, FieldTable, Message, Presence};
use crate::error::{Path, go_type as named, quote};
use crate::object::Tree;

/// So many unknown members are named.
const UNKNOWN_LIMIT: usize = 100;

/// Gives an object the shape that it has in Go; `message` is what it is. Answers
/// with the paths of what was dropped.
///
/// # Errors
/// What has another type, in the words of Go's decoder.
pub fn give_shape(
    table: &FieldTable,
    message: &str,
    tree: &mut Tree,
) -> Result<Vec<String>, String> {
    let mut shaping = Shaping { table, unknown: Vec::new(), mismatch: None };
    let Some(message) = table.message(message) else { return Ok(Vec::new()) };
    let types: Vec<(String, Value)> = ["apiVersion", "kind"]
        .into_iter()
        .filter_map(|name| tree.remove(name).map(|value| (name.to_owned(), value)))
        .collect();
    let name = types.iter().find(|(name, _)| name == "kind").and_then(|(_, kind)| kind.as_str());
    let name = name.unwrap_or_default().to_owned();
    shaping.members(message, &name, At { path: &Path::Root, go: &GoPath::Root }, tree)?;
    tree.extend(types);
    match shaping.mismatch {
        Some(mismatch) => Err(mismatch),
        None => Ok(shaping.unknown),
    }
}

struct Shaping<'a> {
    table: &'a FieldTable,
    unknown: Vec<String>,
    /// The first value of another type.
    mismatch: Option<String>,
}

/// Where a value is: with its indices, and as Go says it. Both are written down
/// only when somebody is told, however many values there are.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a Path<'a>,
    go: &'a GoPath<'a>,
}

/// The names on the way to a value; Go says nothing of indices and keys.
enum GoPath<'a> {
    Root,
    /// A member, and the messages that bring it along.
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

impl Shaping<'_> {
    fn members(
        &mut self,
        message: &Message,
        name: &str,
        at: At<'_>,
        tree: &mut Tree,
    ) -> Result<(), String> {
        let table = self.table;
        let mut fault = None;
        tree.retain(|key, value| {
            let Some((field, through)) = table.field(message, key) else {
                if self.unknown.len() < UNKNOWN_LIMIT {
                    self.unknown.push(Path::Member(at.path, key).to_string());
                }
                return false;
            };
            if fault.is_some() || value.is_null() {
                return false;
            }
            let path = Path::Member(at.path, key);
            let go = GoPath::Member(at.go, &through, &field.name);
            match self.field(field, name, At { path: &path, go: &go }, value) {
                Ok(()) => field.presence != Presence::Something || is_something(value),
                Err(why) => {
                    fault = Some(why);
                    false
                }
            }
        });
        for field in table.fields(message) {
            if field.presence == Presence::Always && !tree.contains_key(&field.name) {
                tree.insert(field.name.clone(), self.nothing(field));
            }
        }
        fault.map_or(Ok(()), Err)
    }

    fn field(
        &mut self,
        field: &Field,
        of: &str,
        at: At<'_>,
        value: &mut Value,
    ) -> Result<(), String> {
        let go_type = field.go_type.as_str();
        match (field.count, &mut *value) {
            (FieldCount::List, Value::Array(items)) => {
                let go_type = go_type.strip_prefix("[]").unwrap_or(go_type);
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path::Item(at.path, index);
                    self.value(&field.of, go_type, of, At { path: &path, ..at }, item)?;
                }
            }
            (FieldCount::Map, Value::Object(members)) => {
                let go_type = go_type.split_once(']').map_or(go_type, |(_, value)| value);
                for (key, member) in members.iter_mut() {
                    let path = Path::Member(at.path, key);
                    self.value(&field.of, go_type, of, At { path: &path, ..at }, member)?;
                }
            }
            (FieldCount::List | FieldCount::Map, other) => self.differs(other, of, at, go_type),
            (FieldCount::One | FieldCount::Inline, value) => {
                self.value(&field.of, go_type, of, at, value)?;
            }
        }
        // Where a list is always there, an empty one is none.
        if field.presence == Presence::Always
            && matches!(value, Value::Array(items) if items.is_empty())
        {
            *value = Value::Null;
        }
        Ok(())
    }

    /// One value of a type; `of` is the message that it is in.
    fn value(
        &mut self,
        wanted: &str,
        go_type: &str,
        of: &str,
        at: At<'_>,
        value: &mut Value,
    ) -> Result<(), String> {
        if value.is_null() {
            *value = self.nothing_of(wanted);
            return Ok(());
        }
        match (wanted, &mut *value) {
            ("string", Value::String(_))
            | ("bool", Value::Bool(_))
            | ("double", Value::Number(_)) => {}
            ("int32" | "int64" | "uint32" | "uint64", Value::Number(number)) => {
                let fits = match wanted {
                    "int32" => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                    "uint32" => number.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
                    "uint64" => number.is_u64(),
                    _ => number.is_i64(),
                };
                if !fits {
                    self.note(&format!("number {number}"), of, at, go_type);
                }
            }
            ("bytes", Value::String(text)) => match bytes(text) {
                Ok(written) => *text = written,
                Err(why) => {
                    self.mismatch.get_or_insert(why);
                }
            },
            ("Time" | "MicroTime", Value::String(text)) => {
                *text = time(text, wanted == "MicroTime")?;
                // The first moment of all is none.
                if text.starts_with("0001-01-01T00:00:00") {
                    *value = Value::Null;
                }
            }
            ("Time" | "MicroTime", other) => {
                let found = named(other);
                return Err(format!("json: cannot unmarshal {found} into Go value of type string"));
            }
            ("Quantity", other) => {
                let text = match &*other {
                    Value::String(text) => text.trim().to_owned(),
                    other => other.to_string(),
                };
                *other = Quantity::parse(&text)?.to_string().into();
            }
            ("IntOrString", Value::String(_)) => {}
            ("IntOrString", Value::Number(number)) => {
                if number.as_i64().is_none_or(|number| i32::try_from(number).is_err()) {
                    return Err(unfit(&format!("number {number}"), of, at, "int32"));
                }
            }
            ("IntOrString", other) => return Err(unfit(named(other), of, at, "int32")),
            ("FieldsV1" | "RawExtension" | "JSON", _) => {}
            ("ExtraValue", Value::Array(items)) => {
                for item in items {
                    self.value("string", "string", of, at, item)?;
                }
            }
            (
                "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray",
                value,
            ) => self.schema(of, at, value)?,
            (message, Value::Object(tree)) if self.table.message(message).is_some() => {
                if let Some(known) = self.table.message(message) {
                    let name = message.rsplit('.').next().unwrap_or(message);
                    self.members(known, name, at, tree)?;
                }
            }
            (_, other) => self.differs(other, of, at, go_type),
        }
        Ok(())
    }

    /// A schema, or several, or something else that may stand there.
    fn schema(&mut self, of: &str, at: At<'_>, value: &mut Value) -> Result<(), String> {
        match value {
            Value::Object(_) => self.value("JSONSchemaProps", "v1.JSONSchemaProps", of, at, value),
            Value::Array(items) => {
                for (index, item) in
                    items.iter_mut().enumerate().filter(|(_, item)| item.is_object())
                {
                    let path = Path::Item(at.path, index);
                    let at = At { path: &path, ..at };
                    self.value("JSONSchemaProps", "v1.JSONSchemaProps", of, at, item)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn differs(&mut self, value: &Value, of: &str, at: At<'_>, go_type: &str) {
        self.note(named(value), of, at, go_type);
    }

    fn note(&mut self, found: &str, of: &str, at: At<'_>, go_type: &str) {
        self.mismatch.get_or_insert_with(|| unfit(found, of, at, go_type));
    }

    /// What stands for a field that is always there.
    fn nothing(&mut self, field: &Field) -> Value {
        match field.count {
            FieldCount::List | FieldCount::Map => Value::Null,
            FieldCount::One | FieldCount::Inline => self.nothing_of(&field.of),
        }
    }

    fn nothing_of(&mut self, of: &str) -> Value {
        match of {
            "string" | "bytes" => json!(""),
            "bool" => json!(false),
            "int32" | "int64" | "uint32" | "uint64" | "double" | "IntOrString" => json!(0),
            "Quantity" => json!("0"),
            message => match self.table.message(message) {
                Some(known) => {
                    let mut tree = Tree::new();
                    for field in self.table.fields(known) {
                        if field.presence == Presence::Always {
                            tree.insert(field.name.clone(), self.nothing(field));
                        }
                    }
                    tree.into()
                }
                None => Value::Null,
            },
        }
    }
}

fn unfit(found: &str, of: &str, at: At<'_>, go_type: &str) -> String {
    let path = at.go.text();
    format!("json: cannot unmarshal {found} into Go struct field {of}.{path} of type {go_type}")
}

/// What Go does not leave out.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// Bytes in base64, written anew.
fn bytes(text: &str) -> Result<String, String> {
    let bare: String = text.chars().filter(|c| !['\r', '\n'].contains(c)).collect();
    // As Go does, without a look at the bits that are left over.
    let lenient = PAD.with_decode_allow_trailing_bits(true);
    match GeneralPurpose::new(&alphabet::STANDARD, lenient).decode(&bare) {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(error) => {
            let is_digit = |c: char| c.is_ascii_alphanumeric() || ['+', '/', '='].contains(&c);
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) => at,
                _ => text.find(|c: char| !is_digit(c)).unwrap_or(text.len()),
            };
            Err(format!("illegal base64 data at input byte {at}"))
        }
    }
}

/// A time, written anew.
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
        // A day beyond what can be reckoned with stays as it is.
        let clock = text.strip_suffix('Z').ok_or_else(out_of_range)?;
        return clock.parse::<DateTime>().map(|_| text.to_owned()).map_err(|_| out_of_range());
    };
    let whole = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time);
    Ok(if is_exact { format!("{time:.6}") } else { whole(time).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Foo 1 metadata Meta +
Foo 2 spec Spec +
Foo 3 status Status +
Meta 1 name string
Meta 2 since Time
Spec 1 replicas int32 *
Spec 2 parts list Part
Spec 3 policy string v1.Policy
Spec 4 labels map string
Spec 5 port IntOrString
Spec 6 cpu Quantity *
Spec 7 seen MicroTime +
Spec 8 blob map bytes
Spec 9 - inline More
More 1 ready bool
Part 1 name string +
Part 2 inner Spec *
Status 1 count int32
";

    fn shaped(value: Value) -> Result<(Value, Vec<String>), String> {
        let table = FieldTable::parse(TABLE).unwrap();
        let mut tree = value.as_object().unwrap().clone();
        let unknown = give_shape(&table, "Foo", &mut tree)?;
        Ok((tree.into(), unknown))
    }

    #[test]
    fn what_go_keeps() {
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
    fn what_go_refuses() {
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
            (json!({"seen": 5}), into("number into Go value of type string")),
            (
                json!({"seen": "2020-01-01T00:00:00.5Z"}),
                "parsing time \"2020-01-01T00:00:00.5Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \".5Z\" as \".000000\"".to_owned(),
            ),
        ] {
            assert_eq!(shaped(json!({"kind": "Foo", "spec": spec})).unwrap_err(), expected);
        }
        // What a type itself refuses comes before what is of another type.
        assert!(
            shaped(json!({"spec": {"replicas": "x", "cpu": "much"}}))
                .unwrap_err()
                .starts_with("quantities")
        );
    }
}
