//! ControllerRevisions.

use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use crate::built_in::cell_texts::NONE;
use crate::built_in::checks::{FieldErrors, check_immutable, check_not_negative};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;

pub(crate) fn row() -> Row<ControllerRevision> {
    let rules = Validation::new().validate(|revision, old, _| validate(revision, old));
    Row { columns: columns(), rules, ..Row::new(without_generation()) }
}

fn columns() -> Vec<Column<ControllerRevision>> {
    vec![
        Column::computed("Controller", |revision: &ControllerRevision, _| {
            let mut owners = revision.metadata.owner_references.iter().flatten();
            let controller = owners.find(|owner| owner.controller == Some(true));
            controller.map_or_else(|| NONE.to_owned(), shown)
        }),
        Column::computed("Revision", |revision: &ControllerRevision, _| revision.revision),
        Column::age(),
    ]
}

/// An owner in the format `daemonset.apps/name`.
fn shown(owner: &OwnerReference) -> String {
    let kind = match owner.api_version.split_once('/') {
        Some((group, _)) => format!("{}.{group}", owner.kind),
        None => owner.kind.clone(),
    };
    format!("{}/{}", kind.to_lowercase(), owner.name)
}

fn validate(revision: &ControllerRevision, old: Option<&ControllerRevision>) -> FieldErrors {
    let mut faults = Vec::new();
    check_not_negative("revision", Some(revision.revision), &mut faults);
    if let Some(old) = old {
        check_immutable("data", &revision.data, &old.data, &mut faults);
        return faults;
    }
    match revision.data.as_ref().map(|data| &data.0) {
        None | Some(Value::Null) => {
            faults.push(FieldError::required("data", "data is mandatory"));
        }
        Some(Value::Object(_)) => {}
        Some(_) => faults.push(FieldError::required("data", "data must be a valid JSON object")),
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::json;

    #[test]
    fn invalid_controller_revisions_are_rejected() {
        for (revision, expected) in [
            (json!({"revision": 1, "data": {"a": null}}), vec![]),
            (
                json!({"revision": -1}),
                vec![
                    "revision: Invalid value: -1: must be greater than or equal to 0",
                    "data: Required value: data is mandatory",
                ],
            ),
            (
                json!({"revision": 1, "data": "a"}),
                vec!["data: Required value: data must be a valid JSON object"],
            ),
        ] {
            assert_eq!(faults_of_new(validate, revision.clone()), expected, "{revision}");
        }
        let [old, new] = [1, 2].map(|value| json!({"revision": value, "data": {"a": value}}));
        assert_eq!(
            faults_of_update(validate, old, new),
            ["data: Invalid value: {\"a\":2}: field is immutable"]
        );
    }

    #[test]
    fn a_controller_revision_is_printed_as_a_table_row() {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true,
        });
        let revision = json!({"metadata": {"ownerReferences": [owner]}, "revision": 3});
        assert_eq!(
            cells(columns(), revision),
            json!({"Controller": "daemonset.apps/d", "Revision": 3, "Age": "<unknown>"})
        );
        assert_eq!(cells(columns(), json!({"revision": 1}))["Controller"], "<none>");
    }
}
