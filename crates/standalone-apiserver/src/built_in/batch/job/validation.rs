//! The validation of Jobs.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{Affinity, PodTemplateSpec};

use super::status::is_true;
use crate::built_in::batch::job_spec::{self, is_indexed};
use crate::built_in::checks::{FieldErrors, check_immutable, is_same, quote, to_json};
use crate::built_in::label_selector;

const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const OLD_JOB_NAME: &str = "job-name";
const OLD_CONTROLLER_UID: &str = "controller-uid";

/// Validates a Job, compared with the old one if there is any.
pub(super) fn validate(job: &Job, old: Option<&Job>) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &job.spec else { return faults };
    let old_spec = old.and_then(|old| old.spec.as_ref());
    check_generated(job, spec, old_spec, &mut faults);
    let old_template = old_spec.map(|old| &old.template);
    job_spec::validate(spec, old_template, "spec", &mut faults);
    check_selector(spec, &mut faults);
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if is_indexed(spec)
        && let Some(completions) = spec.completions.filter(|count| *count > 0)
    {
        let host = format!("{name}-{}", completions - 1);
        if !names::check_dns_1123_label(&host).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            faults.push(FieldError::invalid("metadata.name", quote(name), &why));
        }
    }
    if let (Some(old), Some(old_spec)) = (old, old_spec) {
        // kube-apiserver validates the spec of an update twice, and reports each error twice.
        job_spec::validate(spec, old_template, "spec", &mut faults);
        check_selector(spec, &mut faults);
        check_change(spec, old_spec, old.status.as_ref(), &mut faults);
    }
    faults
}

fn labels(template: &PodTemplateSpec) -> impl Fn(&str) -> Option<String> {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    move |key| labels.as_ref()?.get(key).cloned()
}

/// Checks the generated labels and the generated selector, unless the client has set the selector.
fn check_generated(job: &Job, spec: &JobSpec, old: Option<&JobSpec>, faults: &mut FieldErrors) {
    let Some(selector) = spec.selector.as_ref().filter(|_| spec.manual_selector != Some(true))
    else {
        return;
    };
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let name = job.metadata.name.clone().unwrap_or_default();
    let needs_new = old.is_none_or(|old| {
        let label = labels(&old.template);
        label(JOB_NAME).is_some() && label(CONTROLLER_UID).is_some()
    });
    let mut expected = vec![(OLD_CONTROLLER_UID, &uid), (OLD_JOB_NAME, &name)];
    if needs_new {
        expected.extend([(CONTROLLER_UID, &uid), (JOB_NAME, &name)]);
    }
    let label = labels(&spec.template);
    for (key, value) in &expected {
        let at = format!("spec.template.metadata.labels[{key}]");
        let why = format!("must be '{value}'");
        match label(key) {
            None => faults.push(FieldError::required(at, &why)),
            Some(found) if found != **value => {
                let all = spec.template.metadata.as_ref().map(|metadata| &metadata.labels);
                faults.push(FieldError::invalid(at, to_json(&all), &why));
            }
            Some(_) => {}
        }
    }
    let mut own = Vec::new();
    label_selector::validate(selector, "", &mut own);
    let expected =
        expected.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    if own.is_empty() && !label_selector::matches(selector, Some(&expected)) {
        let why = "`selector` not auto-generated";
        faults.push(FieldError::invalid("spec.selector", to_json(selector), why));
    }
}

fn check_selector(spec: &JobSpec, faults: &mut FieldErrors) {
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let mut own = Vec::new();
    let is_matched = match &spec.selector {
        None => {
            own.push(FieldError::required("spec.selector", ""));
            false
        }
        Some(selector) => {
            label_selector::validate(selector, "spec.selector", &mut own);
            !own.is_empty() || label_selector::matches(selector, labels)
        }
    };
    faults.append(&mut own);
    if !is_matched {
        let why = "`selector` does not match template `labels`";
        let at = "spec.template.metadata.labels";
        faults.push(FieldError::invalid(at, to_json(&labels), why));
    }
}

fn check_change(
    spec: &JobSpec,
    old: &JobSpec,
    status: Option<&JobStatus>,
    faults: &mut FieldErrors,
) {
    if !is_indexed(spec) {
        check_immutable("spec.completions", &spec.completions, &old.completions, faults);
    } else if spec.completions.is_some()
        && spec.completions != old.completions
        && spec.completions != spec.parallelism
    {
        let why = "can only be modified in tandem with spec.parallelism";
        faults.push(FieldError::invalid("spec.completions", to_json(&spec.completions), why));
    }
    check_immutable("spec.selector", &spec.selector, &old.selector, faults);
    check_template(spec, old, status, faults);
    let (mode, policy) = (&spec.completion_mode, &spec.pod_failure_policy);
    check_immutable("spec.completionMode", mode, &old.completion_mode, faults);
    check_immutable("spec.podFailurePolicy", policy, &old.pod_failure_policy, faults);
    let limit = &spec.backoff_limit_per_index;
    check_immutable("spec.backoffLimitPerIndex", limit, &old.backoff_limit_per_index, faults);
    check_immutable("spec.managedBy", &spec.managed_by, &old.managed_by, faults);
    check_immutable("spec.successPolicy", &spec.success_policy, &old.success_policy, faults);
}

/// Checks the change of a template. In a suspended Job without Pods, the scheduling fields and the resources of
/// containers may change.
fn check_template(
    spec: &JobSpec,
    old: &JobSpec,
    status: Option<&JobStatus>,
    faults: &mut FieldErrors,
) {
    let is_suspended = old.suspend == Some(true);
    let has_started = status.is_some_and(|status| status.start_time.is_some());
    let has_stopped = status.is_some_and(|status| is_true(status, "Suspended"));
    let is_active = status.and_then(|status| status.active).unwrap_or(0) != 0;
    let may_change = is_suspended && (!has_started || has_stopped) && !is_active;
    let mut expected = old.template.clone();
    if may_change {
        allow_scheduling(&mut expected, &spec.template);
        allow_resources(&mut expected, &spec.template);
        let (new, expected) = (&spec.template.spec, &expected.spec);
        if !is_same(new, expected) {
            let why = "field is immutable";
            faults.push(FieldError::invalid("spec.template.spec", to_json(new), why));
        }
    } else {
        check_immutable("spec.template", &spec.template, &expected, faults);
    }
}

/// Copies the scheduling fields from the new template.
fn allow_scheduling(old: &mut PodTemplateSpec, new: &PodTemplateSpec) {
    let (Some(old_spec), Some(new_spec)) = (&mut old.spec, &new.spec) else { return };
    match (&new_spec.affinity, &mut old_spec.affinity) {
        (None, Some(affinity)) => {
            affinity.node_affinity = None;
            if *affinity == Affinity::default() {
                old_spec.affinity = None;
            }
        }
        (Some(new), None) => {
            let node_affinity = new.node_affinity.clone();
            old_spec.affinity = Some(Affinity { node_affinity, ..Affinity::default() });
        }
        (Some(new), Some(affinity)) => affinity.node_affinity.clone_from(&new.node_affinity),
        (None, None) => {}
    }
    old_spec.node_selector.clone_from(&new_spec.node_selector);
    old_spec.tolerations.clone_from(&new_spec.tolerations);
    old_spec.scheduling_gates.clone_from(&new_spec.scheduling_gates);
}

/// Copies the resources of containers with the same names from the new template.
fn allow_resources(old: &mut PodTemplateSpec, new: &PodTemplateSpec) {
    let (Some(old), Some(new)) = (&mut old.spec, &new.spec) else { return };
    let nothing = Vec::new();
    let new_init = new.init_containers.as_ref().unwrap_or(&nothing);
    let both = [
        (&mut old.containers, &new.containers),
        (old.init_containers.get_or_insert_default(), new_init),
    ];
    for (old, new) in both {
        if old.len() != new.len() {
            continue;
        }
        for (old, new) in old.iter_mut().zip(new).filter(|(old, new)| old.name == new.name) {
            old.resources.clone_from(&new.resources);
        }
    }
    if old.init_containers.as_ref().is_some_and(Vec::is_empty) {
        old.init_containers = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    fn job(more: Value) -> Value {
        let mut spec = json!({
            "completions": 1, "parallelism": 1,
            "manualSelector": true, "selector": {"matchLabels": {"u": "1"}},
            "template": {
                "metadata": {"labels": {"u": "1"}},
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
            },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": "j"}, "spec": spec})
    }

    #[test]
    fn job_validation_reports_invalid_fields() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"selector": null}),
                vec![
                    "spec.selector: Required value",
                    "spec.template.metadata.labels: Invalid value: {\"u\":\"1\"}: `selector` does not match template `labels`",
                ],
            ),
            (
                json!({"selector": {"matchLabels": {"u": "1", "v": "2"}}}),
                vec![
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
    fn job_updates_cannot_change_immutable_fields() {
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
                indexed.clone(),
                one,
                vec![
                    "spec.completions: Invalid value: 2: can only be modified in tandem with spec.parallelism",
                ],
            ),
            (
                indexed,
                json!({
                    "completionMode": "Indexed", "backoffLimitPerIndex": 1, "managedBy": "a.b/c",
                }),
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
    fn scheduling_fields_of_a_job_template_can_change_while_suspended() {
        let template = |name: &str, more: Value| {
            let containers = json!([{"name": name, "image": "i", "resources": more["resources"]}]);
            let spec = json!({
                "containers": containers, "restartPolicy": "Never",
                "nodeSelector": more["nodeSelector"],
            });
            json!({"template": {"metadata": {"labels": {"u": "1"}}, "spec": spec}})
        };
        let narrower = json!({"nodeSelector": {"a": "b"}, "resources": {"requests": {"cpu": "1"}}});
        let narrower = template("c", narrower);
        for (is_suspended, new, count) in
            [(true, &narrower, 0), (false, &narrower, 1), (true, &template("d", json!({})), 1)]
        {
            let old = job(json!({"suspend": is_suspended}));
            assert_eq!(faults_of_update(validate, old, job(new.clone())).len(), count, "{new}");
        }
    }
}
