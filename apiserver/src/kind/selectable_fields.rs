//! Selectable fields: what else objects of a version are selected by.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::SelectableField;

use super::{JsonType, Schema};
use crate::object::selector::SelectableFields;

/// As kube-apiserver.
const LIMIT: usize = 8;

/// Parses the selectable fields of the version at `path`.
pub(super) fn parse(
    fields: &[SelectableField],
    schema: &Schema,
    path: &str,
    faults: &mut Vec<String>,
) -> SelectableFields {
    let mut paths: Vec<String> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let mut fault = |message: &str| {
            faults.push(format!("{path}.selectableFields[{index}].jsonPath: {message}"));
        };
        let Some(found) = field.json_path.strip_prefix('.') else {
            fault("must begin with a dot");
            continue;
        };
        if found == "metadata" || found.starts_with("metadata.") {
            fault("must not point to fields in metadata");
        }
        if !is_scalar(schema, found) {
            fault("must point to a field of type string, boolean, integer or number");
        }
        if paths.iter().any(|known| known == found) {
            fault("is there twice");
        }
        paths.push(found.to_owned());
    }
    if paths.len() > LIMIT {
        faults.push(format!("{path}.selectableFields: must have at most {LIMIT} items"));
    }
    SelectableFields::new(paths)
}

fn is_scalar(schema: &Schema, path: &str) -> bool {
    let found = path.split('.').try_fold(schema, |schema, step| schema.properties.get(step));
    let scalars = [JsonType::String, JsonType::Boolean, JsonType::Integer, JsonType::Number];
    found.and_then(|schema| schema.json_type).is_some_and(|found| scalars.contains(&found))
}
