//! Restart policies and rules of containers, and resize policies.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{Container, ContainerResizePolicy};

use crate::built_in::checks::{FieldErrors, quote};

/// The largest number of rules of a container.
const RULE_LIMIT: u64 = 20;
/// The largest number of exit codes of a rule.
const EXIT_CODE_LIMIT: u64 = 255;

/// Validates the restart policy of a container, and its rules.
pub(crate) fn check_policy(container: &Container, at: &str, faults: &mut FieldErrors) {
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    match container.restart_policy.as_deref() {
        None if rules.is_empty() => return,
        None => {
            let why = "must specify restartPolicy when restart rules are used";
            faults.push(FieldError::required(format!("{at}.restartPolicy"), why));
        }
        Some(policy) => {
            let all = ["Always", "Never", "OnFailure"];
            if !all.contains(&policy) {
                let at = format!("{at}.restartPolicy");
                faults.push(FieldError::not_supported(at, quote(policy), &all));
            }
        }
    }
    let at = format!("{at}.restartPolicyRules");
    if rules.len() as u64 > RULE_LIMIT {
        faults.push(FieldError::too_many(&*at, rules.len(), RULE_LIMIT));
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let all = ["Restart", "RestartAllContainers"];
        if !all.contains(&rule.action.as_str()) {
            let at = format!("{at}.action");
            faults.push(FieldError::not_supported(at, quote(&rule.action), &all));
        }
        let Some(codes) = &rule.exit_codes else {
            faults.push(FieldError::required(format!("{at}.exitCodes"), "must be specified"));
            continue;
        };
        let all = ["In", "NotIn"];
        if !all.contains(&codes.operator.as_str()) {
            let at = format!("{at}.exitCodes.operator");
            faults.push(FieldError::not_supported(at, quote(&codes.operator), &all));
        }
        let count = codes.values.as_ref().map_or(0, Vec::len);
        if count as u64 > EXIT_CODE_LIMIT {
            let at = format!("{at}.exitCodes.values");
            faults.push(FieldError::too_many(at, count, EXIT_CODE_LIMIT));
        }
    }
}

/// Validates the restart policy of an init container. Rules without a policy are not validated further.
pub(crate) fn check_policy_of_init(container: &Container, at: &str, faults: &mut FieldErrors) {
    let has_rules = container.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty());
    if container.restart_policy.is_some() {
        check_policy(container, at, faults);
    } else if has_rules {
        let why = "must specify restartPolicy when restart rules are used";
        faults.push(FieldError::required(format!("{at}.restartPolicy"), why));
    }
}

/// Validates the resize policies of a container. Errors have the path of the list, except those about duplicates.
pub(crate) fn check_resize(
    policies: &[ContainerResizePolicy],
    pod_policy: Option<&str>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let mut resources = BTreeSet::new();
    let check = |value: &str, all: [&str; 2], faults: &mut FieldErrors| {
        if value.is_empty() {
            faults.push(FieldError::required(at, ""));
        } else if !all.contains(&value) {
            faults.push(FieldError::not_supported(at, quote(value), &all));
        }
    };
    for (index, policy) in policies.iter().enumerate() {
        if !resources.insert(policy.resource_name.as_str()) {
            let value = quote(&policy.resource_name);
            faults.push(FieldError::duplicate(format!("{at}[{index}]"), value));
        }
        check(&policy.resource_name, ["cpu", "memory"], faults);
        let restart = policy.restart_policy.as_str();
        check(restart, ["NotRequired", "RestartContainer"], faults);
        if pod_policy == Some("Never") && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            faults.push(FieldError::invalid(at, quote(restart), why));
        }
    }
}
