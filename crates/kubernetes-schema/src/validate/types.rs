//! Types of values, with the checks and messages of kube-apiserver's validator.

use serde_json::Value;

use super::super::faults::Faults;
use super::super::node::Type;
use super::numbers::is_json_integer;
use crate::error::{FieldError, Path, quote};

/// Checks the type of a value. A format that is not a format of strings is a part of the type.
pub(super) fn check(of: Type<'_>, value: &Value, path: &Path<'_>, faults: &mut Faults) {
    let expected = match of.json_type {
        _ if of.int_or_string => "integer,string",
        Some(json_type) => json_type.name(),
        None => "",
    };
    let mut refuse = |expected: &str, found: &str| {
        let found = quote(found);
        let detail = format!("{path} in body must be of type {expected}: {found}");
        faults.push(FieldError::type_invalid(path, &found, &detail));
    };
    let (found, go_type) = type_names(value);
    if value.is_null() {
        if !expected.is_empty() && !of.nullable {
            refuse(expected, found);
        }
        return;
    }
    let accepts = |name: &str| expected.split(',').any(|one| one == name);
    let is_accepted = accepts(found)
        || (found == "number" && accepts("integer") && is_json_integer(value))
        || (found == "integer" && accepts("number"));
    let is_string_or_list = value.is_string() || value.is_array();
    match of.format.as_deref() {
        None if expected.is_empty() => {}
        Some(format) if !is_string_or_list && !is_accepted && format != go_type => {
            refuse(format, go_type);
        }
        // The format of a string is checked elsewhere, and the type of a string is not checked.
        Some(_) if is_string_or_list && !accepts("integer") && !accepts("number") => {}
        _ if !is_accepted => refuse(expected, found),
        _ => {}
    }
}

/// Returns the JSON type of a value and, for a number, the Go type into which it is decoded.
fn type_names(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}
