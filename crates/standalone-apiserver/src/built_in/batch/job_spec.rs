//! JobSpecs: of Jobs and of the templates of CronJobs.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::NameRule;
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::policies;
use crate::built_in::checks::{
    FieldErrors, check_given, check_not_negative, check_one_of, check_with, quote,
};
use crate::built_in::defaulting::set_default;
use crate::built_in::pod_template::{self, warnings};

/// Sets the defaults that a Job and the template of a CronJob share.
pub(crate) fn set_defaults(spec: &mut JobSpec) {
    let rules = spec.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for pattern in rules.flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        set_default(&mut pattern.status, "True");
    }
    pod_template::set_defaults(&mut spec.template);
}

/// Validates a JobSpec, with its template compared with the old one if there is any.
pub(crate) fn validate(
    spec: &JobSpec,
    old: Option<&PodTemplateSpec>,
    at: &str,
    faults: &mut FieldErrors,
) {
    for (field, value) in [
        ("parallelism", spec.parallelism.map(i64::from)),
        ("completions", spec.completions.map(i64::from)),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit.map(i64::from)),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from)),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index.map(i64::from)),
        ("maxFailedIndexes", spec.max_failed_indexes.map(i64::from)),
    ] {
        check_not_negative(format!("{at}.{field}"), value, faults);
    }
    if spec.max_failed_indexes.is_some() && spec.backoff_limit_per_index.is_none() {
        let why = "when maxFailedIndexes is specified";
        faults.push(FieldError::required(format!("{at}.backoffLimitPerIndex"), why));
    }
    if let Some(manager) = &spec.managed_by {
        check_manager(manager, &format!("{at}.managedBy"), faults);
    }
    check_mode(spec, at, faults);
    policies::validate(spec, at, faults);
    let template = format!("{at}.template");
    pod_template::validate(&spec.template, old, &template, faults);
    check_restart_policy(spec, &format!("{template}.spec.restartPolicy"), faults);
}

/// Warnings about a JobSpec.
pub(crate) fn warnings(spec: &JobSpec, at: &str) -> Vec<String> {
    let is_large = spec.completions.unwrap_or(0) > MANY_COMPLETIONS
        && spec.parallelism.unwrap_or(0) > MANY_PARALLEL;
    let of_size = (is_indexed(spec) && is_large).then(|| {
        format!(
            "{at}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    });
    let of_template = warnings::of_template(&spec.template, &format!("{at}.template"));
    of_size.into_iter().chain(of_template).collect()
}

/// The number of completions above which the failed indexes are hard to list.
const MANY_COMPLETIONS: i32 = 100_000;
/// The largest parallelism, and the largest number of failed indexes, of a Job with many completions.
const MANY_PARALLEL: i32 = 10_000;
/// The largest parallelism, and the largest number of failed indexes, of an indexed Job.
const INDEX_LIMIT: i32 = 100_000;
/// The largest length of the name of a manager, in bytes.
const MANAGER_LIMIT: u64 = 63;

/// Whether the Pods of a Job have an index.
pub(crate) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Validates the name of a controller, which consists of a domain and a path.
fn check_manager(manager: &str, at: &str, faults: &mut FieldErrors) {
    const PATH: &str =
        "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
    if !check_given(at, manager, faults) {
        return check_length(manager, at, faults);
    }
    match manager.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            check_with(at, domain, |domain| NameRule::Dns1123Subdomain.check(domain), faults);
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(is_allowed) {
                faults.push(FieldError::invalid(at, quote(path), PATH));
            }
        }
        _ => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            faults.push(FieldError::invalid(at, quote(manager), why));
        }
    }
    check_length(manager, at, faults);
}

fn check_length(manager: &str, at: &str, faults: &mut FieldErrors) {
    if manager.len() as u64 > MANAGER_LIMIT {
        faults.push(FieldError::too_long(at, MANAGER_LIMIT));
    }
}

/// Validates the counts that depend on the completion mode.
fn check_mode(spec: &JobSpec, at: &str, faults: &mut FieldErrors) {
    let modes = ["NonIndexed", "Indexed"];
    check_one_of(format!("{at}.completionMode"), spec.completion_mode.as_ref(), &modes, faults);
    if is_indexed(spec) {
        return check_indexed(spec, at, faults);
    }
    if !matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed")) {
        return;
    }
    for (field, count) in [
        ("backoffLimitPerIndex", spec.backoff_limit_per_index),
        ("maxFailedIndexes", spec.max_failed_indexes),
    ] {
        if let Some(count) = count {
            let why = "requires indexed completion mode";
            faults.push(FieldError::invalid(format!("{at}.{field}"), count, why));
        }
    }
}

fn check_indexed(spec: &JobSpec, at: &str, faults: &mut FieldErrors) {
    if spec.completions.is_none() {
        let why = "when completion mode is Indexed";
        faults.push(FieldError::required(format!("{at}.completions"), why));
    }
    let mut check = |field: &str, count: Option<i32>, limit: i32, why: &str| {
        if let Some(count) = count.filter(|count| *count > limit) {
            faults.push(FieldError::invalid(format!("{at}.{field}"), count, why));
        }
    };
    let why =
        format!("must be less than or equal to {INDEX_LIMIT} when completion mode is Indexed");
    check("parallelism", spec.parallelism, INDEX_LIMIT, &why);
    if let Some(completions) = spec.completions {
        let why = "must be less than or equal to completions";
        check("maxFailedIndexes", spec.max_failed_indexes, completions, why);
    }
    let why = format!("must be less than or equal to {INDEX_LIMIT}");
    check("maxFailedIndexes", spec.max_failed_indexes, INDEX_LIMIT, &why);
    let is_large = spec.completions.is_some_and(|count| count > MANY_COMPLETIONS);
    if !is_large || spec.backoff_limit_per_index.is_none() {
        return;
    }
    let why = format!(
        "must be less than or equal to {MANY_PARALLEL} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    );
    check("parallelism", spec.parallelism, MANY_PARALLEL, &why);
    check("maxFailedIndexes", spec.max_failed_indexes, MANY_PARALLEL, &why);
    if spec.max_failed_indexes.is_none() {
        let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        faults.push(FieldError::required(format!("{at}.maxFailedIndexes"), &why));
    }
}

fn check_restart_policy(spec: &JobSpec, at: &str, faults: &mut FieldErrors) {
    let policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    match policy.unwrap_or("Always") {
        "OnFailure" if spec.pod_failure_policy.is_some() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            faults.push(FieldError::invalid(at, quote("OnFailure"), why));
        }
        "OnFailure" | "Never" => {}
        "Always" | "" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            faults.push(FieldError::required(at, why));
        }
        other => {
            faults.push(FieldError::not_supported(at, quote(other), &["OnFailure", "Never"]));
        }
    }
}
