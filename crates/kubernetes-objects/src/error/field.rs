//! `FieldError`: one error of one field.

use std::fmt;

use super::text::beginning;
use super::{Cause, quote};

/// One error of one field, such as `spec.weight: Required value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    field: String,
    reason: &'static str,
    body: String,
}

impl FieldError {
    /// The memory of the error, in bytes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.field.len() + self.body.len()
    }

    /// The field is missing.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let body = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self { field: field.into(), reason: "FieldValueRequired", body }
    }

    /// The field may not be set.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        let body = format!("Forbidden: {detail}");
        Self { field: field.into(), reason: "FieldValueForbidden", body }
    }

    /// The object or item that the value refers to does not exist. `value` is JSON.
    pub fn not_found(field: impl Into<String>, value: impl fmt::Display) -> Self {
        let body = format!("Not found: {}", beginning(&value.to_string()));
        Self { field: field.into(), reason: "FieldValueNotFound", body }
    }

    /// The value breaks a rule. `value` is JSON: strings are quoted.
    pub fn invalid(field: impl Into<String>, value: impl fmt::Display, detail: &str) -> Self {
        let body =
            format!("Invalid value: {}: {}", beginning(&value.to_string()), beginning(detail));
        Self { field: field.into(), reason: "FieldValueInvalid", body }
    }

    /// The value breaks a rule. The message does not contain the value.
    pub fn invalid_unseen(field: impl Into<String>, detail: &str) -> Self {
        let body = format!("Invalid value: {}", beginning(detail));
        Self { field: field.into(), reason: "FieldValueInvalid", body }
    }

    /// The check of the field failed with an internal error.
    pub fn internal(field: impl Into<String>, detail: &str) -> Self {
        let body = format!("Internal error: {}", beginning(detail));
        Self { field: field.into(), reason: "InternalError", body }
    }

    /// The value is a duplicate. The message does not contain the value.
    pub fn duplicate_unseen(field: impl Into<String>) -> Self {
        let body = "Duplicate value".to_owned();
        Self { field: field.into(), reason: "FieldValueDuplicate", body }
    }

    /// Whether an object with this error skips the validation rules of its schema.
    pub fn blocks_rules(&self) -> bool {
        const BLOCKING: [&str; 5] = [
            "FieldValueNotSupported",
            "FieldValueRequired",
            "FieldValueTooLong",
            "FieldValueTooMany",
            "FieldValueTypeInvalid",
        ];
        BLOCKING.contains(&self.reason)
    }

    /// Parses an error message, such as `spec.size: Invalid value: 0: must be positive`. A message without a known type
    /// of error is an invalid value.
    pub fn from_text(text: &str) -> Self {
        const SORTS: [(&str, &str); 8] = [
            ("Required value", "FieldValueRequired"),
            ("Forbidden", "FieldValueForbidden"),
            ("Unsupported value", "FieldValueNotSupported"),
            ("Duplicate value", "FieldValueDuplicate"),
            ("Too long", "FieldValueTooLong"),
            ("Too many", "FieldValueTooMany"),
            ("Invalid value", "FieldValueInvalid"),
            ("Internal error", "InternalError"),
        ];
        let (field, body) = text.split_once(": ").unwrap_or(("<nil>", text));
        let sort = SORTS.into_iter().find(|(sort, _)| body.starts_with(sort));
        let (reason, body) = match sort {
            // Type errors of a schema have their own reason, and the wording of an invalid value.
            Some(("Invalid value", _)) if body.contains(" in body must be of type ") => {
                ("FieldValueTypeInvalid", body.to_owned())
            }
            Some((_, reason)) => (reason, body.to_owned()),
            None => ("FieldValueInvalid", format!("Invalid value: \"\": {body}")),
        };
        Self { field: field.to_owned(), reason, body }
    }

    /// The same error. An empty field becomes `<nil>`, which is Go's notation for an error of the whole object.
    #[must_use]
    pub fn of_whole(self) -> Self {
        self.with_field(
            |field| if field.is_empty() { "<nil>".to_owned() } else { field.to_owned() },
        )
    }

    /// The same error for a field below `parent`.
    #[must_use]
    pub fn below(self, parent: &str) -> Self {
        self.with_field(|field| match field {
            "" => parent.to_owned(),
            "<nil>" => field.to_owned(),
            _ if field.starts_with('[') => format!("{parent}{field}"),
            _ => format!("{parent}.{field}"),
        })
    }

    /// The path of the field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The same error with another message, which `change` makes of the present one.
    #[must_use]
    pub fn with_words(self, change: impl FnOnce(&str) -> String) -> Self {
        Self { body: change(&self.body), ..self }
    }

    /// The same error with another field, which `change` makes of the present one.
    #[must_use]
    pub fn with_field(self, change: impl FnOnce(&str) -> String) -> Self {
        Self { field: change(&self.field), ..self }
    }

    /// The value is a duplicate. `value` is JSON.
    pub fn duplicate(field: impl Into<String>, value: impl fmt::Display) -> Self {
        let body = format!("Duplicate value: {}", beginning(&value.to_string()));
        Self { field: field.into(), reason: "FieldValueDuplicate", body }
    }

    /// The value has the wrong type. `value` is JSON.
    pub fn type_invalid(field: impl Into<String>, value: impl fmt::Display, detail: &str) -> Self {
        let body =
            format!("Invalid value: {}: {}", beginning(&value.to_string()), beginning(detail));
        Self { field: field.into(), reason: "FieldValueTypeInvalid", body }
    }

    /// The value is not one of the supported values. `value` is JSON.
    pub fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        value: impl fmt::Display,
        supported: &[S],
    ) -> Self {
        let list: Vec<String> = supported.iter().map(|one| quote(one.as_ref())).collect();
        let body = format!(
            "Unsupported value: {}: supported values: {}",
            beginning(&value.to_string()),
            list.join(", ")
        );
        Self { field: field.into(), reason: "FieldValueNotSupported", body }
    }

    /// The string is longer than `limit`.
    pub fn too_long(field: impl Into<String>, limit: u64) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        let body = format!("Too long: may not be more than {limit} {unit}");
        Self { field: field.into(), reason: "FieldValueTooLong", body }
    }

    /// There are more items than `limit`.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: u64) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        let body = format!("Too many: {actual}: must have at most {limit} {unit}");
        Self { field: field.into(), reason: "FieldValueTooMany", body }
    }

    /// The length of the message, in bytes.
    pub(super) fn length(&self) -> usize {
        self.field.len() + self.body.len()
    }

    pub(super) fn into_cause(self) -> Cause {
        Cause { reason: self.reason, message: self.body, field: self.field }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}
