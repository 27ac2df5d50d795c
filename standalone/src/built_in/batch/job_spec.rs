//! JobSpecs, of Jobs and of the templates of CronJobs.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::batch::v1::JobSpec;

use crate::built_in::checks::{FieldErrors, check_not_negative, check_one_of, quote};
use crate::built_in::defaulting::set_default;
use crate::built_in::pod_template;

/// Sets the defaults that a Job and the template of a CronJob share.
pub(crate) fn set_defaults(spec: &mut JobSpec) {
    let rules = spec.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for pattern in rules.flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        set_default(&mut pattern.status, "True");
    }
    pod_template::set_defaults(&mut spec.template);
}

/// Validates a JobSpec.
pub(crate) fn validate(spec: &JobSpec, at: &str, faults: &mut FieldErrors) {
    for (field, value) in [
        ("parallelism", spec.parallelism.map(i64::from)),
        ("completions", spec.completions.map(i64::from)),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit.map(i64::from)),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from)),
    ] {
        check_not_negative(format!("{at}.{field}"), value, faults);
    }
    let modes = ["NonIndexed", "Indexed"];
    check_one_of(format!("{at}.completionMode"), spec.completion_mode.as_ref(), &modes, faults);
    if spec.completion_mode.as_deref() == Some("Indexed") && spec.completions.is_none() {
        let why = "when completion mode is Indexed";
        faults.push(FieldError::required(format!("{at}.completions"), why));
    }
    let template = format!("{at}.template");
    pod_template::validate(&spec.template, &template, faults);
    let policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let at = format!("{template}.spec.restartPolicy");
    match policy.unwrap_or("Always") {
        "OnFailure" | "Never" => {}
        "Always" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            faults.push(FieldError::required(at, why));
        }
        other => {
            faults.push(FieldError::not_supported(at, quote(other), &["OnFailure", "Never"]));
        }
    }
}
