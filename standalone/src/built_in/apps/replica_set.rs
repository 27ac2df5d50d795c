//! ReplicaSets.

use aggregated_apiserver::Rules;
use k8s_openapi::api::apps::v1::ReplicaSet;

use super::replicated::{check_change, check_selector, check_template};
use crate::built_in::checks::{Faults, check_not_negative};
use crate::built_in::label_selector;
use crate::built_in::pod_template::{containers, fill_template, images};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy;

pub(crate) fn row() -> Row<ReplicaSet> {
    let rules =
        Rules::none().prepare(|set, _| prepare(set)).validate(|set, old, _| validate(set, old));
    Row {
        short_names: &["rs"],
        categories: ALL,
        subresources: Subresources::StatusAndScale,
        columns: columns(),
        rules,
        ..Row::new(strategy::counted())
    }
}

fn columns() -> Vec<Column<ReplicaSet>> {
    let count = |heading, field: fn(&ReplicaSet) -> Option<i32>| {
        let count = move |set: &ReplicaSet, _| field(set).unwrap_or_default();
        Column::computed(heading, count).of_type("integer")
    };
    vec![
        count("Desired", |one| one.spec.as_ref()?.replicas),
        count("Current", |one| Some(one.status.as_ref()?.replicas)),
        count("Ready", |one| one.status.as_ref()?.ready_replicas),
        Column::age(),
        containers(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        images(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        label_selector::column(|one| Some(&one.spec.as_ref()?.selector)),
    ]
}

fn prepare(set: &mut ReplicaSet) {
    let spec = set.spec.get_or_insert_default();
    spec.replicas.get_or_insert(1);
    if let Some(template) = &mut spec.template {
        fill_template(template);
    }
}

fn validate(set: &ReplicaSet, old: Option<&ReplicaSet>) -> Faults {
    let mut faults = Vec::new();
    let Some(spec) = &set.spec else { return faults };
    check_not_negative("spec.replicas", spec.replicas, &mut faults);
    check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
    check_selector(&spec.selector, "replicaset", &mut faults);
    check_template(spec.template.as_ref(), &spec.selector, &mut faults);
    let old = old.and_then(|old| old.spec.as_ref()).map(|old| &old.selector);
    check_change(&spec.selector, old, &mut faults);
    faults
}
