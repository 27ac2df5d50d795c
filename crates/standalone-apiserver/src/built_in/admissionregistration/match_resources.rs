//! The rules and selectors of policies and bindings (`matchConstraints` and `matchResources`).

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, RuleWithOperations,
};

use super::validation::check_rule;
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
use crate::built_in::defaulting::set_missing;
use crate::built_in::label_selector;

pub(super) fn set_defaults(resources: &mut MatchResources) {
    set_missing(&mut resources.match_policy, "Equivalent");
    resources.namespace_selector.get_or_insert_default();
    resources.object_selector.get_or_insert_default();
    let rules = resources.resource_rules.iter_mut().flatten();
    for rule in rules.chain(resources.exclude_resource_rules.iter_mut().flatten()) {
        set_missing(&mut rule.scope, "*");
    }
}

pub(super) fn check(resources: &MatchResources, at: &str, faults: &mut FieldErrors) {
    let policies = ["Equivalent", "Exact"];
    let policy = resources.match_policy.as_ref();
    check_one_of(format!("{at}.matchPolicy"), policy, &policies, faults);
    for (selector, name) in [
        (&resources.namespace_selector, "namespaceSelector"),
        (&resources.object_selector, "objectSelector"),
    ] {
        if let Some(selector) = selector {
            label_selector::validate(selector, &format!("{at}.{name}"), faults);
        }
    }
    for (rules, name) in [
        (&resources.resource_rules, "resourceRules"),
        (&resources.exclude_resource_rules, "excludeResourceRules"),
    ] {
        for (index, rule) in rules.iter().flatten().enumerate() {
            check_named_rule(rule, &format!("{at}.{name}[{index}]"), faults);
        }
    }
}

fn check_named_rule(rule: &NamedRuleWithOperations, at: &str, faults: &mut FieldErrors) {
    let mut known = BTreeSet::new();
    for (index, name) in rule.resource_names.iter().flatten().enumerate() {
        let at = format!("{at}.resourceNames[{index}]");
        check_with(&at, name, names::check_path_segment, faults);
        if !known.insert(name) {
            faults.push(FieldError::duplicate(at, quote(name)));
        }
    }
    let NamedRuleWithOperations { api_groups, api_versions, operations, resources, scope, .. } =
        rule.clone();
    let rule = RuleWithOperations { api_groups, api_versions, operations, resources, scope };
    check_rule(&rule, at, faults);
}
