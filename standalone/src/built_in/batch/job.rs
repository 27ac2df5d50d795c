//! Jobs.

use std::collections::BTreeMap;

use aggregated_apiserver::{FieldError, Rules, SelectableFields, Strategy, age};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::job_spec::{check_job, fill_job};
use crate::built_in::checks::{Faults, check_kept, shown};
use crate::built_in::defaulting::fill;
use crate::built_in::label_selector;
use crate::built_in::pod_template::{containers, images};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy::base;

pub(crate) fn row() -> Row<Job> {
    let rules =
        Rules::none().prepare(|job, _| prepare(job)).validate(|job, old, _| validate(job, old));
    Row {
        categories: ALL,
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    let selectable =
        SelectableFields::default().found_at("status.successful", &["status.succeeded"], "0");
    let why = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
    Strategy { selectable, warning_without_propagation_policy: Some(why), ..base() }
}

fn columns() -> Vec<Column<Job>> {
    vec![
        Column::computed("Status", |job, _| status(job)),
        Column::computed("Completions", |job, _| completions(job)),
        Column::computed("Duration", duration),
        Column::age(),
        containers(|one| one.spec.as_ref()?.template.spec.as_ref()),
        images(|one| one.spec.as_ref()?.template.spec.as_ref()),
        label_selector::column(|one| one.spec.as_ref()?.selector.as_ref()),
    ]
}

fn status(job: &Job) -> &'static str {
    let holds = |condition: &str| {
        let status = job.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == condition && one.status == "True")
    };
    let names = ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"];
    let found = names.into_iter().find(|condition| holds(condition));
    match (found, job.metadata.deletion_timestamp.is_some()) {
        (Some(shown), _) => shown,
        (None, true) => "Terminating",
        (None, false) => "Running",
    }
}

fn completions(job: &Job) -> String {
    let done = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default();
    let spec = job.spec.as_ref();
    match spec.and_then(|spec| spec.completions) {
        Some(wanted) => format!("{done}/{wanted}"),
        None => match spec.and_then(|spec| spec.parallelism).unwrap_or_default() {
            at_once @ 2.. => format!("{done}/1 of {at_once}"),
            _ => format!("{done}/1"),
        },
    }
}

fn duration(job: &Job, now: Timestamp) -> String {
    let begun = job.status.as_ref().and_then(|status| status.start_time.as_ref());
    let ended = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
    begun.map(|begun| age(begun.0, ended.map_or(now, |time| time.0))).unwrap_or_default()
}

fn prepare(job: &mut Job) {
    let (name, uid) = (job.metadata.name.clone(), job.metadata.uid.clone());
    let is_new = job.metadata.resource_version.is_none();
    let spec = job.spec.get_or_insert_default();
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(1);
    }
    spec.parallelism.get_or_insert(1);
    // Where each index has a limit of its own, all together have none.
    let limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
    spec.backoff_limit.get_or_insert(limit);
    spec.suspend.get_or_insert(false);
    spec.manual_selector.get_or_insert(false);
    fill(&mut spec.completion_mode, "NonIndexed");
    let has_policy = spec.pod_failure_policy.is_some();
    let replaced = if has_policy { "Failed" } else { "TerminatingOrFailed" };
    fill(&mut spec.pod_replacement_policy, replaced);
    fill_job(spec);
    if is_new && spec.manual_selector != Some(true) {
        select(spec, &name.unwrap_or_default(), &uid.unwrap_or_default());
    }
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    if job.metadata.labels.as_ref().is_none_or(BTreeMap::is_empty) {
        job.metadata.labels = labels.filter(|labels| !labels.is_empty());
    }
}

/// The labels by which a Job knows its Pods: in their old and in their new form.
fn select(spec: &mut JobSpec, name: &str, uid: &str) {
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

fn validate(job: &Job, old: Option<&Job>) -> Faults {
    let mut faults = Vec::new();
    let Some(spec) = &job.spec else { return faults };
    check_job(spec, "spec", &mut faults);
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    match &spec.selector {
        None => faults.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            label_selector::check(selector, "spec.selector", &mut faults);
            let is_own = spec.manual_selector == Some(true) || is_generated(selector);
            if old.is_none() && !is_own {
                let why = "`selector` not auto-generated";
                faults.push(FieldError::invalid("spec.selector", shown(selector), why));
            }
            if !label_selector::matches(selector, labels) {
                let why = "`selector` does not match template `labels`";
                let at = "spec.template.metadata.labels";
                faults.push(FieldError::invalid(at, shown(&labels), why));
            }
        }
    }
    let Some(old) = old.and_then(|old| old.spec.as_ref()) else { return faults };
    let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
    if is_indexed && spec.completions != old.completions && spec.completions != spec.parallelism {
        let why = "can only be modified in tandem with spec.parallelism";
        faults.push(FieldError::invalid("spec.completions", shown(&spec.completions), why));
    }
    if !is_indexed {
        check_kept("spec.completions", &spec.completions, &old.completions, &mut faults);
    }
    check_kept("spec.selector", &spec.selector, &old.selector, &mut faults);
    if old.suspend != Some(true) {
        check_kept("spec.template", &spec.template, &old.template, &mut faults);
    }
    let (mode, policy) = (&spec.completion_mode, &spec.pod_failure_policy);
    check_kept("spec.completionMode", mode, &old.completion_mode, &mut faults);
    check_kept("spec.podFailurePolicy", policy, &old.pod_failure_policy, &mut faults);
    let limit = &spec.backoff_limit_per_index;
    check_kept("spec.backoffLimitPerIndex", limit, &old.backoff_limit_per_index, &mut faults);
    check_kept("spec.managedBy", &spec.managed_by, &old.managed_by, &mut faults);
    check_kept("spec.successPolicy", &spec.success_policy, &old.success_policy, &mut faults);
    faults
}

/// Whether a selector is that of one Job alone.
fn is_generated(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_some_and(|labels| labels.len() == 1)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}
