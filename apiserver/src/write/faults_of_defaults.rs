//! Holds the defaults of a schema against it: no object would be valid with
//! one that is not.

use serde_json::Value;

use super::embedded;
use crate::error::{FieldError, Path};

use crate::object::to_json;
use crate::schema::{ERRORS_LIMIT, Schema, validate_value, whole};

/// What is wrong with the defaults of a schema, each with its path from there.
/// As in kube-apiserver those of further members are not looked at.
pub fn faults_of_defaults(schema: &Schema) -> Vec<String> {
    let mut faults = Vec::new();
    collect(schema, "", false, &mut faults);
    faults.iter().map(ToString::to_string).collect()
}

fn collect(schema: &Schema, path: &str, is_in_metadata: bool, faults: &mut Vec<FieldError>) {
    if !schema.has_defaults || faults.len() >= ERRORS_LIMIT {
        return;
    }
    if let Some(default) = &schema.default {
        let found = of_default(schema, &whole(default), is_in_metadata);
        faults.extend(found.into_iter().map(|error| error.below(path)));
    }
    for (name, property) in &schema.properties {
        let is_in_metadata = is_in_metadata || (schema.embedded && name == "metadata");
        collect(property, &format!("{path}.properties[{name}]"), is_in_metadata, faults);
    }
    if let Some(items) = &schema.items {
        collect(items, &format!("{path}.items"), is_in_metadata, faults);
    }
}

fn of_default(schema: &Schema, default: &Value, is_in_metadata: bool) -> Vec<FieldError> {
    const FIELD: &str = "default";
    let mut errors = Vec::new();
    let mut pruned = default.clone();
    // What metadata may hold, no schema says.
    if !schema.prune_value(&mut pruned).is_empty() && !is_in_metadata {
        errors.push(FieldError::invalid(FIELD, to_json(default), "must not have unknown fields"));
    }
    if let Err(error) = schema.coerce_embedded_in(&mut pruned, &Path::Member(&Path::Root, FIELD)) {
        errors.push(error);
        return errors;
    }
    let of_embedded = embedded::validate_value(schema, default, &Path::Member(&Path::Root, FIELD));
    if !of_embedded.is_empty() {
        errors.extend(of_embedded);
        return errors;
    }
    if schema.int_or_string {
        // What a definition may begin with is not asked, in kube-apiserver.
        return errors;
    }
    let mut of_schema = Vec::new();
    validate_value(schema, default, None, &Path::Root, &mut of_schema);
    errors.extend(of_schema.into_iter().map(|error| {
        error.with_field(|field| match field {
            "" | "<nil>" => FIELD.to_owned(),
            field => format!("{FIELD}.{field}"),
        })
    }));
    errors
}
