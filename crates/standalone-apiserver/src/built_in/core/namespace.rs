//! Namespaces.

use aggregated_apiserver::strategy::{FilledField, NameRule, names};
use aggregated_apiserver::{FieldError, SelectableFields, Strategy, Validation};
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec, NamespaceStatus};
use serde_json::json;

use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::defaulting::set_default;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::common;
use crate::controllers::namespaces::FINALIZER;

/// The label that selects a namespace by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) fn row() -> Row<Namespace> {
    Row {
        short_names: &["ns"],
        subresources: Subresources::Status,
        columns: columns(),
        rules: Validation::new()
            .prepare(|namespace, _| prepare(namespace))
            .validate(|namespace, old, _| validate(namespace, old))
            .validate_status(|namespace, _, _| validate_status(namespace)),
        ..Row::new(strategy())
    }
}

/// The fields that no manager owns unless a client sets them.
const FILLED: &[FilledField] = &[
    FilledField::field("/spec/finalizers"),
    FilledField::field("/metadata/labels/kubernetes.io~1metadata.name").of_generated_names(),
];

fn strategy() -> Strategy {
    Strategy {
        names: NameRule::Dns1123Label,
        has_generation: false,
        selectable: SelectableFields::default().with_field("status.phase", "").with_field_at(
            "name",
            &["metadata.name"],
            "",
        ),
        deletes_collections: false,
        held_by: Some("/spec/finalizers"),
        has_finalize: true,
        marked_by_time_alone: true,
        prepare_for_deletion: Some(|namespace, _| {
            let status = namespace.entry("status").or_insert_with(|| json!({}));
            status["phase"] = "Terminating".into();
        }),
        kept_if_omitted: &["/spec"],
        filled_by_system: FILLED,
        ..common()
    }
}

fn columns() -> Vec<Column<Namespace>> {
    vec![Column::path("Status", ".status.phase"), Column::age()]
}

fn prepare(namespace: &mut Namespace) {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    namespace.metadata.labels.get_or_insert_default().insert(NAME_LABEL.to_owned(), name);
    let status = namespace.status.get_or_insert_with(NamespaceStatus::default);
    set_default(&mut status.phase, "Active");
    // Every namespace has this finalizer, so that it remains until the controller has emptied it.
    let spec = namespace.spec.get_or_insert_with(NamespaceSpec::default);
    let finalizers = spec.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
}

/// Finalizers without a group that are allowed.
const STANDARD_FINALIZERS: [&str; 3] = [FINALIZER, "orphan", "foregroundDeletion"];

/// Validates a namespace. Its finalizers change only through a subresource.
fn validate(namespace: &Namespace, old: Option<&Namespace>) -> FieldErrors {
    let finalizers = |namespace: &Namespace| {
        namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default()
    };
    let mut faults = Vec::new();
    if old.is_some_and(|old| finalizers(old) == finalizers(namespace)) {
        return faults;
    }
    for (index, finalizer) in finalizers(namespace).iter().enumerate() {
        let at = match old {
            None => "spec.finalizers".to_owned(),
            Some(_) => format!("spec.finalizers[{index}]"),
        };
        check_with(&at, finalizer, names::check_label_key, &mut faults);
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            faults.push(FieldError::invalid(at, quote(finalizer), why));
        }
    }
    faults
}

/// Validates the status of a namespace: its phase depends on its deletion.
fn validate_status(namespace: &Namespace) -> FieldErrors {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    let (expected, why) = match namespace.metadata.deletion_timestamp {
        None => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        Some(_) => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    let phase = phase.unwrap_or_default();
    let is_wrong = phase != expected;
    is_wrong.then(|| FieldError::invalid("status.Phase", quote(phase), why)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{now, prepared};
    use serde_json::{Map, Value};

    #[test]
    fn defaults() {
        for (namespace, labels, phase, finalizers) in [
            (
                json!({"metadata": {"name": "a"}}),
                json!({NAME_LABEL: "a"}),
                "Active",
                json!([FINALIZER]),
            ),
            (
                json!({"metadata": {"name": "a", "labels": {NAME_LABEL: "b", "c": "d"}}}),
                json!({NAME_LABEL: "a", "c": "d"}),
                "Active",
                json!([FINALIZER]),
            ),
            (
                json!({
                    "metadata": {"name": "a"}, "spec": {"finalizers": ["x"]},
                    "status": {"phase": "Terminating"},
                }),
                json!({NAME_LABEL: "a"}),
                "Terminating",
                json!(["x", FINALIZER]),
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"finalizers": [FINALIZER]}}),
                json!({NAME_LABEL: "a"}),
                "Active",
                json!([FINALIZER]),
            ),
        ] {
            let filled = prepared(prepare, namespace);
            assert_eq!(filled["metadata"]["labels"], labels);
            assert_eq!(filled["status"]["phase"], phase);
            assert_eq!(filled["spec"]["finalizers"], finalizers);
        }
    }

    #[test]
    fn a_deleted_namespace_is_terminating_and_waits_for_its_finalizers() {
        let strategy = strategy();
        let mut namespace = Map::new();
        strategy.prepare_for_deletion.unwrap()(&mut namespace, now());
        assert_eq!(Value::Object(namespace), json!({"status": {"phase": "Terminating"}}));
        let held = json!({"spec": {"finalizers": [FINALIZER]}});
        assert!(strategy.holds(held.as_object().unwrap()));
        let free = json!({"spec": {"finalizers": []}});
        assert!(!strategy.holds(free.as_object().unwrap()));
    }
}
