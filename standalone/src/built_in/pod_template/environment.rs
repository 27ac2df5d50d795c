//! Environment variables.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::EnvVar;

use crate::built_in::checks::{FieldErrors, quote};

const VARIABLE: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// Fields of a Pod that a variable may refer to.
const FIELDS: [&str; 10] = [
    "spec.host",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Validates an environment variable.
pub(crate) fn check_variable(variable: &EnvVar, at: &str, faults: &mut FieldErrors) {
    let is_good = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    if variable.name.is_empty() {
        faults.push(FieldError::required(format!("{at}.name"), ""));
    } else if !variable.name.bytes().all(is_good) {
        let name = quote(&variable.name);
        faults.push(FieldError::invalid(format!("{at}.name"), name, VARIABLE));
    }
    let Some(from) = &variable.value_from else { return };
    let at = format!("{at}.valueFrom");
    let mut sources = 0;
    if let Some(field) = &from.field_ref {
        sources += 1;
        let at = format!("{at}.fieldRef.fieldPath");
        let path = field.field_path.as_str();
        let is_of_map = ["metadata.labels['", "metadata.annotations['"]
            .into_iter()
            .any(|map| path.starts_with(map) && path.ends_with("']"));
        if path.is_empty() {
            faults.push(FieldError::required(at, ""));
        } else if !is_of_map && !FIELDS.contains(&path) {
            let why = format!("error converting fieldPath: field label not supported: {path}");
            faults.push(FieldError::invalid(at, quote(path), &why));
        }
    }
    if let Some(resource) = &from.resource_field_ref {
        sources += 1;
        if resource.resource.is_empty() {
            faults.push(FieldError::required(format!("{at}.resourceFieldRef.resource"), ""));
        }
    }
    let keys = [
        ("configMapKeyRef", from.config_map_key_ref.as_ref().map(|key| (&key.name, &key.key))),
        ("secretKeyRef", from.secret_key_ref.as_ref().map(|key| (&key.name, &key.key))),
    ];
    for (field, key) in keys {
        let Some((_, key)) = key else { continue };
        sources += 1;
        if key.is_empty() {
            faults.push(FieldError::required(format!("{at}.{field}.key"), ""));
        }
    }
    sources += usize::from(from.file_key_ref.is_some());
    let why = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if variable.value.as_ref().is_some_and(|value| !value.is_empty()) => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    faults.push(FieldError::invalid(at, "\"\"", why));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn faults() {
        let field =
            |path: &str| json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let invalid = |why: &str| format!("e.valueFrom: Invalid value: \"\": {why}");
        let key = json!({"name": "s", "key": "k"});
        for (variable, expected) in [
            (json!({"name": "A", "value": "b"}), vec![]),
            (json!({"name": ""}), vec!["e.name: Required value".to_owned()]),
            (json!({"name": "A=B"}), vec![format!("e.name: Invalid value: \"A=B\": {VARIABLE}")]),
            (field("metadata.name"), vec![]),
            (field("metadata.labels['a']"), vec![]),
            (
                field("spec.x"),
                vec![
                    "e.valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x"
                        .to_owned(),
                ],
            ),
            (
                json!({"name": "A", "valueFrom": {}}),
                vec![invalid(
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
                )],
            ),
            (
                json!({"name": "A", "value": "b", "valueFrom": {"secretKeyRef": key}}),
                vec![invalid("may not be specified when `value` is not empty")],
            ),
            (
                json!({"name": "A", "valueFrom": {"secretKeyRef": key, "configMapKeyRef": {"name": "m", "key": ""}}}),
                vec![
                    "e.valueFrom.configMapKeyRef.key: Required value".to_owned(),
                    invalid("may not have more than one field specified at a time"),
                ],
            ),
        ] {
            let mut faults = Vec::new();
            check_variable(&object(variable.clone()), "e", &mut faults);
            assert_eq!(texts(&faults), expected, "{variable}");
        }
    }
}
