//! Jobs.

mod cells;

use std::collections::BTreeMap;

use aggregated_apiserver::{FieldError, Filled, Rules, SelectableFields, Strategy};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::job_spec;
use crate::built_in::checks::{FieldErrors, check_immutable, to_json};
use crate::built_in::defaulting::{is_new, set_default};
use crate::built_in::label_selector;
use crate::built_in::row::{ALL, Row, Subresources};
use crate::built_in::strategy::common;

pub(crate) fn row() -> Row<Job> {
    let rules =
        Rules::new().prepare(|job, _| prepare(job)).validate(|job, old, _| validate(job, old));
    Row {
        categories: ALL,
        subresources: Subresources::Status,
        columns: cells::columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// What belongs to nobody unless a client says what it is.
const FILLED: &[Filled] = &[
    Filled::field("/metadata/labels").like("/spec/template/metadata/labels"),
    Filled::field("/spec/selector"),
    Filled::field("/spec/template/metadata/labels"),
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
    let (name, uid) = (job.metadata.name.clone(), job.metadata.uid.clone());
    let is_new = is_new(&job.metadata);
    let spec = job.spec.get_or_insert_default();
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(1);
    }
    spec.parallelism.get_or_insert(1);
    // With a limit for each index there is none for all together.
    let limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
    spec.backoff_limit.get_or_insert(limit);
    spec.suspend.get_or_insert(false);
    spec.manual_selector.get_or_insert(false);
    set_default(&mut spec.completion_mode, "NonIndexed");
    let has_policy = spec.pod_failure_policy.is_some();
    let replaced = if has_policy { "Failed" } else { "TerminatingOrFailed" };
    set_default(&mut spec.pod_replacement_policy, replaced);
    job_spec::set_defaults(spec);
    if is_new && spec.manual_selector != Some(true) {
        add_selector(spec, &name.unwrap_or_default(), &uid.unwrap_or_default());
    }
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    if job.metadata.labels.as_ref().is_none_or(BTreeMap::is_empty) {
        job.metadata.labels = labels.filter(|labels| !labels.is_empty());
    }
}

/// Labels the Pods of a Job, with the new and the old names of its labels, and selects
/// them.
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

fn validate(job: &Job, old: Option<&Job>) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &job.spec else { return faults };
    job_spec::validate(spec, "spec", &mut faults);
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    match &spec.selector {
        None => faults.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            label_selector::validate(selector, "spec.selector", &mut faults);
            let is_own = spec.manual_selector == Some(true) || is_generated(selector);
            if old.is_none() && !is_own {
                let why = "`selector` not auto-generated";
                faults.push(FieldError::invalid("spec.selector", to_json(selector), why));
            }
            if !label_selector::matches(selector, labels) {
                let why = "`selector` does not match template `labels`";
                let at = "spec.template.metadata.labels";
                faults.push(FieldError::invalid(at, to_json(&labels), why));
            }
        }
    }
    let Some(old) = old.and_then(|old| old.spec.as_ref()) else { return faults };
    let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
    if is_indexed && spec.completions != old.completions && spec.completions != spec.parallelism {
        let why = "can only be modified in tandem with spec.parallelism";
        faults.push(FieldError::invalid("spec.completions", to_json(&spec.completions), why));
    }
    if !is_indexed {
        check_immutable("spec.completions", &spec.completions, &old.completions, &mut faults);
    }
    check_immutable("spec.selector", &spec.selector, &old.selector, &mut faults);
    if old.suspend != Some(true) {
        check_immutable("spec.template", &spec.template, &old.template, &mut faults);
    }
    let (mode, policy) = (&spec.completion_mode, &spec.pod_failure_policy);
    check_immutable("spec.completionMode", mode, &old.completion_mode, &mut faults);
    check_immutable("spec.podFailurePolicy", policy, &old.pod_failure_policy, &mut faults);
    let limit = &spec.backoff_limit_per_index;
    check_immutable("spec.backoffLimitPerIndex", limit, &old.backoff_limit_per_index, &mut faults);
    check_immutable("spec.managedBy", &spec.managed_by, &old.managed_by, &mut faults);
    check_immutable("spec.successPolicy", &spec.success_policy, &old.success_policy, &mut faults);
    faults
}

/// Whether a selector looks like one that the server made.
fn is_generated(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_some_and(|labels| labels.len() == 1)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, prepared};
    use serde_json::{Value, json};

    fn defaulted(job: Value) -> Value {
        prepared(prepare, job)
    }

    fn job(more: Value) -> Value {
        let mut spec = json!({
            "completions": 1, "parallelism": 1,
            "selector": {"matchLabels": {"u": "1"}},
            "template": {
                "metadata": {"labels": {"u": "1"}},
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
            },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
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
    fn defaults_that_depend() {
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

    #[test]
    fn faults() {
        for (more, expected) in [
            (json!({}), vec![]),
            (json!({"selector": null}), vec!["spec.selector: Required value"]),
            (
                json!({"selector": {"matchLabels": {"u": "1", "v": "2"}}}),
                vec![
                    "spec.selector: Invalid value: {\"matchLabels\":{\"u\":\"1\",\"v\":\"2\"}}: `selector` not auto-generated",
                    "spec.template.metadata.labels: Invalid value: {\"u\":\"1\"}: `selector` does not match template `labels`",
                ],
            ),
            (json!({"selector": {}, "manualSelector": true}), vec![]),
            (
                json!({"parallelism": -1, "completions": null, "completionMode": "Indexed"}),
                vec![
                    "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
                    "spec.completions: Required value: when completion mode is Indexed",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, job(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn what_an_update_may_not_change() {
        let indexed = json!({"completionMode": "Indexed"});
        let both = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2});
        let one = json!({"completionMode": "Indexed", "completions": 2});
        for (old, new, expected) in [
            (json!({}), json!({"parallelism": 5}), vec![]),
            (
                json!({}),
                json!({"completions": 5}),
                vec!["spec.completions: Invalid value: 5: field is immutable"],
            ),
            (indexed.clone(), both, vec![]),
            (
                indexed,
                one,
                vec![
                    "spec.completions: Invalid value: 2: can only be modified in tandem with spec.parallelism",
                ],
            ),
            (
                json!({}),
                json!({"backoffLimitPerIndex": 1, "managedBy": "a.b/c"}),
                vec![
                    "spec.backoffLimitPerIndex: Invalid value: 1: field is immutable",
                    "spec.managedBy: Invalid value: \"a.b/c\": field is immutable",
                ],
            ),
        ] {
            let faults = faults_of_update(validate, job(old), job(new.clone()));
            assert_eq!(faults, expected, "{new}");
        }
    }

    #[test]
    fn its_template_may_change_while_it_is_suspended() {
        let other = json!({
            "metadata": {"labels": {"u": "1"}},
            "spec": {"containers": [{"name": "d", "image": "i"}], "restartPolicy": "Never"},
        });
        let new = job(json!({"template": other}));
        let count = |old: Value| faults_of_update(validate, job(old), new.clone()).len();
        assert_eq!(count(json!({"suspend": true})), 0);
        assert_eq!(count(json!({"suspend": false})), 1);
    }
}
