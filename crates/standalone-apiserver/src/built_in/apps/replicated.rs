//! The validation that workloads share: of their selector, and of their Pod template.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::built_in::checks::{
    FieldErrors, check_immutable, check_not_negative, check_one_of, to_json,
};
use crate::built_in::label_selector;
use crate::built_in::pod_template;

/// Validates the selector. A selector that is missing in JSON is the default in Rust.
pub(crate) fn check_selector(selector: &LabelSelector, of: &str, faults: &mut FieldErrors) {
    label_selector::validate(selector, "spec.selector", faults);
    if *selector == LabelSelector::default() {
        faults.push(FieldError::required("spec.selector", ""));
    } else if label_selector::is_empty(selector) {
        let why = format!("empty selector is invalid for {of}");
        faults.push(FieldError::invalid("spec.selector", to_json(selector), &why));
    }
}

/// Validates the template, compared with the old one if there is any.
pub(crate) fn check_template(
    template: Option<&PodTemplateSpec>,
    old: Option<&PodTemplateSpec>,
    selector: &LabelSelector,
    faults: &mut FieldErrors,
) {
    let nothing = PodTemplateSpec::default();
    let template = template.unwrap_or(&nothing);
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let mut of_selector = Vec::new();
    label_selector::validate(selector, "spec.selector", &mut of_selector);
    let is_missing = *selector == LabelSelector::default();
    if !of_selector.is_empty() {
        let why = "invalid label selector";
        return faults.push(FieldError::invalid("spec.selector", to_json(selector), why));
    }
    if is_missing
        || (!label_selector::is_empty(selector) && !label_selector::matches(selector, labels))
    {
        let why = "`selector` does not match template `labels`";
        faults.push(FieldError::invalid("spec.template.metadata.labels", to_json(&labels), why));
    }
    pod_template::validate(template, old, "spec.template", faults);
    check_runs_forever(template, "ReplicaSet", faults);
}

/// Checks that the Pods of a template are always restarted. `of` is the name of the workload in messages.
pub(crate) fn check_runs_forever(template: &PodTemplateSpec, of: &str, faults: &mut FieldErrors) {
    let policy = template.spec.as_ref().and_then(|spec| spec.restart_policy.as_ref());
    check_one_of("spec.template.spec.restartPolicy", policy, &["Always"], faults);
    let deadline = template.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    if deadline.is_some() {
        let why = format!("activeDeadlineSeconds in {of} is not Supported");
        faults.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", &why));
    }
}

/// Checks that the selector has not changed.
pub(crate) fn check_change(
    selector: &LabelSelector,
    old: Option<&LabelSelector>,
    faults: &mut FieldErrors,
) {
    if let Some(old) = old {
        check_immutable("spec.selector", selector, old, faults);
    }
}

/// Checks the counts of a status: none may be negative, and in each of these pairs, the first must not exceed the
/// second.
pub(crate) fn check_counts(
    counts: &[(&str, Option<i64>)],
    limits: &[(&str, &str, &str)],
    faults: &mut FieldErrors,
) {
    for (field, count) in counts {
        check_not_negative(format!("status.{field}"), *count, faults);
    }
    let count = |name: &str| {
        let found = counts.iter().find(|(field, _)| *field == name);
        found.and_then(|(_, count)| *count).unwrap_or(0)
    };
    for (field, limit, why) in limits {
        if count(field) > count(limit) {
            faults.push(FieldError::invalid(format!("status.{field}"), count(field), why));
        }
    }
}

/// Checks that the collision count does not decrease.
pub(crate) fn check_collisions(new: Option<i32>, old: Option<i32>, faults: &mut FieldErrors) {
    if old.is_some_and(|old| new.is_none_or(|new| new < old)) {
        let value = new.unwrap_or(0);
        let why = "cannot be decremented";
        faults.push(FieldError::invalid("status.collisionCount", value, why));
    }
}
