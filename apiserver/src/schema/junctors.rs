//! `allOf`, `anyOf`, `oneOf` and `not`: schemas that judge a value together.

use serde_json::Value;

use super::node::{Junctors, Type, TypeRef};
use super::validate::node;
use crate::error::{FieldError, Path, quote};

/// What is wrong with a value by the schemas that judge it together.
pub fn validate(
    of: Type<'_>,
    junctors: &Junctors,
    value: &Value,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let refuse = |errors: &mut Vec<FieldError>, what: &str| {
        // The path stands in the text alone.
        let detail = format!("{} {what}", quote(&path.to_string()));
        errors.push(FieldError::invalid("<nil>", "\"\"", &detail));
    };
    let judged = |types: &[TypeRef]| -> Vec<Judged> {
        types.iter().map(|one| Judged::of(of.at(one), value, path)).collect()
    };
    if !junctors.any_of.is_empty() {
        let judged = judged(&junctors.any_of);
        if !judged.iter().any(Judged::is_valid) {
            refuse(errors, "must validate at least one schema (anyOf)");
            errors.extend(best(judged));
        }
    }
    if !junctors.one_of.is_empty() {
        let judged = judged(&junctors.one_of);
        match judged.iter().filter(|judged| judged.is_valid()).count() {
            1 => {}
            0 => {
                refuse(errors, "must validate one and only one schema (oneOf). Found none valid");
                errors.extend(best(judged));
            }
            count => {
                let found = format!(
                    "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                );
                refuse(errors, &found);
            }
        }
    }
    if !junctors.all_of.is_empty() {
        let judged = judged(&junctors.all_of);
        let valid = judged.iter().filter(|judged| judged.is_valid()).count();
        if valid < judged.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            errors.extend(judged.into_iter().flat_map(|judged| judged.errors));
            refuse(errors, &format!("must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = &junctors.not
        && Judged::of(of.at(not), value, path).is_valid()
    {
        refuse(errors, "must not validate the schema (not)");
    }
}

/// What one of several schemas says.
struct Judged {
    errors: Vec<FieldError>,
    /// How much of the value it has looked at.
    looked_at: usize,
}

impl Judged {
    fn of(of: Type<'_>, value: &Value, path: &Path<'_>) -> Self {
        let mut errors = Vec::new();
        node(of, value, None, path, &mut errors);
        Self { errors, looked_at: looked_at(of, value) }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// The errors of the schema that knows most of the value; of equals the first.
fn best(judged: Vec<Judged>) -> Vec<FieldError> {
    let mut best: Option<Judged> = None;
    for judged in judged {
        if best.as_ref().is_none_or(|best| judged.looked_at > best.looked_at) {
            best = Some(judged);
        }
    }
    best.map(|best| best.errors).unwrap_or_default()
}

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
        // kube-apiserver looks at a number in two ways.
        Value::Number(_) => 1,
        _ => 0,
    };
    1 + below
}
