//! Selectable fields: the fields by which objects of a version can be selected, besides name and namespace.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::SelectableField;

use crate::error::{FieldError, quote};
use crate::object::selector::SelectableFields;
use crate::schema::{JsonType, Schema, Type};

/// The largest number of selectable fields, same as in kube-apiserver.
const LIMIT: u64 = 8;

/// Parses the selectable fields of the version at `path`. Unlike kube-apiserver, this accepts numbers and any number of
/// fields: see [`faults_of_stored`].
pub(super) fn parse(
    fields: &[SelectableField],
    schema: &Schema,
    path: &str,
    faults: &mut Vec<String>,
) -> SelectableFields {
    let mut paths: Vec<String> = Vec::new();
    let mut errors = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let at = format!("{path}.selectableFields[{index}].jsonPath");
        let given = field.json_path.as_str();
        if given.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let invalid = |detail: &str| FieldError::invalid(&at, quote(given), detail);
        let Some(found) = find(schema, given) else {
            errors.push(invalid("is an invalid path: does not refer to a valid field"));
            continue;
        };
        if given == ".metadata" || given.starts_with(".metadata.") {
            errors.push(invalid("must not point to fields in metadata"));
        }
        if !matches!(found.json_type, Some(json_type) if is_scalar(json_type)) {
            errors.push(invalid(NO_SCALAR));
        }
        let known = given.trim_start_matches('.').to_owned();
        if paths.contains(&known) {
            errors.push(FieldError::duplicate(at, quote(given)));
        } else {
            paths.push(known);
        }
    }
    faults.extend(errors.iter().map(ToString::to_string));
    SelectableFields::new(paths)
}

const NO_SCALAR: &str = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";

/// The errors in the selectable fields of a stored kind: numbers, whose string form is ambiguous, and more fields than
/// kube-apiserver allows. In a computed kind every scalar can be selectable.
pub(super) fn faults_of_stored(
    fields: &[SelectableField],
    schema: &Schema,
    path: &str,
) -> Vec<String> {
    let is_number = |field: &SelectableField| {
        let found = find(schema, &field.json_path).and_then(|found| found.json_type);
        found == Some(JsonType::Number)
    };
    let numbers = fields.iter().enumerate().filter(|(_, field)| is_number(field));
    let fault = |(index, field): (usize, &SelectableField)| {
        let at = format!("{path}.selectableFields[{index}].jsonPath");
        FieldError::invalid(at, quote(&field.json_path), NO_SCALAR)
    };
    let mut faults: Vec<FieldError> = numbers.map(fault).collect();
    if fields.len() as u64 > LIMIT {
        let at = format!("{path}.selectableFields");
        faults.push(FieldError::too_many(at, fields.len(), LIMIT));
    }
    faults.iter().map(ToString::to_string).collect()
}

fn find<'a>(schema: &'a Schema, path: &str) -> Option<Type<'a>> {
    let mut steps = path.strip_prefix('.')?.split('.');
    steps.try_fold(schema.root(), |of, step| Some(of.member(step)?.1))
}

fn is_scalar(json_type: JsonType) -> bool {
    matches!(json_type, JsonType::String | JsonType::Boolean | JsonType::Integer | JsonType::Number)
}
