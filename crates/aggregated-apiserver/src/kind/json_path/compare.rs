//! Compares two values of a filter in the same way as Go's templates: only scalars of the same type.

use std::cmp::Ordering;

use serde_json::Value;

/// A scalar with the type that Go decodes from JSON.
#[derive(Clone, Copy)]
enum Scalar<'v> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'v str),
}

/// Whether a comparison is true; `None` if the values cannot be compared.
pub(super) fn is_so(left: &Value, operator: &str, right: &Value) -> Option<bool> {
    let (left, right) = (scalar(left)?, scalar(right)?);
    match operator {
        "==" => equal(left, right),
        "!=" => equal(left, right).map(|is| !is),
        "<" => less(left, right),
        ">" => at_most(left, right).map(|is| !is),
        "<=" => at_most(left, right),
        ">=" => less(left, right).map(|is| !is),
        _ => None,
    }
}

fn scalar(value: &Value) -> Option<Scalar<'_>> {
    match value {
        Value::Bool(is) => Some(Scalar::Bool(*is)),
        Value::Number(number) => {
            let whole = number.as_i64().map(Scalar::Int);
            whole.or_else(|| number.as_f64().map(Scalar::Float))
        }
        Value::String(text) => Some(Scalar::Text(text)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn equal(left: Scalar<'_>, right: Scalar<'_>) -> Option<bool> {
    match (left, right) {
        (Scalar::Bool(left), Scalar::Bool(right)) => Some(left == right),
        _ => Some(order(left, right)? == Some(Ordering::Equal)),
    }
}

fn less(left: Scalar<'_>, right: Scalar<'_>) -> Option<bool> {
    Some(order(left, right)? == Some(Ordering::Less))
}

fn at_most(left: Scalar<'_>, right: Scalar<'_>) -> Option<bool> {
    Some(matches!(order(left, right)?, Some(Ordering::Less | Ordering::Equal)))
}

/// The order of two scalars of the same type; the inner option is `None` if they are unordered.
fn order(left: Scalar<'_>, right: Scalar<'_>) -> Option<Option<Ordering>> {
    match (left, right) {
        (Scalar::Int(left), Scalar::Int(right)) => Some(Some(left.cmp(&right))),
        (Scalar::Float(left), Scalar::Float(right)) => Some(left.partial_cmp(&right)),
        (Scalar::Text(left), Scalar::Text(right)) => Some(Some(left.cmp(right))),
        _ => None,
    }
}
