//! The validation of webhooks, with the messages of kube-apiserver.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::admission::check_match_condition;
use aggregated_apiserver::strategy::{check_webhook_service, check_webhook_url, names};
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, RuleWithOperations, ServiceReference, ValidatingWebhook,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote, to_json};
use crate::built_in::label_selector;

/// The versions of AdmissionReviews.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// The valid side effects. Webhooks with other side effects cannot be called for dry runs.
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
/// The largest number of match conditions of a webhook or a policy.
const MOST_CONDITIONS: usize = 64;
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// A webhook of either sort.
pub(super) struct Webhook<'a> {
    name: &'a str,
    client_config: &'a WebhookClientConfig,
    rules: &'a [RuleWithOperations],
    failure_policy: Option<&'a String>,
    match_policy: Option<&'a String>,
    reinvocation_policy: Option<&'a String>,
    namespace_selector: Option<&'a LabelSelector>,
    object_selector: Option<&'a LabelSelector>,
    side_effects: &'a str,
    timeout_seconds: Option<i32>,
    review_versions: &'a [String],
    match_conditions: &'a [MatchCondition],
}

impl<'a> Webhook<'a> {
    pub(super) fn of_mutating(webhook: &'a MutatingWebhook) -> Self {
        Self {
            name: &webhook.name,
            client_config: &webhook.client_config,
            rules: webhook.rules.as_deref().unwrap_or_default(),
            failure_policy: webhook.failure_policy.as_ref(),
            match_policy: webhook.match_policy.as_ref(),
            reinvocation_policy: webhook.reinvocation_policy.as_ref(),
            namespace_selector: webhook.namespace_selector.as_ref(),
            object_selector: webhook.object_selector.as_ref(),
            side_effects: &webhook.side_effects,
            timeout_seconds: webhook.timeout_seconds,
            review_versions: &webhook.admission_review_versions,
            match_conditions: webhook.match_conditions.as_deref().unwrap_or_default(),
        }
    }

    pub(super) fn of_validating(webhook: &'a ValidatingWebhook) -> Self {
        Self {
            name: &webhook.name,
            client_config: &webhook.client_config,
            rules: webhook.rules.as_deref().unwrap_or_default(),
            failure_policy: webhook.failure_policy.as_ref(),
            match_policy: webhook.match_policy.as_ref(),
            reinvocation_policy: None,
            namespace_selector: webhook.namespace_selector.as_ref(),
            object_selector: webhook.object_selector.as_ref(),
            side_effects: &webhook.side_effects,
            timeout_seconds: webhook.timeout_seconds,
            review_versions: &webhook.admission_review_versions,
            match_conditions: webhook.match_conditions.as_deref().unwrap_or_default(),
        }
    }
}

/// Returns the errors of the webhooks of a configuration.
pub(super) fn faults<'a>(webhooks: impl Iterator<Item = Webhook<'a>>) -> FieldErrors {
    let (mut faults, mut names) = (Vec::new(), BTreeSet::new());
    for (index, webhook) in webhooks.enumerate() {
        let at = format!("webhooks[{index}]");
        check(&webhook, &at, &mut faults);
        check_review_versions(
            webhook.review_versions,
            &format!("{at}.admissionReviewVersions"),
            &mut faults,
        );
        if !webhook.name.is_empty() && !names.insert(webhook.name) {
            faults.push(FieldError::duplicate(format!("{at}.name"), quote(webhook.name)));
        }
    }
    faults
}

fn check(webhook: &Webhook<'_>, at: &str, faults: &mut FieldErrors) {
    check_name(webhook.name, &format!("{at}.name"), faults);
    for (index, rule) in webhook.rules.iter().enumerate() {
        check_rule(rule, &format!("{at}.rules[{index}]"), faults);
    }
    let policies = ["Fail", "Ignore"];
    check_one_of(format!("{at}.failurePolicy"), webhook.failure_policy, &policies, faults);
    let policies = ["Equivalent", "Exact"];
    check_one_of(format!("{at}.matchPolicy"), webhook.match_policy, &policies, faults);
    check_side_effects(webhook.side_effects, &format!("{at}.sideEffects"), faults);
    if let Some(seconds) = webhook.timeout_seconds.filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        faults.push(FieldError::invalid(format!("{at}.timeoutSeconds"), seconds, why));
    }
    for (selector, name) in [
        (webhook.namespace_selector, "namespaceSelector"),
        (webhook.object_selector, "objectSelector"),
    ] {
        if let Some(selector) = selector {
            label_selector::validate(selector, &format!("{at}.{name}"), faults);
        }
    }
    let policies = ["IfNeeded", "Never"];
    let policy = webhook.reinvocation_policy;
    check_one_of(format!("{at}.reinvocationPolicy"), policy, &policies, faults);
    check_client_config(webhook.client_config, &format!("{at}.clientConfig"), faults);
    let conditions = webhook.match_conditions;
    check_conditions(conditions, &format!("{at}.matchConditions"), check_match_condition, faults);
}

/// Checks match conditions, whose expressions `check` compiles.
pub(super) fn check_conditions(
    conditions: &[MatchCondition],
    at: &str,
    check: impl Fn(&str) -> Result<(), String>,
    faults: &mut FieldErrors,
) {
    if conditions.len() > MOST_CONDITIONS {
        faults.push(FieldError::too_many(at, conditions.len(), MOST_CONDITIONS as u64));
    }
    let mut known = BTreeSet::new();
    for (index, MatchCondition { name, expression }) in conditions.iter().enumerate() {
        let (at_name, at_expression) =
            (format!("{at}[{index}].name"), format!("{at}[{index}].expression"));
        let expression = expression.trim();
        if expression.is_empty() {
            faults.push(FieldError::required(at_expression, ""));
        } else if let Err(why) = check(expression) {
            faults.push(FieldError::invalid(at_expression, quote(expression), &why));
        }
        if name.is_empty() {
            faults.push(FieldError::required(at_name, ""));
            continue;
        }
        check_with(&at_name, name, names::check_label_key, faults);
        if !known.insert(name) {
            faults.push(FieldError::duplicate(at_name, quote(name)));
        }
    }
}

fn check_name(name: &str, at: &str, faults: &mut FieldErrors) {
    if name.is_empty() {
        faults.push(FieldError::required(at, ""));
        return;
    }
    let wrong = names::check_dns_1123_subdomain(name);
    if !wrong.is_empty() {
        faults.push(FieldError::invalid(at, quote(name), &wrong.join(",")));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        faults.push(FieldError::invalid(at, quote(name), why));
    }
}

fn check_side_effects(side_effects: &str, at: &str, faults: &mut FieldErrors) {
    if side_effects.is_empty() {
        let why = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        faults.push(FieldError::required(at, &why));
    } else if !SIDE_EFFECTS.contains(&side_effects) {
        faults.push(FieldError::not_supported(at, quote(side_effects), &SIDE_EFFECTS));
    }
}

fn check_client_config(config: &WebhookClientConfig, at: &str, faults: &mut FieldErrors) {
    match (&config.url, &config.service) {
        (Some(url), None) => faults.extend(check_webhook_url(url, &format!("{at}.url"))),
        (None, Some(service)) => {
            let ServiceReference { name, namespace, path, port } = service;
            let at = format!("{at}.service");
            faults.extend(check_webhook_service(namespace, name, path.as_deref(), *port, &at));
        }
        _ => faults.push(FieldError::required(at, "exactly one of url or service is required")),
    }
}

fn check_review_versions(versions: &[String], at: &str, faults: &mut FieldErrors) {
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        faults.push(FieldError::required(at, &format!("must specify one of {known}")));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if versions[..index].contains(version) {
            faults.push(FieldError::invalid(at, quote(version), "duplicate version"));
            continue;
        }
        check_with(&at, version, names::check_dns_1035_label, faults);
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.contains(&version.as_str())) {
        let why = format!("must include at least one of {known}");
        faults.push(FieldError::invalid(at, to_json(&versions), &why));
    }
}

/// Checks a rule of a webhook or a policy.
pub(super) fn check_rule(rule: &RuleWithOperations, at: &str, faults: &mut FieldErrors) {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let operations = list(&rule.operations);
    check_wildcard(&operations, "other operations", &format!("{at}.operations"), faults);
    for (index, operation) in operations.iter().enumerate() {
        let at = format!("{at}.operations[{index}]");
        check_one_of(at, Some(operation), &OPERATIONS, faults);
    }
    let groups = list(&rule.api_groups);
    check_wildcard(&groups, "other API groups", &format!("{at}.apiGroups"), faults);
    let versions = list(&rule.api_versions);
    check_wildcard(&versions, "other API versions", &format!("{at}.apiVersions"), faults);
    for (index, version) in versions.iter().enumerate() {
        if version.is_empty() {
            faults.push(FieldError::required(format!("{at}.apiVersions[{index}]"), ""));
        }
    }
    check_resources(&list(&rule.resources), &format!("{at}.resources"), faults);
    let scopes = ["*", "Cluster", "Namespaced"];
    check_one_of(format!("{at}.scope"), rule.scope.as_ref(), &scopes, faults);
}

/// Checks that `*` is the only value of a list that contains it.
fn check_wildcard(values: &[String], others: &str, at: &str, faults: &mut FieldErrors) {
    if values.is_empty() {
        faults.push(FieldError::required(at, ""));
    } else if values.len() > 1 && values.iter().any(|value| value == "*") {
        let why = format!("if '*' is present, must not specify {others}");
        faults.push(FieldError::invalid(at, to_json(&values), &why));
    }
}

fn check_resources(resources: &[String], at: &str, faults: &mut FieldErrors) {
    if resources.is_empty() {
        faults.push(FieldError::required(at, ""));
    }
    // Resources such as `x/*` and `*/x`.
    let (mut of_any_subresource, mut of_any_resource) = (BTreeSet::new(), BTreeSet::new());
    let mut is_last_named = false;
    for (index, resource) in resources.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if resource.is_empty() {
            faults.push(FieldError::required(at, ""));
            continue;
        }
        let Some((name, subresource)) = resource.split_once('/') else {
            // kube-apiserver checks only the last one.
            is_last_named = resource != "*";
            continue;
        };
        if of_any_subresource.contains(name) {
            let why = format!("if '{name}/*' is present, must not specify {resource}");
            faults.push(FieldError::invalid(at.as_str(), quote(resource), &why));
        }
        if of_any_resource.contains(subresource) {
            let why = format!("if '*/{subresource}' is present, must not specify {resource}");
            faults.push(FieldError::invalid(at.as_str(), quote(resource), &why));
        }
        if subresource == "*" {
            of_any_subresource.insert(name);
        }
        if name == "*" {
            of_any_resource.insert(subresource);
        }
    }
    let has = |wanted: &str| resources.iter().any(|resource| resource == wanted);
    let mut wrong = |why: &str| faults.push(FieldError::invalid(at, to_json(&resources), why));
    if resources.len() > 1 && has("*/*") {
        wrong("if '*/*' is present, must not specify other resources");
    }
    if has("*") && is_last_named {
        wrong("if '*' is present, must not specify other resources without subresources");
    }
}
