//! The success policy and the Pod failure policy of Jobs.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
    SuccessPolicy, SuccessPolicyRule,
};
use serde_json::json;

use super::indexes;
use super::job_spec::is_indexed;
use crate::built_in::checks::{FieldErrors, check_not_negative, check_with, quote, to_json};
use crate::built_in::pod_template::resources::in_order;

/// The largest number of rules of a policy.
const RULE_LIMIT: u64 = 20;
/// The largest number of conditions of a rule.
const CONDITION_LIMIT: u64 = 20;
/// The largest number of exit codes of a rule.
const EXIT_CODE_LIMIT: u64 = 255;
/// The largest size of a list of indexes, in bytes.
const INDEXES_LIMIT: u64 = 64 * 1024;

/// Validates the policies of a Job.
pub(super) fn validate(spec: &JobSpec, at: &str, faults: &mut FieldErrors) {
    if let Some(policy) = &spec.pod_failure_policy {
        check_failure_policy(policy, spec, &format!("{at}.podFailurePolicy.rules"), faults);
    }
    if let Some(policy) = &spec.success_policy {
        let at = format!("{at}.successPolicy");
        if is_indexed(spec) {
            check_success_policy(policy, spec, &format!("{at}.rules"), faults);
        } else {
            let why = "requires indexed completion mode";
            faults.push(FieldError::invalid(at, shown(policy), why));
        }
    }
    if let Some(policy) = spec.pod_replacement_policy.as_deref() {
        let all: &[&str] = match spec.pod_failure_policy {
            Some(_) => &["Failed"],
            None => &["Failed", "TerminatingOrFailed"],
        };
        if !all.contains(&policy) {
            let at = format!("{at}.podReplacementPolicy");
            faults.push(FieldError::not_supported(at, quote(policy), all));
        }
    }
}

/// A policy in the format of messages, with the field names of Go.
fn shown(policy: &SuccessPolicy) -> String {
    let rule = |rule: &SuccessPolicyRule| {
        let (indexes, count) = (&rule.succeeded_indexes, rule.succeeded_count);
        let value = json!({"SucceededIndexes": indexes, "SucceededCount": count});
        in_order(&value, &["SucceededIndexes", "SucceededCount"])
    };
    let rules = policy.rules.iter().map(rule).collect::<Vec<_>>().join(",");
    if policy.rules.is_empty() {
        r#"{"Rules":null}"#.to_owned()
    } else {
        format!(r#"{{"Rules":[{rules}]}}"#)
    }
}

/// Checks that a string is one of these. The message for a missing string lists them in brackets.
fn check_choice(at: &str, value: &str, all: &[&str], faults: &mut FieldErrors) {
    if value.is_empty() {
        let list = all.iter().map(|one| quote(one)).collect::<Vec<_>>().join(" ");
        faults.push(FieldError::required(at, &format!("valid values: [{list}]")));
    } else if !all.contains(&value) {
        faults.push(FieldError::not_supported(at, quote(value), all));
    }
}

fn check_failure_policy(
    policy: &PodFailurePolicy,
    spec: &JobSpec,
    at: &str,
    faults: &mut FieldErrors,
) {
    if policy.rules.len() as u64 > RULE_LIMIT {
        faults.push(FieldError::too_many(at, policy.rules.len(), RULE_LIMIT));
    }
    let pod = spec.template.spec.as_ref();
    let regular = pod.into_iter().flat_map(|pod| &pod.containers);
    let init = pod.into_iter().flat_map(|pod| pod.init_containers.iter().flatten());
    let containers: BTreeSet<&str> = regular.chain(init).map(|one| one.name.as_str()).collect();
    for (index, rule) in policy.rules.iter().enumerate() {
        check_failure_rule(rule, spec, &containers, &format!("{at}[{index}]"), faults);
    }
}

fn check_failure_rule(
    rule: &PodFailurePolicyRule,
    spec: &JobSpec,
    containers: &BTreeSet<&str>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let action_at = format!("{at}.action");
    check_choice(&action_at, &rule.action, &["Count", "FailIndex", "FailJob", "Ignore"], faults);
    if rule.action == "FailIndex" && spec.backoff_limit_per_index.is_none() {
        let why = "requires the backoffLimitPerIndex to be set";
        faults.push(FieldError::invalid(action_at, quote(&rule.action), why));
    }
    if let Some(codes) = &rule.on_exit_codes {
        check_exit_codes(codes, containers, &format!("{at}.onExitCodes"), faults);
    }
    let conditions = rule.on_pod_conditions.as_deref().unwrap_or_default();
    let list = format!("{at}.onPodConditions");
    if conditions.len() as u64 > CONDITION_LIMIT {
        faults.push(FieldError::too_many(&*list, conditions.len(), CONDITION_LIMIT));
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let at = format!("{list}[{index}]");
        check_with(&format!("{at}.type"), &pattern.type_, names::check_label_key, faults);
        let status = pattern.status.as_deref().unwrap_or_default();
        check_choice(&format!("{at}.status"), status, &["False", "True", "Unknown"], faults);
    }
    let why = match (rule.on_exit_codes.is_some(), conditions.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    faults.push(FieldError::invalid_unseen(at, why));
}

fn check_exit_codes(
    codes: &PodFailurePolicyOnExitCodesRequirement,
    containers: &BTreeSet<&str>,
    at: &str,
    faults: &mut FieldErrors,
) {
    check_choice(&format!("{at}.operator"), &codes.operator, &["In", "NotIn"], faults);
    if let Some(name) = codes.container_name.as_deref().filter(|name| !containers.contains(name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        faults.push(FieldError::invalid(format!("{at}.containerName"), quote(name), why));
    }
    let at = format!("{at}.values");
    let values = &codes.values;
    if values.is_empty() {
        // The type does not distinguish a missing list from an empty one.
        faults.push(FieldError::invalid(&*at, "null", "at least one value is required"));
    } else if values.len() as u64 > EXIT_CODE_LIMIT {
        faults.push(FieldError::too_many(&*at, values.len(), EXIT_CODE_LIMIT));
    }
    let mut seen = BTreeSet::new();
    for (index, code) in values.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if codes.operator == "In" && *code == 0 {
            faults.push(FieldError::invalid(&*at, code, "must not be 0 for the In operator"));
        }
        if !seen.insert(*code) {
            faults.push(FieldError::duplicate(at, code));
        }
    }
    if !values.is_sorted() {
        faults.push(FieldError::invalid(at, to_json(values), "must be ordered"));
    }
}

fn check_success_policy(
    policy: &SuccessPolicy,
    spec: &JobSpec,
    at: &str,
    faults: &mut FieldErrors,
) {
    if policy.rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        faults.push(FieldError::required(at, why));
    }
    if policy.rules.len() as u64 > RULE_LIMIT {
        faults.push(FieldError::too_many(at, policy.rules.len(), RULE_LIMIT));
    }
    let completions = spec.completions.unwrap_or(0);
    for (index, rule) in policy.rules.iter().enumerate() {
        check_success_rule(rule, completions, &format!("{at}[{index}]"), faults);
    }
}

fn check_success_rule(
    rule: &SuccessPolicyRule,
    completions: i32,
    at: &str,
    faults: &mut FieldErrors,
) {
    if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        faults.push(FieldError::required(at, why));
    }
    let mut total = 0;
    if let Some(list) = &rule.succeeded_indexes {
        let at = format!("{at}.succeededIndexes");
        if list.len() as u64 > INDEXES_LIMIT {
            faults.push(FieldError::too_long(&*at, INDEXES_LIMIT));
        }
        match indexes::count(list, completions) {
            Ok(count) => total = count,
            Err(why) => {
                let why = format!("error parsing succeededIndexes: {why}");
                faults.push(FieldError::invalid(at, quote(list), &why));
            }
        }
    }
    let Some(count) = rule.succeeded_count else { return };
    let at = format!("{at}.succeededCount");
    check_not_negative(&*at, Some(count), faults);
    let mut check = |limit: i64, what: &str| {
        if i64::from(count) > limit {
            let why = format!("must be less than or equal to {limit} (the number of {what})");
            faults.push(FieldError::invalid(&*at, count, &why));
        }
    };
    check(i64::from(completions), "specified completions");
    if rule.succeeded_indexes.is_some() {
        check(total, "indexes in the specified succeededIndexes field");
    }
}
