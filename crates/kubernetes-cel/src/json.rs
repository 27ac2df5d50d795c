//! Values in JSON, which are read with the types of their schema.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as Json, Value as JsonValue};

use crate::convert;
use crate::declared::{Declared, Format, Shape};
use crate::escape::unescape;
use crate::moment::Moment;
use crate::value::{Failure, Items, List, ListEquality, Map, Outcome, Text, Value};

impl<'v> Value<'v> {
    /// The value of JSON in expressions.
    pub(crate) fn of(value: &'v JsonValue, declared: &'v Declared) -> Outcome<'v> {
        match (&declared.shape, value) {
            (_, JsonValue::Null) if declared.is_nullable => Ok(Self::Null),
            (_, JsonValue::Null) => {
                Err(Failure::new("invalid data, got null for schema with nullable=false"))
            }
            (Shape::Any | Shape::Dyn, value) => Ok(Self::of_any(value, declared)),
            (Shape::IntOrString, JsonValue::String(text)) => Ok(Self::String(Text::Borrowed(text))),
            (Shape::IntOrString, JsonValue::Number(number)) if number.as_i64().is_some() => {
                Ok(Self::Int(number.as_i64().unwrap_or_default()))
            }
            (Shape::IntOrString, _) => Err(Failure::new(NO_INT_OR_STRING)),
            (_, JsonValue::Object(members)) => Self::of_object(members, declared),
            (Shape::Object(_) | Shape::Map(_), _) => Err(Failure::new(NO_MAP)),
            (Shape::List(of, equality), JsonValue::Array(items)) => Ok(Self::List(List {
                items: Items::Json(items, of),
                equality: ListEquality::Declared(equality),
            })),
            (Shape::List(..), _) => Err(Failure::new(NO_ARRAY)),
            (Shape::String(format), JsonValue::String(text)) => formatted(text, *format),
            (Shape::String(_), other) => {
                let found = go_type(other);
                Err(Failure::new(format!("invalid data, expected string, got {found}")))
            }
            (Shape::Double, JsonValue::Number(number)) => {
                Ok(Self::Double(number.as_f64().unwrap_or_default()))
            }
            (Shape::Double, other) => {
                let found = go_type(other);
                Err(Failure::new(format!("invalid data, expected float, got {found}")))
            }
            (Shape::Int, JsonValue::Number(number)) if number.as_i64().is_some() => {
                Ok(Self::Int(number.as_i64().unwrap_or_default()))
            }
            (Shape::Int, other) => {
                let found = go_type(other);
                Err(Failure::new(format!("invalid data, expected int, got {found}")))
            }
            (Shape::Bool, JsonValue::Bool(flag)) => Ok(Self::Bool(*flag)),
            (Shape::Bool, other) => {
                let found = go_type(other);
                Err(Failure::new(format!("invalid data, expected bool, got {found}")))
            }
        }
    }
}

const NO_MAP: &str = "invalid data, expected a map for the provided schema with type=object";

impl<'v> Value<'v> {
    /// The value of JSON of any type. `declared` is that type.
    fn of_any(value: &'v JsonValue, declared: &'v Declared) -> Self {
        match value {
            JsonValue::Null => Self::Null,
            JsonValue::Bool(flag) => Self::Bool(*flag),
            JsonValue::Number(number) => match number.as_i64() {
                Some(number) if matches!(declared.shape, Shape::Dyn) => Self::Int(number),
                _ => Self::Double(number.as_f64().unwrap_or_default()),
            },
            JsonValue::String(text) => Self::String(Text::Borrowed(text)),
            JsonValue::Array(items) => Self::List(List {
                items: Items::Json(items, declared),
                equality: ListEquality::Computed,
            }),
            JsonValue::Object(members) => Self::Map(Map::Json(members, declared)),
        }
    }

    /// The value of a JSON object in expressions.
    pub(crate) fn of_object(
        members: &'v Json<String, JsonValue>,
        declared: &'v Declared,
    ) -> Outcome<'v> {
        const FOUND: &str = "map[string]interface {}";
        let wrong = |expected: &str| {
            Err(Failure::new(format!("invalid data, expected {expected}, got {FOUND}")))
        };
        match &declared.shape {
            Shape::Any | Shape::Dyn | Shape::Object(_) | Shape::Map(_) => {
                Ok(Self::Map(Map::Json(members, declared)))
            }
            Shape::IntOrString => Err(Failure::new(NO_INT_OR_STRING)),
            Shape::List(..) => Err(Failure::new(NO_ARRAY)),
            Shape::String(_) => wrong("string"),
            Shape::Double => wrong("float"),
            Shape::Int => wrong("int"),
            Shape::Bool => wrong("bool"),
        }
    }
}

const NO_ARRAY: &str = "invalid data, expected an array for the provided schema with type=array";
const NO_INT_OR_STRING: &str =
    "invalid data, expected XIntOrString value to be either a string or integer";

/// Go's name for the type of a JSON value.
fn go_type(value: &JsonValue) -> &'static str {
    match value {
        JsonValue::Null => "<nil>",
        JsonValue::Bool(_) => "bool",
        JsonValue::Number(number) if number.is_f64() => "float64",
        JsonValue::Number(_) => "int64",
        JsonValue::String(_) => "string",
        JsonValue::Array(_) => "[]interface {}",
        JsonValue::Object(_) => "map[string]interface {}",
    }
}

fn formatted(text: &str, format: Format) -> Outcome<'_> {
    let wrong = |what: &str| Failure::new(format!("Invalid {what} formatted string {text}"));
    match format {
        Format::None => Ok(Value::String(Text::Borrowed(text))),
        Format::Bytes => {
            // Go decodes with the URL alphabet, which does not contain these two characters.
            if let Some(at) = text.find(['+', '/']) {
                let why = format!("illegal base64 data at input byte {at}");
                return Err(Failure::new(format!("Invalid byte formatted string {text}: {why}")));
            }
            let bytes = STANDARD.decode(text).map_err(|_| wrong("byte"))?;
            Ok(Value::Bytes(bytes.into()))
        }
        Format::Duration => convert::parse_schema_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| Failure::new(format!("Invalid duration {text}"))),
        Format::Date => Moment::parse(&format!("{text}T00:00:00Z"))
            .map(Value::Timestamp)
            .ok_or_else(|| wrong("date")),
        Format::DateTime => Moment::parse(&text.to_uppercase())
            .map(Value::Timestamp)
            .ok_or_else(|| wrong("date-time")),
    }
}

impl Declared {
    /// A field of an object or an entry of a map, if expressions can use it.
    pub(crate) fn find<'v>(
        &'v self,
        members: &'v Json<String, JsonValue>,
        name: &str,
    ) -> Result<Option<Value<'v>>, Failure> {
        let (value, declared) = match &self.shape {
            Shape::Any | Shape::Dyn => (members.get(&*self.key(name)), self),
            Shape::Map(values) => (members.get(&*self.key(name)), &**values),
            Shape::Object(known) => match known.get(name) {
                // A null field counts as missing.
                Some((name, of)) => (members.get(&**name).filter(|value| !value.is_null()), &**of),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        value.map(|value| Value::of(value, declared)).transpose()
    }

    /// The key of a map that a name in an expression refers to.
    fn key<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.has_escaped_keys {
            true => unescape(name).unwrap_or(Cow::Borrowed(name)),
            false => Cow::Borrowed(name),
        }
    }

    /// The names of the fields that expressions can use.
    pub(crate) fn keys<'v>(&'v self, members: &'v Json<String, JsonValue>) -> Vec<Value<'v>> {
        match &self.shape {
            Shape::Object(known) => {
                let there =
                    known.by_name.iter().filter(|(_, (name, _))| members.contains_key(&**name));
                there.map(|(name, _)| Value::String(Text::Borrowed(name))).collect()
            }
            _ => members.keys().map(|name| Value::String(Text::Borrowed(name))).collect(),
        }
    }
}
