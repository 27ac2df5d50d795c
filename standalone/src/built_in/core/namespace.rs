//! Namespaces.

use aggregated_apiserver::{NameRule, Rules, SelectableFields, Strategy};
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec, NamespaceStatus};
use serde_json::json;

use crate::built_in::defaulting::fill;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::base;

/// The label by which a namespace can be selected.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// What holds a namespace until it is empty.
const FINALIZER: &str = "kubernetes";

pub(crate) fn row() -> Row<Namespace> {
    Row {
        short_names: &["ns"],
        subresources: Subresources::Status,
        columns: columns(),
        rules: Rules::none().prepare(|namespace, _| prepare(namespace)),
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        names: NameRule::Label,
        has_generation: false,
        selectable: SelectableFields::default().or("status.phase", "").found_at(
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
        kept: &["/spec"],
        ..base()
    }
}

fn columns() -> Vec<Column<Namespace>> {
    vec![Column::path("Status", ".status.phase"), Column::age()]
}

fn prepare(namespace: &mut Namespace) {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    namespace.metadata.labels.get_or_insert_default().insert(NAME_LABEL.to_owned(), name);
    let status = namespace.status.get_or_insert_with(NamespaceStatus::default);
    fill(&mut status.phase, "Active");
    // Whoever writes it: it is held until it is empty.
    let spec = namespace.spec.get_or_insert_with(NamespaceSpec::default);
    let finalizers = spec.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
}
