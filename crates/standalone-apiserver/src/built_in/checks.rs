//! Checks that the validation of several kinds shares. A new check must exist in kube-apiserver, too, and must matter
//! to programs. `docs/guides/testing.md` lists the checks that are missing.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use serde::Serialize;
use serde_json::Value;

/// The errors of an object, in the order of kube-apiserver.
pub(crate) type FieldErrors = Vec<FieldError>;

/// A string in quotes, for messages.
pub(crate) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

/// A value as JSON, for messages.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A struct in the format of messages, with the field names of Go. The values are JSON.
pub(crate) fn go_struct(fields: &[(&str, String)]) -> String {
    let fields = fields.iter().map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// The message for a changed immutable field.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Checks that a number, if it is set, is not negative.
pub(crate) fn check_not_negative(
    field: impl Into<String>,
    value: Option<impl Into<i64>>,
    faults: &mut FieldErrors,
) {
    if let Some(value) = value.map(Into::into).filter(|value| *value < 0) {
        faults.push(FieldError::invalid(field, value, NOT_NEGATIVE));
    }
}

/// Checks that an amount is not negative.
pub(crate) fn check_not_negative_amount(at: &str, amount: &Amount, faults: &mut FieldErrors) {
    if Quantity::parse(&amount.0).is_ok_and(|amount| amount.nanos() < 0) {
        faults.push(FieldError::invalid(at, quote(&amount.0), NOT_NEGATIVE));
    }
}

/// Checks that a field has not changed.
pub(crate) fn check_immutable<T: PartialEq + Serialize>(
    field: &str,
    new: &T,
    old: &T,
    faults: &mut FieldErrors,
) {
    if !is_same(new, old) {
        faults.push(FieldError::invalid(field, to_json(new), IMMUTABLE));
    }
}

/// Checks that a string is one of these.
pub(crate) fn check_one_of(
    field: impl Into<String>,
    value: Option<&String>,
    all: &[&str],
    faults: &mut FieldErrors,
) {
    if let Some(value) = value.filter(|value| !all.contains(&value.as_str())) {
        faults.push(FieldError::not_supported(field, quote(value), all));
    }
}

/// Whether two values are equal; an empty list equals a missing list.
pub(crate) fn is_same<T: PartialEq + Serialize>(one: &T, other: &T) -> bool {
    one == other || without_empty(one) == without_empty(other)
}

/// A value as a tree, without empty lists.
fn without_empty(value: &impl Serialize) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|_, value| !value.as_array().is_some_and(Vec::is_empty));
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut tree = serde_json::to_value(value).unwrap_or_default();
    strip(&mut tree);
    tree
}

/// Checks that a string is not empty. Returns whether it is.
pub(crate) fn check_given(at: &str, value: &str, faults: &mut FieldErrors) -> bool {
    if value.is_empty() {
        faults.push(FieldError::required(at, ""));
    }
    !value.is_empty()
}

/// Checks a string by a function that returns its errors.
pub(crate) fn check_with(
    field: &str,
    value: &str,
    check: impl Fn(&str) -> Vec<String>,
    faults: &mut FieldErrors,
) {
    faults.extend(check(value).iter().map(|why| FieldError::invalid(field, quote(value), why)));
}
