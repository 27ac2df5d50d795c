//! ReplicaSets.

use aggregated_apiserver::Validation;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};

use super::replicated::{check_change, check_counts, check_selector, check_template};
use crate::built_in::checks::{FieldErrors, check_not_negative};
use crate::built_in::label_selector;
use crate::built_in::pod_template::{self, containers_column, images_column, warnings};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy;

pub(crate) fn row() -> Row<ReplicaSet> {
    let rules = Validation::new()
        .prepare(|set, context| {
            prepare(set);
            let old = context.old::<ReplicaSet>();
            let old = old.as_ref().and_then(|old| old.spec.as_ref()?.template.as_ref());
            if let Some(template) = set.spec.as_mut().and_then(|spec| spec.template.as_mut()) {
                pod_template::drop_disabled(template, old);
            }
        })
        .validate(|set, old, _| validate(set, old))
        .validate_status(|set, _, _| validate_status(set))
        .warn(|set, old, _| warnings(set, old));
    Row {
        short_names: &["rs"],
        categories: ALL,
        subresources: Subresources::StatusAndScale,
        columns: columns(),
        rules,
        ..Row::new(strategy::with_generation())
    }
}

fn columns() -> Vec<Column<ReplicaSet>> {
    vec![
        Column::count("Desired", |one| one.spec.as_ref()?.replicas),
        Column::count("Current", |one| Some(one.status.as_ref()?.replicas)),
        Column::count("Ready", |one| one.status.as_ref()?.ready_replicas),
        Column::age(),
        containers_column(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        images_column(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        label_selector::column(|one| Some(&one.spec.as_ref()?.selector)),
    ]
}

fn prepare(set: &mut ReplicaSet) {
    let spec = set.spec.get_or_insert_default();
    spec.replicas.get_or_insert(1);
    if let Some(template) = &mut spec.template {
        pod_template::set_defaults(template);
    }
}

fn validate(set: &ReplicaSet, old: Option<&ReplicaSet>) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &set.spec else { return faults };
    check_not_negative("spec.replicas", spec.replicas, &mut faults);
    check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
    // The message of kube-apiserver names a Deployment here, too.
    check_selector(&spec.selector, "deployment", &mut faults);
    let old = old.and_then(|old| old.spec.as_ref());
    let old_template = old.and_then(|old| old.template.as_ref());
    check_template(spec.template.as_ref(), old_template, &spec.selector, &mut faults);
    check_change(&spec.selector, old.map(|old| &old.selector), &mut faults);
    faults
}

fn validate_status(set: &ReplicaSet) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = ReplicaSetStatus::default();
    let status = set.status.as_ref().unwrap_or(&nothing);
    let above = "cannot be greater than status.replicas";
    check_counts(
        &[
            ("replicas", Some(i64::from(status.replicas))),
            ("fullyLabeledReplicas", status.fully_labeled_replicas.map(i64::from)),
            ("readyReplicas", status.ready_replicas.map(i64::from)),
            ("availableReplicas", status.available_replicas.map(i64::from)),
            ("observedGeneration", status.observed_generation),
            ("terminatingReplicas", status.terminating_replicas.map(i64::from)),
        ],
        &[
            ("fullyLabeledReplicas", "replicas", above),
            ("readyReplicas", "replicas", above),
            ("availableReplicas", "replicas", above),
            ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
        ],
        &mut faults,
    );
    faults
}

/// Warnings about the template of a ReplicaSet that is new or has a new generation.
fn warnings(set: &ReplicaSet, old: Option<&ReplicaSet>) -> Vec<String> {
    let generation = |set: &ReplicaSet| set.metadata.generation;
    if old.is_some_and(|old| generation(old) == generation(set)) {
        return Vec::new();
    }
    let name = set.metadata.name.as_deref();
    let of_name = old.is_none().then(|| warnings::of_name(name)).flatten();
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let of_template = template.map(|template| warnings::of_template(template, "spec.template"));
    of_name.into_iter().chain(of_template.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, prepared};
    use serde_json::{Value, json};

    fn set(more: Value) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"a": "b"}},
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
        let filled = prepared(prepare, json!({"spec": {"template": {"spec": {}}}}));
        assert_eq!(filled["spec"]["replicas"], 1);
        assert_eq!(filled["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
        let filled = prepared(prepare, json!({"spec": {"replicas": 0}}));
        assert_eq!(filled["spec"]["replicas"], 0);
        assert_eq!(filled["spec"]["template"], json!(null));
    }

    #[test]
    fn replica_set_validation_reports_invalid_fields() {
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        let mut never = pod.clone();
        never["restartPolicy"] = "Never".into();
        never["activeDeadlineSeconds"] = 5.into();
        let template = |labels: Value, pod: &Value| json!({"template": {"metadata": {"labels": labels}, "spec": pod}});
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"replicas": -1, "minReadySeconds": -2}),
                vec![
                    "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                    "spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
                ],
            ),
            (
                json!({"selector": {}}),
                vec![
                    "spec.selector: Required value",
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
                ],
            ),
            (
                json!({"selector": {"matchLabels": {}}}),
                vec![
                    "spec.selector: Invalid value: {\"matchLabels\":{}}: empty selector is invalid for deployment",
                ],
            ),
            (
                template(json!({"a": "c"}), &pod),
                vec![
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
                ],
            ),
            (
                template(json!({"a": "b"}), &never),
                vec![
                    "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                    "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, set(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn replica_set_selector_is_immutable() {
        let labels = json!({"a": "b", "c": "d"});
        let old = json!({"selector": {"matchLabels": labels}});
        let faults = faults_of_update(validate, set(old.clone()), set(json!({})));
        assert_eq!(
            faults,
            ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: field is immutable"]
        );
        assert_eq!(faults_of_update(validate, set(json!({})), set(json!({}))), [] as [&str; 0]);
    }

    #[test]
    fn replica_set_printer_columns_are_filled() {
        let mut set = set(json!({"replicas": 3}));
        set["status"] = json!({"replicas": 2, "readyReplicas": 1});
        assert_eq!(
            cells(columns(), set),
            json!({
                "Desired": 3, "Current": 2, "Ready": 1, "Age": "<unknown>",
                "Containers": "c", "Images": "i", "Selector": "a=b",
            })
        );
    }
}
