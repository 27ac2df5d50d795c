//! Jobs.

mod cells;
mod status;
mod validation;

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::FilledField;
use aggregated_apiserver::{SelectableFields, Strategy, Validation};
use k8s_openapi::api::batch::v1::{Job, JobSpec};

use super::job_spec;
use crate::built_in::defaulting::{is_new, set_missing};
use crate::built_in::pod_template::{self, warnings};
use crate::built_in::row::{ALL, Row, Subresources};
use crate::built_in::strategy::common;

pub(crate) fn row() -> Row<Job> {
    let rules = Validation::new()
        .prepare(|job, context| {
            prepare(job);
            if context.is_admitted && is_new(&job.metadata) {
                set_selector(job);
            }
            set_default_labels(job);
            let old = context.old::<Job>();
            let old = old.as_ref().and_then(|old| old.spec.as_ref()).map(|old| &old.template);
            if let Some(spec) = &mut job.spec {
                pod_template::drop_disabled(&mut spec.template, old);
            }
        })
        .validate(|job, old, _| validation::validate(job, old))
        .validate_status(|job, old, _| status::validate(job, old))
        .warn(|job, old, _| warnings(job, old));
    Row {
        categories: ALL,
        subresources: Subresources::Status,
        columns: cells::columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// The fields that no manager owns unless a client sets them.
const FILLED: &[FilledField] = &[
    FilledField::field("/metadata/labels").like("/spec/template/metadata/labels"),
    FilledField::field("/spec/selector"),
    FilledField::field("/spec/template/metadata/labels"),
];

fn strategy() -> Strategy {
    let selectable =
        SelectableFields::default().with_field_at("status.successful", &["status.succeeded"], "0");
    let why = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
    Strategy {
        selectable,
        warning_without_propagation_policy: Some(why),
        filled_by_system: FILLED,
        ..common()
    }
}

fn prepare(job: &mut Job) {
    let spec = job.spec.get_or_insert_default();
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(1);
    }
    spec.parallelism.get_or_insert(1);
    // With a limit for each index, there is no limit for all indexes together.
    let limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
    spec.backoff_limit.get_or_insert(limit);
    spec.suspend.get_or_insert(false);
    spec.manual_selector.get_or_insert(false);
    set_missing(&mut spec.completion_mode, "NonIndexed");
    let has_policy = spec.pod_failure_policy.is_some();
    let replaced = if has_policy { "Failed" } else { "TerminatingOrFailed" };
    set_missing(&mut spec.pod_replacement_policy, replaced);
    job_spec::set_defaults(spec);
}

/// Sets the labels of a Job without labels to those of its Pods.
fn set_default_labels(job: &mut Job) {
    let template = job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let labels = template.and_then(|metadata| metadata.labels.clone());
    if job.metadata.labels.as_ref().is_none_or(BTreeMap::is_empty) {
        job.metadata.labels = labels.filter(|labels| !labels.is_empty());
    }
}

/// Sets the selector of a new Job.
fn set_selector(job: &mut Job) {
    let (name, uid) = (job.metadata.name.clone(), job.metadata.uid.clone());
    let spec = job.spec.get_or_insert_default();
    if spec.manual_selector != Some(true) {
        add_selector(spec, &name.unwrap_or_default(), &uid.unwrap_or_default());
    }
}

/// Labels the Pods of a Job, with the new and the old names of its labels, and sets the selector for these labels.
fn add_selector(spec: &mut JobSpec, name: &str, uid: &str) {
    let labels = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
        ("controller-uid", uid),
        ("job-name", name),
    ] {
        labels.entry(label.to_owned()).or_insert_with(|| value.to_owned());
    }
    let selected = spec.selector.get_or_insert_default().match_labels.get_or_insert_default();
    selected
        .entry("batch.kubernetes.io/controller-uid".to_owned())
        .or_insert_with(|| uid.to_owned());
}

/// Warnings about a Job that is new or has a new generation.
fn warnings(job: &Job, old: Option<&Job>) -> Vec<String> {
    let generation = |job: &Job| job.metadata.generation;
    if old.is_some_and(|old| generation(old) == generation(job)) {
        return Vec::new();
    }
    let name = job.metadata.name.as_deref();
    let of_name = old.is_none().then(|| warnings::of_name(name)).flatten();
    let of_spec = job.spec.as_ref().map(|spec| job_spec::warnings(spec, "spec"));
    of_name.into_iter().chain(of_spec.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::prepared;
    use serde_json::{Value, json};

    fn defaulted(job: Value) -> Value {
        let prepare = |job: &mut Job| {
            prepare(job);
            if is_new(&job.metadata) {
                set_selector(job);
            }
            set_default_labels(job);
        };
        prepared(prepare, job)
    }

    #[test]
    fn defaults() {
        let filled = defaulted(json!({
            "metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {}}},
        }));
        for (field, value) in [
            ("completions", json!(1)),
            ("parallelism", json!(1)),
            ("backoffLimit", json!(6)),
            ("suspend", json!(false)),
            ("manualSelector", json!(false)),
            ("completionMode", json!("NonIndexed")),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
            ("selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})),
        ] {
            assert_eq!(filled["spec"][field], value, "{field}");
        }
        let labels = json!({
            "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
            "controller-uid": "u", "job-name": "j",
        });
        assert_eq!(filled["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(filled["metadata"]["labels"], labels);
    }

    #[test]
    fn job_defaults_depend_on_other_fields() {
        let spec = |spec: Value| defaulted(json!({"spec": spec}))["spec"].clone();
        let queue = spec(json!({"parallelism": 2}));
        assert_eq!((&queue["completions"], &queue["parallelism"]), (&json!(null), &json!(2)));
        assert_eq!(spec(json!({"backoffLimitPerIndex": 1}))["backoffLimit"], i32::MAX);
        let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "x"}]}]});
        let filled = spec(json!({"podFailurePolicy": policy}));
        assert_eq!(filled["podReplacementPolicy"], "Failed");
        let pattern = &filled["podFailurePolicy"]["rules"][0]["onPodConditions"][0];
        assert_eq!(*pattern, json!({"type": "x", "status": "True"}));
        assert_eq!(spec(json!({"manualSelector": true}))["selector"], json!(null));
        let updated = defaulted(json!({"metadata": {"resourceVersion": "1"}}));
        assert_eq!(updated["spec"]["selector"], json!(null));
    }
}
