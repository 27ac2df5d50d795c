//! Checks that the validation of several kinds makes.

use aggregated_apiserver::FieldError;
use serde::Serialize;

/// Faults, as they are found.
pub(crate) type Faults = Vec<FieldError>;

/// A text as messages show it.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A value as messages show it.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

pub(crate) const IMMUTABLE: &str = "field is immutable";

pub(crate) fn check_not_negative(
    field: impl Into<String>,
    value: Option<impl Into<i64>>,
    faults: &mut Faults,
) {
    if let Some(value) = value.map(Into::into).filter(|value| *value < 0) {
        faults.push(FieldError::invalid(field, value, NOT_NEGATIVE));
    }
}

/// What may not change. It is written down only if it did.
pub(crate) fn check_immutable<T: PartialEq + Serialize>(
    field: &str,
    new: &T,
    old: &T,
    faults: &mut Faults,
) {
    if new != old {
        faults.push(FieldError::invalid(field, to_json(new), IMMUTABLE));
    }
}

/// A text that must be one of several.
pub(crate) fn check_one_of(
    field: impl Into<String>,
    value: Option<&String>,
    all: &[&str],
    faults: &mut Faults,
) {
    if let Some(value) = value.filter(|value| !all.contains(&value.as_str())) {
        faults.push(FieldError::not_supported(field, quote(value), all));
    }
}

/// What is wrong with a name, each as a fault of its own.
pub(crate) fn check_with(
    field: &str,
    value: &str,
    check: impl Fn(&str) -> Vec<String>,
    faults: &mut Faults,
) {
    faults.extend(check(value).iter().map(|why| FieldError::invalid(field, quote(value), why)));
}
