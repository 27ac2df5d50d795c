//! Namespaces.

use aggregated_apiserver::{Filled, NameRule, Rules, SelectableFields, Strategy};
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec, NamespaceStatus};
use serde_json::json;

use crate::built_in::defaulting::set_default;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::common;
use crate::controllers::namespaces::FINALIZER;

/// The label by which a namespace is selected by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) fn row() -> Row<Namespace> {
    Row {
        short_names: &["ns"],
        subresources: Subresources::Status,
        columns: columns(),
        rules: Rules::new().prepare(|namespace, _| prepare(namespace)),
        ..Row::new(strategy())
    }
}

/// What belongs to nobody unless a client says what it is.
const FILLED: &[Filled] = &[
    Filled::field("/spec/finalizers"),
    Filled::field("/metadata/labels/kubernetes.io~1metadata.name").of_generated_names(),
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
    // Every namespace has it, so that it stays until the controller has emptied it.
    let spec = namespace.spec.get_or_insert_with(NamespaceSpec::default);
    let finalizers = spec.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
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
    fn one_that_is_deleted_is_terminating_and_held_until_it_is_empty() {
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
