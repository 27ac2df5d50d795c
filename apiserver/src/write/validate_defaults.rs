//! Validates the defaults of a schema against it: with an invalid one, no object could be valid.

use serde_json::Value;

use super::embedded;
use crate::error::{FieldError, Path};

use crate::object::to_json;
use crate::schema::{
    ERRORS_LIMIT, Faults, Schema, Type, judge_default, normalize_embedded_metadata,
    normalize_numbers, prune_value, validate_value,
};

/// What is wrong with the defaults of a schema, each with its path from there; `of_root`
/// is that of the whole object. As in kube-apiserver, those of additional properties are not
/// looked at.
pub fn validate_defaults(schema: &Schema, of_root: Option<&Value>) -> Vec<String> {
    let (mut faults, mut work) = (Vec::new(), Faults::new());
    if let Some(default) = of_root {
        faults.extend(of_default(schema.root(), &normalize_numbers(default), false, &mut work));
    }
    collect(schema.root(), "", false, (&mut faults, &mut work));
    faults.extend(work.into_errors());
    faults.iter().map(ToString::to_string).collect()
}

fn collect(
    of: Type<'_>,
    path: &str,
    is_in_metadata: bool,
    (faults, work): (&mut Vec<FieldError>, &mut Faults),
) {
    if !of.subtree.defaults || faults.len() >= ERRORS_LIMIT {
        return;
    }
    let mut check = |of: Type<'_>, default: Option<&Value>, path: &str, is_in_metadata| {
        if faults.len() >= ERRORS_LIMIT {
            return;
        }
        if let Some(default) = default {
            let found = of_default(of, &normalize_numbers(default), is_in_metadata, work);
            faults.extend(found.into_iter().map(|error| error.below(path)));
        }
        collect(of, path, is_in_metadata, (faults, work));
    };
    for (name, member) in of.members.iter() {
        let is_in_metadata = is_in_metadata || (of.embedded && name == "metadata");
        let path = format!("{path}.properties[{name}]");
        check(of.at(&member.of), member.default.as_ref(), &path, is_in_metadata);
    }
    if let Some(items) = of.of_items() {
        check(items, of.default_of_element.as_ref(), &format!("{path}.items"), is_in_metadata);
    }
}

fn of_default(
    of: Type<'_>,
    default: &Value,
    is_in_metadata: bool,
    work: &mut Faults,
) -> Vec<FieldError> {
    const FIELD: &str = "default";
    let mut errors = Vec::new();
    let mut pruned = default.clone();
    // What metadata may hold, no schema says.
    if !prune_value(of, &mut pruned).is_empty() && !is_in_metadata {
        errors.push(FieldError::invalid(FIELD, to_json(default), "must not have unknown fields"));
    }
    let path = Path::Member(&Path::Root, FIELD);
    if let Err(error) = normalize_embedded_metadata(of, &mut pruned, &path) {
        errors.push(error);
        return errors;
    }
    let of_embedded = embedded::validate_value(of, default, &path);
    if !of_embedded.is_empty() {
        errors.extend(of_embedded);
        return errors;
    }
    if of.int_or_string {
        // What a definition may begin with is not asked, in kube-apiserver.
        return errors;
    }
    let held = work.held();
    let of_schema = work.beside(|faults| validate_value(of, default, None, &Path::Root, faults));
    work.release(held);
    if of_schema.is_empty() && errors.is_empty() {
        return judge_default(of, default, &path);
    }
    errors.extend(of_schema.into_iter().map(|error| {
        error.with_field(|field| match field {
            "" | "<nil>" => FIELD.to_owned(),
            field => format!("{FIELD}.{field}"),
        })
    }));
    errors
}
