//! DeleteOptions of a client.

use serde_json::Value;

use crate::error::{ApiError, FieldError, go_type, quote};
use crate::kind::Kind;
use crate::object::Tree;
use crate::write::{Propagation, WriteOptions};

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The uid that the object must have.
    pub uid: Option<String>,
    /// The resourceVersion that the object must have, compared as a string.
    pub resource_version: Option<String>,
    /// The propagation policy for dependents; by default, the finalizers of the object decide.
    pub propagation: Option<Propagation>,
    /// The grace period in seconds, for kinds that have one.
    pub grace_period: Option<i64>,
    /// Whether `orphanDependents` is false. The status code is 202 then, if the object still exists after the request.
    pub answers_accepted: bool,
    /// Whether everything is checked and nothing is removed.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Decodes the options.
    ///
    /// # Errors
    /// 400 for values of the wrong type, 422 for invalid values.
    pub fn from_tree(tree: &Tree) -> Result<Self, ApiError> {
        let dry_run = match tree.get("dryRun") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(list)) if list.iter().all(Value::is_string) => list,
            Some(other) => return Err(mismatch(other, "dryRun", "[]string")),
        };
        let orphan = match tree.get("orphanDependents") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(orphan)) => Some(*orphan),
            Some(other) => return Err(mismatch(other, "orphanDependents", "bool")),
        };
        let grace_period = match tree.get("gracePeriodSeconds") {
            None | Some(Value::Null) => None,
            Some(Value::Number(number)) if number.is_i64() => number.as_i64(),
            Some(other) => return Err(mismatch(other, "gracePeriodSeconds", "int64")),
        };
        let policy = text(tree, "", "propagationPolicy")?;
        let nothing = Tree::new();
        let preconditions = match tree.get("preconditions") {
            None | Some(Value::Null) => &nothing,
            Some(Value::Object(preconditions)) => preconditions,
            Some(other) => return Err(mismatch(other, "preconditions", "v1.Preconditions")),
        };
        let uid = text(preconditions, "preconditions.", "uid")?;
        let resource_version = text(preconditions, "preconditions.", "resourceVersion")?;
        let mut errors = Vec::new();
        let propagation = propagation(policy.as_deref(), orphan, &mut errors);
        if dry_run.iter().any(|value| value != "All") {
            let shown = Value::from(dry_run.to_vec());
            errors.push(FieldError::not_supported("dryRun", shown, &["All"]));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("DeleteOptions", errors));
        }
        Ok(Self {
            uid,
            resource_version,
            propagation,
            grace_period,
            answers_accepted: orphan == Some(false),
            dry_run: !dry_run.is_empty(),
        })
    }
}

impl DeleteOptions {
    /// The options of the write that deletes.
    pub(super) fn to_write_options(&self) -> WriteOptions {
        WriteOptions { dry_run: self.dry_run, ..WriteOptions::default() }
    }

    /// The warnings for a deletion with these options.
    pub(super) fn warnings(&self, kind: &Kind) -> Vec<String> {
        let warning = kind.strategy.warning_without_propagation_policy;
        warning.filter(|_| self.propagation.is_none()).map(str::to_owned).into_iter().collect()
    }

    /// Encodes the options in the form that a client would send.
    pub(super) fn to_tree(&self) -> Tree {
        let mut tree = Tree::new();
        if let Some(seconds) = self.grace_period {
            tree.insert("gracePeriodSeconds".to_owned(), seconds.into());
        }
        let mut preconditions = Tree::new();
        for (name, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(value) = value {
                preconditions.insert(name.to_owned(), value.as_str().into());
            }
        }
        if !preconditions.is_empty() {
            tree.insert("preconditions".to_owned(), preconditions.into());
        }
        if self.answers_accepted {
            tree.insert("orphanDependents".to_owned(), false.into());
        } else if let Some(propagation) = self.propagation {
            tree.insert("propagationPolicy".to_owned(), propagation.name().into());
        }
        if self.dry_run {
            tree.insert("dryRun".to_owned(), vec![Value::from("All")].into());
        }
        tree
    }
}

fn text(tree: &Tree, path: &str, field: &str) -> Result<Option<String>, ApiError> {
    match tree.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(mismatch(other, &format!("{path}{field}"), "string")),
    }
}

fn mismatch(found: &Value, field: &str, expected: &str) -> ApiError {
    let found = go_type(found);
    ApiError::bad_request(format!(
        "json: cannot unmarshal {found} into Go struct field DeleteOptions.{field} of type {expected}"
    ))
}

/// The propagation policy for dependents, from the fields `propagationPolicy` and `orphanDependents` (deprecated).
pub fn propagation(
    policy: Option<&str>,
    orphan: Option<bool>,
    errors: &mut Vec<FieldError>,
) -> Option<Propagation> {
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(FieldError::invalid("propagationPolicy", quote(policy), detail));
    }
    match (policy, orphan) {
        (None, None) => None,
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some(other), _) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            let error = FieldError::not_supported("propagationPolicy", quote(other), &supported);
            errors.push(error);
            None
        }
    }
}
