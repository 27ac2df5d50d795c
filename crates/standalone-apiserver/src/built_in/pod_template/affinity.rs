//! Affinity to nodes and to other Pods.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::{NameRule, names};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    PodAffinityTerm, PodSpec, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::scope::Scope;
use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::label_selector;

const WEIGHT: &str = "must be in the range 1-100";
const OPERATOR: &str = "not a valid selector operator";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates the affinity of a Pod.
pub(crate) fn validate(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let Some(affinity) = &scope.spec.affinity else { return };
    let at = format!("{at}.affinity");
    if let Some(nodes) = &affinity.node_affinity {
        let allows = scope.allowed.label_values_in_node_affinity;
        check_node_affinity(nodes, allows, &format!("{at}.nodeAffinity"), faults);
    }
    let allows = scope.allowed.label_values_in_selectors;
    for (field, required, preferred) in pod_terms(affinity) {
        let at = format!("{at}.{field}");
        for (index, term) in required.iter().enumerate() {
            check_term(term, allows, &format!("{at}.{REQUIRED}[{index}]"), faults);
        }
        for (index, weighted) in preferred.iter().enumerate() {
            let at = format!("{at}.{PREFERRED}[{index}]");
            check_weight(weighted.weight, &at, faults);
            check_term(
                &weighted.pod_affinity_term,
                allows,
                &format!("{at}.podAffinityTerm"),
                faults,
            );
        }
    }
}

type Terms<'a> = (&'static str, &'a [PodAffinityTerm], &'a [WeightedPodAffinityTerm]);

/// The required and the preferred terms of the Pod affinity and of the Pod anti-affinity.
pub(crate) fn pod_terms(affinity: &Affinity) -> Vec<Terms<'_>> {
    let to = affinity.pod_affinity.as_ref().map(|one| {
        let required = one.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = one.preferred_during_scheduling_ignored_during_execution.as_deref();
        ("podAffinity", required.unwrap_or_default(), preferred.unwrap_or_default())
    });
    let away = affinity.pod_anti_affinity.as_ref().map(|one| {
        let required = one.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = one.preferred_during_scheduling_ignored_during_execution.as_deref();
        ("podAntiAffinity", required.unwrap_or_default(), preferred.unwrap_or_default())
    });
    to.into_iter().chain(away).collect()
}

fn check_weight(weight: i32, at: &str, faults: &mut FieldErrors) {
    if !(1..=100).contains(&weight) {
        faults.push(FieldError::invalid(format!("{at}.weight"), weight, WEIGHT));
    }
}

fn check_node_affinity(affinity: &NodeAffinity, allows: bool, at: &str, faults: &mut FieldErrors) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        check_node_terms(required, allows, &format!("{at}.{REQUIRED}"), faults);
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    for (index, term) in preferred.enumerate() {
        let at = format!("{at}.{PREFERRED}[{index}]");
        check_weight(term.weight, &at, faults);
        check_node_term(&term.preference, true, &format!("{at}.preference"), faults);
    }
}

/// Validates a selector of nodes.
pub(crate) fn check_node_selector(selector: &NodeSelector, at: &str, faults: &mut FieldErrors) {
    check_node_terms(selector, false, at, faults);
}

fn check_node_terms(selector: &NodeSelector, allows: bool, at: &str, faults: &mut FieldErrors) {
    let at = format!("{at}.nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        let why = "must have at least one node selector term";
        faults.push(FieldError::required(&*at, why));
    }
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        check_node_term(term, allows, &format!("{at}[{index}]"), faults);
    }
}

fn check_node_term(term: &NodeSelectorTerm, allows: bool, at: &str, faults: &mut FieldErrors) {
    for (index, one) in term.match_expressions.iter().flatten().enumerate() {
        check_expression(one, allows, &format!("{at}.matchExpressions[{index}]"), faults);
    }
    for (index, one) in term.match_fields.iter().flatten().enumerate() {
        check_field(one, &format!("{at}.matchFields[{index}]"), faults);
    }
}

fn check_expression(
    one: &NodeSelectorRequirement,
    allows: bool,
    at: &str,
    faults: &mut FieldErrors,
) {
    let values = one.values.as_deref().unwrap_or_default();
    let values_at = format!("{at}.values");
    match one.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(FieldError::required(&*values_at, why));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(FieldError::forbidden(&*values_at, why));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            faults.push(FieldError::required(&*values_at, why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            faults.push(FieldError::invalid(format!("{at}.operator"), quote(other), OPERATOR));
        }
    }
    check_with(&format!("{at}.key"), &one.key, names::check_label_key, faults);
    if allows {
        return;
    }
    for (index, value) in values.iter().enumerate() {
        check_with(&format!("{values_at}[{index}]"), value, names::check_label_value, faults);
    }
}

fn check_field(one: &NodeSelectorRequirement, at: &str, faults: &mut FieldErrors) {
    let values = one.values.as_deref().unwrap_or_default();
    match one.operator.as_str() {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                faults.push(FieldError::required(format!("{at}.values"), why));
            }
        }
        other => {
            faults.push(FieldError::invalid(format!("{at}.operator"), quote(other), OPERATOR));
        }
    }
    if one.key != "metadata.name" {
        let why = "not a valid field selector key";
        return faults.push(FieldError::invalid(format!("{at}.key"), quote(&one.key), why));
    }
    for (index, value) in values.iter().enumerate() {
        let check = |name: &str| NameRule::Dns1123Subdomain.check(name);
        check_with(&format!("{at}.values[{index}]"), value, check, faults);
    }
}

fn check_term(term: &PodAffinityTerm, allows: bool, at: &str, faults: &mut FieldErrors) {
    for (field, selector) in
        [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)]
    {
        if let Some(selector) = selector {
            check_selector(selector, allows, &format!("{at}.{field}"), faults);
        }
    }
    for name in term.namespaces.iter().flatten() {
        check_with(&format!("{at}.namespace"), name, names::check_dns_1123_label, faults);
    }
    let matching = term.match_label_keys.as_deref().unwrap_or_default();
    let mismatching = term.mismatch_label_keys.as_deref().unwrap_or_default();
    check_label_keys(matching, mismatching, term.label_selector.as_ref(), at, faults);
    let at = format!("{at}.topologyKey");
    if term.topology_key.is_empty() {
        faults.push(FieldError::required(&*at, "can not be empty"));
    }
    check_with(&at, &term.topology_key, names::check_label_key, faults);
}

/// Validates a selector. Its values may be invalid if `allows` is true.
fn check_selector(selector: &LabelSelector, allows: bool, at: &str, faults: &mut FieldErrors) {
    let mut own = Vec::new();
    label_selector::validate(selector, at, &mut own);
    faults.extend(own.into_iter().filter(|error| !allows || !is_of_value(error)));
}

/// Whether an error is about a value of an expression.
fn is_of_value(error: &FieldError) -> bool {
    error.field().contains(".matchExpressions[") && error.field().contains(".values[")
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys`. The path of an error about a key that the selector has, too, has
/// no field.
pub(crate) fn check_label_keys(
    matching: &[String],
    mismatching: &[String],
    selector: Option<&LabelSelector>,
    at: &str,
    faults: &mut FieldErrors,
) {
    for (field, keys) in [("matchLabelKeys", matching), ("mismatchLabelKeys", mismatching)] {
        let at = format!("{at}.{field}");
        if selector.is_none() && !keys.is_empty() {
            let why = "must not be specified when labelSelector is not set";
            faults.push(FieldError::forbidden(at, why));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            check_with(&format!("{at}[{index}]"), key, names::check_label_key, faults);
        }
    }
    let positions: BTreeMap<&str, usize> =
        matching.iter().enumerate().map(|(index, key)| (key.as_str(), index)).collect();
    let labels = selector.and_then(|selector| selector.match_labels.as_ref());
    let mut seen: BTreeSet<&str> =
        labels.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    let terms = selector.and_then(|selector| selector.match_expressions.as_ref());
    for term in terms.into_iter().flatten() {
        if let Some(index) = positions.get(term.key.as_str()).filter(|_| seen.contains(&*term.key))
        {
            let why = "exists in both matchLabelKeys and labelSelector";
            faults.push(FieldError::invalid(format!("{at}[{index}]"), quote(&term.key), why));
        }
        seen.insert(&term.key);
    }
    for (index, key) in matching.iter().enumerate().filter(|(_, key)| mismatching.contains(key)) {
        let at = format!("{at}.matchLabelKeys[{index}]");
        let why = "exists in both matchLabelKeys and mismatchLabelKeys";
        faults.push(FieldError::invalid(at, quote(key), why));
    }
}

/// Whether selectors of a PodSpec have values that are not valid label values.
pub(crate) fn has_invalid_label_values(spec: &PodSpec) -> bool {
    let Some(affinity) = &spec.affinity else { return false };
    let mut faults = Vec::new();
    for (_, required, preferred) in pod_terms(affinity) {
        let preferred = preferred.iter().map(|weighted| &weighted.pod_affinity_term);
        for term in required.iter().chain(preferred) {
            let selectors = [&term.label_selector, &term.namespace_selector];
            for selector in selectors.into_iter().flatten() {
                label_selector::validate(selector, "", &mut faults);
            }
        }
    }
    faults.iter().any(is_of_value)
}

/// Whether the required node affinity of a PodSpec has values that are not valid label values.
pub(crate) fn has_invalid_node_label_values(spec: &PodSpec) -> bool {
    let nodes = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        nodes.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
    let mut expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    expressions.any(|one| {
        one.values.iter().flatten().any(|value| !names::check_label_value(value).is_empty())
    })
}
