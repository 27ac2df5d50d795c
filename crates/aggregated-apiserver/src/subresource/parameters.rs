//! The query of a request as a Rust type.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

use super::Error;
use crate::error::quote;

/// The query of a request: `?follow=true&tailLines=10`.
///
/// The values are read by the schema of the type, in the same way as kube-apiserver reads options of subresources: a
/// flag is `false` for `false` and `0`, and `true` for every other value; an array has one item for each parameter of
/// the name. Parameters that the type does not have are ignored. A value of the wrong type is an error (400).
#[derive(Clone, Copy, Debug)]
pub struct Parameters<T>(pub T);

impl<S: Sync, T: DeserializeOwned + JsonSchema + 'static> FromRequestParts<S> for Parameters<T> {
    type Rejection = Error;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Error> {
        read(head.uri.query().unwrap_or_default()).map(Self).map_err(Error::bad_request)
    }
}

/// Reads a query as a value of this type.
fn read<T: DeserializeOwned + JsonSchema + 'static>(query: &str) -> Result<T, String> {
    let schema = known_schema_of::<T>();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut object = Map::new();
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        let Some(schema) = properties.and_then(|properties| properties.get(&*name)) else {
            continue;
        };
        if allows(schema, "array") {
            let items = schema.get("items").unwrap_or(&Value::Null);
            let value = value(&name, items, &text)?;
            let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut().into_iter().for_each(|list| list.push(value.clone()));
        } else if !object.contains_key(&*name) {
            // Only the first of several values counts, same as in kube-apiserver.
            let value = value(&name, schema, &text)?;
            object.insert(name.into_owned(), value);
        }
    }
    serde_json::from_value(Value::Object(object))
        .map_err(|error| format!("the parameters are invalid: {error}"))
}

/// The schema of a type, which is generated once.
fn known_schema_of<T: JsonSchema + 'static>() -> Arc<Value> {
    static KNOWN: LazyLock<Mutex<HashMap<TypeId, Arc<Value>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(known.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(schema_of::<T>())))
}

/// The schema of a type, with subschemas inline.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("$schema");
    schema.remove("title");
    schema.to_value()
}

/// Whether a schema allows values of this type.
fn allows(schema: &Value, wanted: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        _ => false,
    }
}

/// Reads one value by its schema.
fn value(name: &str, schema: &Value, text: &str) -> Result<Value, String> {
    if allows(schema, "boolean") {
        return Ok(Value::Bool(text != "0" && !text.eq_ignore_ascii_case("false")));
    }
    let is_integer = allows(schema, "integer");
    if is_integer || allows(schema, "number") {
        let number: Option<Number> = text.parse().ok();
        let number = number.filter(|number| !is_integer || !number.is_f64());
        let what = if is_integer { "an integer" } else { "a number" };
        let wrong = || format!("the parameter {name} is {}, which is not {what}", quote(text));
        return number.map(Value::Number).ok_or_else(wrong);
    }
    Ok(Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq, JsonSchema)]
    #[serde(rename_all = "camelCase", default)]
    struct Options {
        follow: bool,
        tail_lines: Option<u32>,
        container: Option<String>,
        ports: Vec<u16>,
        ratio: f64,
        side: Side,
    }

    #[derive(Debug, Default, Deserialize, PartialEq, JsonSchema)]
    enum Side {
        #[default]
        Left,
        Right,
    }

    #[test]
    fn values_are_read_by_their_types() {
        let query =
            "follow=1&tailLines=10&container=a%20b&ports=80&ports=443&ratio=0.5&side=Right&x=y";
        let expected = Options {
            follow: true,
            tail_lines: Some(10),
            container: Some("a b".to_owned()),
            ports: vec![80, 443],
            ratio: 0.5,
            side: Side::Right,
        };
        assert_eq!(read::<Options>(query), Ok(expected));
        assert_eq!(read::<Options>(""), Ok(Options::default()));
    }

    #[test]
    fn flags_are_read_in_the_same_way_as_in_go() {
        for (query, expected) in [
            ("follow", true),
            ("follow=", true),
            ("follow=true", true),
            ("follow=yes", true),
            ("follow=false", false),
            ("follow=False", false),
            ("follow=0", false),
            ("follow=true&follow=false", true),
        ] {
            assert_eq!(
                read::<Options>(query).map(|options| options.follow),
                Ok(expected),
                "{query}"
            );
        }
    }

    #[test]
    fn values_of_wrong_types_are_errors_that_name_the_parameter() {
        for (query, expected) in [
            ("tailLines=ten", "the parameter tailLines is \"ten\", which is not an integer"),
            ("tailLines=1.5", "the parameter tailLines is \"1.5\", which is not an integer"),
            ("ports=80&ports=x", "the parameter ports is \"x\", which is not an integer"),
            ("ratio=x", "the parameter ratio is \"x\", which is not a number"),
        ] {
            assert_eq!(read::<Options>(query), Err(expected.to_owned()), "{query}");
        }
        let invalid = ["tailLines=-1", "ports=70000", "side=Up"];
        for query in invalid {
            let error = read::<Options>(query).unwrap_err();
            assert!(error.starts_with("the parameters are invalid: "), "{error}");
        }
    }
}
