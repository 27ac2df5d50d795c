//! The values that an `enum` allows.

use serde_json::Value;

use super::super::faults::Faults;
use super::show;
use crate::error::{FieldError, Path};
use crate::object::to_json;

/// Checks that a value is an allowed value.
pub(super) fn check(allowed: &[Value], value: &Value, path: &Path<'_>, faults: &mut Faults) {
    if !is_allowed(allowed, value, faults) {
        let supported: Vec<String> = allowed.iter().map(plain).collect();
        faults.push(FieldError::not_supported(path, show(value), &supported));
    }
}

fn is_allowed(allowed: &[Value], value: &Value, faults: &mut Faults) -> bool {
    allowed.iter().any(|one| {
        faults.spend(compared(one, value));
        faults.is_full() || is_one(one, value)
    })
}

/// Returns the largest number of steps for the comparison of two values.
fn compared(one: &Value, other: &Value) -> usize {
    match (one, other) {
        (Value::String(one), Value::String(other)) if one.len() == other.len() => {
            1 + one.len() / 64
        }
        (Value::Array(one), Value::Array(other)) => {
            one.iter().zip(other).map(|(one, other)| compared(one, other)).sum::<usize>() + 1
        }
        (Value::Object(one), Value::Object(other)) => {
            let both = one.iter().filter_map(|(name, one)| Some((one, other.get(name)?)));
            both.map(|(one, other)| compared(one, other)).sum::<usize>() + 1
        }
        _ => 1,
    }
}

/// Whether a value equals an allowed value. A number is converted to the type of the allowed value, as in Go.
fn is_one(allowed: &Value, value: &Value) -> bool {
    #[allow(clippy::cast_possible_truncation)] // same conversion as in Go
    match (allowed, value) {
        (Value::Number(whole), Value::Number(number)) if whole.is_i64() && !number.is_i64() => {
            whole.as_i64() == number.as_f64().map(|float| float as i64)
        }
        (Value::Number(float), Value::Number(number)) if !float.is_i64() => {
            float.as_f64() == number.as_f64()
        }
        _ => allowed == value,
    }
}

/// Formats an allowed value for messages: a string without quotes, or JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => to_json(other),
    }
}
