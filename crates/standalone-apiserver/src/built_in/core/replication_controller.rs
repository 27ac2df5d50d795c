//! ReplicationControllers.

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::QuotaUsage;
use aggregated_apiserver::{FieldError, SelectableFields, Strategy, Validation};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerSpec,
};

use crate::built_in::apps::check_runs_forever;
use crate::built_in::cell_texts::{or_none, pairs};
use crate::built_in::checks::{FieldErrors, check_not_negative, to_json};
use crate::built_in::pod_template::{self, containers_column, images_column, warnings};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy::common;

pub(crate) fn row() -> Row<ReplicationController> {
    let rules = Validation::new()
        .prepare(|controller, context| {
            prepare(controller);
            let old = context.old::<ReplicationController>();
            let old = old.as_ref().and_then(|old| old.spec.as_ref()?.template.as_ref());
            if let Some(template) = controller.spec.as_mut().and_then(|spec| spec.template.as_mut())
            {
                pod_template::drop_disabled(template, old);
            }
        })
        .validate(|controller, old, _| validate(controller, old))
        .validate_status(|controller, _, _| validate_status(controller))
        .warn(|controller, old, _| warnings(controller, old));
    Row {
        short_names: &["rc"],
        categories: ALL,
        subresources: Subresources::StatusAndScale,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        selectable: SelectableFields::default().with_field("status.replicas", "0"),
        quota_usage: QuotaUsage::CountAs("replicationcontrollers"),
        ..common()
    }
}

fn columns() -> Vec<Column<ReplicationController>> {
    vec![
        Column::count("Desired", |one| one.spec.as_ref()?.replicas),
        Column::count("Current", |one| Some(one.status.as_ref()?.replicas)),
        Column::count("Ready", |one| one.status.as_ref()?.ready_replicas),
        Column::age(),
        containers_column(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        images_column(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        Column::computed("Selector", |one: &ReplicationController, _| {
            let selector = one.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            or_none(pairs(selector))
        })
        .wide(),
    ]
}

fn prepare(controller: &mut ReplicationController) {
    let spec = controller.spec.get_or_insert_default();
    spec.replicas.get_or_insert(1);
    let Some(template) = &mut spec.template else { return };
    pod_template::set_defaults(template);
    // The selector and the labels default to the labels of the Pod template.
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let Some(labels) = labels.filter(|labels| !labels.is_empty()) else { return };
    let is_missing =
        |labels: &Option<BTreeMap<String, String>>| labels.as_ref().is_none_or(BTreeMap::is_empty);
    if is_missing(&spec.selector) {
        spec.selector = Some(labels.clone());
    }
    if is_missing(&controller.metadata.labels) {
        controller.metadata.labels = Some(labels);
    }
}

fn validate(
    controller: &ReplicationController,
    old: Option<&ReplicationController>,
) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = ReplicationControllerSpec::default();
    let spec = controller.spec.as_ref().unwrap_or(&nothing);
    check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
    let selector = spec.selector.clone().unwrap_or_default();
    if selector.is_empty() {
        faults.push(FieldError::required("spec.selector", ""));
    }
    check_not_negative("spec.replicas", spec.replicas, &mut faults);
    match &spec.template {
        Some(template) => {
            let old = old.and_then(|old| old.spec.as_ref()?.template.as_ref());
            check_template(template, old, &selector, &mut faults);
        }
        None => faults.push(FieldError::required("spec.template", "")),
    }
    faults
}

fn check_template(
    template: &PodTemplateSpec,
    old: Option<&PodTemplateSpec>,
    selector: &BTreeMap<String, String>,
    faults: &mut FieldErrors,
) {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let has = |(key, value): (&String, &String)| {
        labels.is_some_and(|labels| labels.get(key) == Some(value))
    };
    if !selector.iter().all(has) {
        let why = "`selector` does not match template `labels`";
        faults.push(FieldError::invalid("spec.template.metadata.labels", to_json(&labels), why));
    }
    pod_template::validate(template, old, "spec.template", faults);
    check_runs_forever(template, "ReplicationController", faults);
}

fn validate_status(controller: &ReplicationController) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(status) = &controller.status else { return faults };
    let count = |count: Option<i32>| count.unwrap_or_default();
    let all = status.replicas;
    let labelled = count(status.fully_labeled_replicas);
    let (ready, available) = (count(status.ready_replicas), count(status.available_replicas));
    check_not_negative("status.replicas", Some(all), &mut faults);
    check_not_negative("status.fullyLabeledReplicas", Some(labelled), &mut faults);
    check_not_negative("status.readyReplicas", Some(ready), &mut faults);
    check_not_negative("status.availableReplicas", Some(available), &mut faults);
    check_not_negative("status.observedGeneration", status.observed_generation, &mut faults);
    for (field, count, most, why) in [
        ("fullyLabeledReplicas", labelled, all, "cannot be greater than status.replicas"),
        ("readyReplicas", ready, all, "cannot be greater than status.replicas"),
        ("availableReplicas", available, all, "cannot be greater than status.replicas"),
        ("availableReplicas", available, ready, "cannot be greater than readyReplicas"),
    ] {
        if count > most {
            faults.push(FieldError::invalid(format!("status.{field}"), count, why));
        }
    }
    faults
}

/// Warnings about the template of a ReplicationController that is new or has a new generation. On an update,
/// kube-apiserver reads the old template.
fn warnings(
    controller: &ReplicationController,
    old: Option<&ReplicationController>,
) -> Vec<String> {
    let generation = |controller: &ReplicationController| controller.metadata.generation;
    if old.is_some_and(|old| generation(old) == generation(controller)) {
        return Vec::new();
    }
    let name = controller.metadata.name.as_deref();
    let of_name = old.is_none().then(|| warnings::of_name(name)).flatten();
    let template = old.unwrap_or(controller).spec.as_ref().and_then(|spec| spec.template.as_ref());
    let of_template = template.map(|template| warnings::of_template(template, "spec.template"));
    of_name.into_iter().chain(of_template.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, object, prepared, texts};
    use serde_json::{Value, json};

    fn controller(more: Value) -> Value {
        let mut spec = json!({
            "replicas": 1, "selector": {"a": "b"},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"},
            },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    }

    #[test]
    fn defaults() {
        let filled = prepared(prepare, controller(json!({"selector": null, "replicas": null})));
        assert_eq!(filled["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(filled["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(filled["spec"]["replicas"], 1);
        assert_eq!(filled["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    }

    #[test]
    fn invalid_replication_controllers_are_rejected() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"selector": {}, "replicas": -1, "minReadySeconds": -2, "template": null}),
                vec![
                    "spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
                    "spec.selector: Required value",
                    "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                    "spec.template: Required value",
                ],
            ),
            (
                json!({"selector": {"a": "c"}}),
                vec![
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, controller(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn a_status() {
        let status = json!({"replicas": 1, "readyReplicas": 2, "availableReplicas": 3});
        assert_eq!(
            texts(&validate_status(&object(json!({"status": status})))),
            [
                "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas",
            ]
        );
    }

    #[test]
    fn replication_controllers_have_warnings_and_table_rows() {
        assert_eq!(warnings(&object(json!({"metadata": {"name": "a.b"}})), None).len(), 1);
        assert!(warnings(&object(json!({"metadata": {"name": "a"}})), None).is_empty());
        let mut shown = controller(json!({"replicas": 3}));
        shown["status"] = json!({"replicas": 2, "readyReplicas": 1});
        assert_eq!(
            cells(columns(), shown),
            json!({
                "Desired": 3, "Current": 2, "Ready": 1, "Age": "<unknown>",
                "Containers": "c", "Images": "i", "Selector": "a=b",
            })
        );
    }
}
