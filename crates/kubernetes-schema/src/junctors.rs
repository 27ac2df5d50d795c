//! `allOf`, `anyOf`, `oneOf` and `not`: schemas that are combined for the same value.

use serde_json::Value;

use super::faults::Faults;
use super::node::{Junctors, Type, TypeRef};
use super::validate::node;
use crate::error::{FieldError, Path, quote};

/// Validates a value against combined schemas.
pub fn validate(
    of: Type<'_>,
    junctors: &Junctors,
    value: &Value,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    let refuse = |faults: &mut Faults, what: &str| {
        // Only the message contains the path.
        let detail = format!("{} {what}", quote(&path.to_string()));
        faults.push(FieldError::invalid("<nil>", "\"\"", &detail));
    };
    let held = faults.held();
    if !junctors.any_of.is_empty() {
        let judged = judge(of, &junctors.any_of, value, path, faults);
        faults.release(held);
        if !judged.iter().any(Vec::is_empty) {
            refuse(faults, "must validate at least one schema (anyOf)");
            let best = best(of, &junctors.any_of, judged, value, faults);
            faults.extend(best);
        }
    }
    let held = faults.held();
    if !junctors.one_of.is_empty() {
        let judged = judge(of, &junctors.one_of, value, path, faults);
        faults.release(held);
        match judged.iter().filter(|errors| errors.is_empty()).count() {
            1 => {}
            0 => {
                refuse(faults, "must validate one and only one schema (oneOf). Found none valid");
                let best = best(of, &junctors.one_of, judged, value, faults);
                faults.extend(best);
            }
            count => {
                let found = format!(
                    "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                );
                refuse(faults, &found);
            }
        }
    }
    let held = faults.held();
    if !junctors.all_of.is_empty() {
        let judged = judge(of, &junctors.all_of, value, path, faults);
        faults.release(held);
        let valid = judged.iter().filter(|errors| errors.is_empty()).count();
        if valid < judged.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            judged.into_iter().for_each(|errors| faults.extend(errors));
            refuse(faults, &format!("must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = &junctors.not {
        let held = faults.held();
        let errors = faults.beside(|faults| node(of.at(not), value, None, path, faults));
        faults.release(held);
        if errors.is_empty() {
            refuse(faults, "must not validate the schema (not)");
        }
    }
}

/// Returns the errors of each schema. If the steps are exhausted, the remaining schemas have no errors.
fn judge(
    of: Type<'_>,
    schemas: &[TypeRef],
    value: &Value,
    path: &Path<'_>,
    faults: &mut Faults,
) -> Vec<Vec<FieldError>> {
    let one = |schema| faults.beside(|faults| node(of.at(schema), value, None, path, faults));
    schemas.iter().map(one).collect()
}

/// Returns the errors of the schema that covers the largest part of the value. If several schemas cover the same part,
/// the first one is chosen.
fn best(
    of: Type<'_>,
    schemas: &[TypeRef],
    judged: Vec<Vec<FieldError>>,
    value: &Value,
    faults: &mut Faults,
) -> Vec<FieldError> {
    let mut best: Option<(usize, Vec<FieldError>)> = None;
    for (schema, errors) in schemas.iter().zip(judged) {
        let looked_at = looked_at(of.at(schema), value);
        faults.spend(looked_at);
        if best.as_ref().is_none_or(|(most, _)| looked_at > *most) {
            best = Some((looked_at, errors));
        }
    }
    best.map(|(_, errors)| errors).unwrap_or_default()
}

/// Returns the number of parts of a value that a schema covers.
fn looked_at(of: Type<'_>, value: &Value) -> usize {
    let below: usize = match value {
        Value::Object(members) => {
            let known = members
                .iter()
                .filter_map(|(name, value)| Some(looked_at(of.member(name)?.1, value)));
            known.sum()
        }
        Value::Array(items) => match of.of_items() {
            Some(of) => items.iter().map(|item| looked_at(of, item)).sum(),
            None => 0,
        },
        // kube-apiserver checks a number in two ways.
        Value::Number(_) => 1,
        _ => 0,
    };
    1 + below
}
