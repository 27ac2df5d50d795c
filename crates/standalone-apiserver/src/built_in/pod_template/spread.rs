//! Topology spread constraints of Pods.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{PodSpec, TopologySpreadConstraint};

use super::affinity::check_label_keys;
use super::scope::Scope;
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
use crate::built_in::label_selector;

const POSITIVE: &str = "must be greater than zero";

/// Validates the constraints of a PodSpec.
pub(crate) fn validate(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let all = scope.spec.topology_spread_constraints.as_deref().unwrap_or_default();
    for (index, one) in all.iter().enumerate() {
        let at = format!("{at}.topologySpreadConstraints[{index}]");
        check(one, &at, faults);
        let is_same = |other: &TopologySpreadConstraint| {
            other.topology_key == one.topology_key
                && other.when_unsatisfiable == one.when_unsatisfiable
        };
        if all[index + 1..].iter().any(is_same) {
            let value = format!("{{{}, {}}}", one.topology_key, one.when_unsatisfiable);
            let at = format!("{at}.{{topologyKey, whenUnsatisfiable}}");
            faults.push(FieldError::duplicate(at, quote(&value)));
        }
        check_domains(one, &at, faults);
        let policies = ["Honor", "Ignore"];
        let policy = one.node_affinity_policy.as_ref();
        check_one_of(format!("{at}.nodeAffinityPolicy"), policy, &policies, faults);
        let policy = one.node_taints_policy.as_ref();
        check_one_of(format!("{at}.nodeTaintsPolicy"), policy, &policies, faults);
        let keys = one.match_label_keys.as_deref().unwrap_or_default();
        if scope.allowed.spread_label_keys {
            check_old_label_keys(one, &format!("{at}.matchLabelKeys"), faults);
        } else {
            check_label_keys(keys, &[], one.label_selector.as_ref(), &at, faults);
        }
        if let Some(selector) =
            one.label_selector.as_ref().filter(|_| !scope.allowed.spread_selectors)
        {
            label_selector::validate(selector, &format!("{at}.labelSelector"), faults);
        }
    }
}

fn check(one: &TopologySpreadConstraint, at: &str, faults: &mut FieldErrors) {
    if one.max_skew <= 0 {
        faults.push(FieldError::invalid(format!("{at}.maxSkew"), one.max_skew, POSITIVE));
    }
    if one.topology_key.is_empty() {
        faults.push(FieldError::required(format!("{at}.topologyKey"), "can not be empty"));
    }
    let all = ["DoNotSchedule", "ScheduleAnyway"];
    let given = Some(&one.when_unsatisfiable);
    check_one_of(format!("{at}.whenUnsatisfiable"), given, &all, faults);
}

fn check_domains(one: &TopologySpreadConstraint, at: &str, faults: &mut FieldErrors) {
    let Some(count) = one.min_domains else { return };
    let at = format!("{at}.minDomains");
    if count <= 0 {
        faults.push(FieldError::invalid(&*at, count, POSITIVE));
    }
    let action = one.when_unsatisfiable.as_str();
    if action != "DoNotSchedule" {
        let why =
            format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        faults.push(FieldError::invalid(at, count, &why));
    }
}

/// Validates `matchLabelKeys` by the rules of older releases: the selector must not contain any of them.
fn check_old_label_keys(one: &TopologySpreadConstraint, at: &str, faults: &mut FieldErrors) {
    let keys = one.match_label_keys.as_deref().unwrap_or_default();
    if keys.is_empty() {
        return;
    }
    let selector = one.label_selector.as_ref();
    if selector.is_none() {
        let why = "must not be specified when labelSelector is not set";
        faults.push(FieldError::forbidden(at, why));
    }
    let has = |key: &String| {
        selector.is_some_and(|selector| {
            selector.match_labels.as_ref().is_some_and(|labels| labels.contains_key(key))
                || selector.match_expressions.iter().flatten().any(|term| term.key == *key)
        })
    };
    for (index, key) in keys.iter().enumerate() {
        let at = format!("{at}[{index}]");
        check_with(&at, key, names::check_label_key, faults);
        if has(key) {
            let why = "exists in both matchLabelKeys and labelSelector";
            faults.push(FieldError::invalid(at, quote(key), why));
        }
    }
}

/// Whether a PodSpec has constraints with invalid selectors.
pub(crate) fn has_invalid_selectors(spec: &PodSpec) -> bool {
    let mut faults = Vec::new();
    for one in spec.topology_spread_constraints.iter().flatten() {
        if let Some(selector) = &one.label_selector {
            label_selector::validate(selector, "", &mut faults);
        }
    }
    !faults.is_empty()
}

/// Whether a PodSpec has constraints with invalid keys.
pub(crate) fn has_invalid_label_keys(spec: &PodSpec) -> bool {
    let mut faults = Vec::new();
    for one in spec.topology_spread_constraints.iter().flatten() {
        let keys = one.match_label_keys.as_deref().unwrap_or_default();
        check_label_keys(keys, &[], one.label_selector.as_ref(), "", &mut faults);
    }
    !faults.is_empty()
}
