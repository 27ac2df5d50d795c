//! The validation of ResourceQuotas.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::checks::{FieldErrors, IMMUTABLE, check_with, quote, to_json};
use crate::built_in::resource_names::{is_standard_of_quotas as is_standard, is_whole};

/// The resources that a quota with a Pod scope can limit.
const OF_PODS: [&str; 7] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "pods", "requests.cpu", "requests.memory"];
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// The scopes without values.
const PLAIN_SCOPES: [&str; 5] =
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "Terminating"];
const SCOPES_WITH_VALUES: [&str; 2] = ["PriorityClass", "VolumeAttributesClass"];
const CONFLICTS: [[&str; 2]; 2] =
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

pub(super) fn validate(quota: &ResourceQuota, old: Option<&ResourceQuota>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = ResourceQuotaSpec::default();
    let spec = quota.spec.as_ref().unwrap_or(&nothing);
    check_amounts(spec.hard.as_ref(), "spec.hard", &mut faults);
    let hard: Vec<&str> = spec.hard.iter().flatten().map(|(name, _)| name.as_str()).collect();
    check_scopes(spec, &hard, &mut faults);
    check_selector(spec, &hard, &mut faults);
    let scopes = |quota: &ResourceQuota| {
        let scopes = quota.spec.as_ref().and_then(|spec| spec.scopes.clone());
        scopes.unwrap_or_default().into_iter().collect::<BTreeSet<String>>()
    };
    if old.is_some_and(|old| scopes(old) != scopes(quota)) {
        faults.push(FieldError::invalid("spec.scopes", to_json(&spec.scopes), IMMUTABLE));
    }
    faults
}

/// Validates the status of a quota.
pub(super) fn validate_status(quota: &ResourceQuota) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(status) = &quota.status else { return faults };
    check_amounts(status.hard.as_ref(), "status.hard", &mut faults);
    check_amounts(status.used.as_ref(), "status.used", &mut faults);
    faults
}

fn check_amounts(amounts: Option<&BTreeMap<String, Amount>>, at: &str, faults: &mut FieldErrors) {
    for (name, amount) in amounts.into_iter().flatten() {
        let at = format!("{at}[{name}]");
        let before = faults.len();
        check_with(&at, name, names::check_label_key, faults);
        if !name.contains('/') && !is_standard(name) {
            if before == faults.len() && name != "storage" {
                let why = "must be a standard resource type or fully qualified";
                faults.push(FieldError::invalid(&*at, quote(name), why));
            }
            let why = "must be a standard resource for quota";
            faults.push(FieldError::invalid(&*at, quote(name), why));
        }
        let Ok(nanos) = Quantity::parse(&amount.0).map(|amount| amount.nanos()) else { continue };
        if nanos < 0 {
            let why = "must be greater than or equal to 0";
            faults.push(FieldError::invalid(&*at, quote(&amount.0), why));
        }
        if nanos % 1_000_000_000 != 0 && is_whole(name) {
            faults.push(FieldError::invalid(at, quote(&amount.0), "must be an integer"));
        }
    }
}

fn is_scope(scope: &str) -> bool {
    PLAIN_SCOPES.contains(&scope) || SCOPES_WITH_VALUES.contains(&scope)
}

/// Whether a quota with this scope can limit a resource.
fn is_valid_for(scope: &str, resource: &str) -> bool {
    match scope {
        _ if !is_standard(resource) => true,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => OF_CLAIMS.contains(&resource),
        scope if is_scope(scope) => OF_PODS.contains(&resource),
        _ => true,
    }
}

fn check_scopes(spec: &ResourceQuotaSpec, hard: &[&str], faults: &mut FieldErrors) {
    const AT: &str = "spec.scopes";
    let scopes = spec.scopes.as_deref().unwrap_or_default();
    let mut fault = |why: &str| faults.push(FieldError::invalid(AT, to_json(&scopes), why));
    for scope in scopes {
        if !is_scope(scope) {
            fault("unsupported scope");
        }
        for _ in hard.iter().filter(|resource| !is_valid_for(scope, resource)) {
            fault("unsupported scope applied to resource");
        }
    }
    let has = |scope: &&str| scopes.iter().any(|one| one == scope);
    for _ in CONFLICTS.iter().filter(|pair| pair.iter().all(has)) {
        fault("conflicting scopes");
    }
}

fn check_selector(spec: &ResourceQuotaSpec, hard: &[&str], faults: &mut FieldErrors) {
    const AT: &str = "spec.scopeSelector.matchExpressions";
    let Some(selector) = &spec.scope_selector else { return };
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    for expression in expressions {
        let (scope, operator) = (expression.scope_name.as_str(), expression.operator.as_str());
        if !is_scope(scope) {
            let at = format!("{AT}.scopeName");
            faults.push(FieldError::invalid(at, quote(scope), "unsupported scope"));
        }
        for _ in hard.iter().filter(|resource| !is_valid_for(scope, resource)) {
            let why = "unsupported scope applied to resource";
            faults.push(FieldError::invalid(AT, to_json(selector), why));
        }
        let at = format!("{AT}.operator");
        if PLAIN_SCOPES.contains(&scope) && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            faults.push(FieldError::invalid(&*at, quote(operator), why));
        }
        let values = expression.values.as_deref().unwrap_or_default();
        let at_values = format!("{AT}.values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                faults.push(FieldError::required(at_values, why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                faults.push(FieldError::invalid(at_values, to_json(&values), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let why = "not a valid selector operator";
                faults.push(FieldError::invalid(at, quote(operator), why));
            }
        }
    }
    let has = |scope: &&str| expressions.iter().any(|one| one.scope_name == **scope);
    for _ in CONFLICTS.iter().filter(|pair| pair.iter().all(has)) {
        let scopes = to_json(&spec.scopes);
        faults.push(FieldError::invalid(AT, scopes, "conflicting scopes"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    fn faults_of(spec: Value) -> Vec<String> {
        faults_of_new(validate, json!({"spec": spec}))
    }

    #[test]
    fn amounts() {
        for (name, amount, expected) in [
            ("pods", "5", vec![]),
            ("count/foos.example.com", "5", vec![]),
            ("requests.cpu", "500m", vec![]),
            ("requests.example.com/gpu", "1", vec![]),
            ("hugepages-2Mi", "4Mi", vec![]),
            (
                "foos",
                "5",
                vec![
                    "\"foos\": must be a standard resource type or fully qualified",
                    "\"foos\": must be a standard resource for quota",
                ],
            ),
            ("storage", "5", vec!["\"storage\": must be a standard resource for quota"]),
            ("cpu", "-1", vec!["\"-1\": must be greater than or equal to 0"]),
            ("pods", "1500m", vec!["\"1500m\": must be an integer"]),
            ("count/foos.example.com", "500m", vec!["\"500m\": must be an integer"]),
        ] {
            let at = |why: &str| format!("spec.hard[{name}]: Invalid value: {why}");
            let expected: Vec<String> = expected.into_iter().map(at).collect();
            assert_eq!(faults_of(json!({"hard": {name: amount}})), expected);
        }
    }

    #[test]
    fn scopes() {
        for (scopes, hard, expected) in [
            (json!(["BestEffort"]), "pods", vec![]),
            (json!(["BestEffort"]), "count/foos.example.com", vec![]),
            (json!(["Terminating"]), "cpu", vec![]),
            (json!(["BestEffort"]), "cpu", vec!["unsupported scope applied to resource"]),
            (json!(["Terminating"]), "services", vec!["unsupported scope applied to resource"]),
            (json!(["Else"]), "services", vec!["unsupported scope"]),
            (json!(["BestEffort", "NotBestEffort"]), "pods", vec!["conflicting scopes"]),
        ] {
            let at = |why: &str| format!("spec.scopes: Invalid value: {scopes}: {why}");
            let expected: Vec<String> = expected.into_iter().map(at).collect();
            assert_eq!(faults_of(json!({"hard": {hard: "1"}, "scopes": scopes})), expected);
        }
        let of = |scopes: Value| json!({"spec": {"scopes": scopes}});
        let (one, two) = (of(json!(["BestEffort"])), of(json!(["Terminating"])));
        assert_eq!(
            faults_of_update(validate, one.clone(), two),
            ["spec.scopes: Invalid value: [\"Terminating\"]: field is immutable"]
        );
        assert_eq!(faults_of_update(validate, one.clone(), one), [] as [&str; 0]);
    }

    #[test]
    fn selectors() {
        let faults = |scope: &str, operator: &str, values: Value| {
            let expression = json!({"scopeName": scope, "operator": operator, "values": values});
            faults_of(json!({"scopeSelector": {"matchExpressions": [expression]}}))
        };
        assert_eq!(faults("PriorityClass", "In", json!(["high"])), [] as [&str; 0]);
        const AT: &str = "spec.scopeSelector.matchExpressions";
        for (scope, operator, values, expected) in [
            ("Else", "Exists", json!([]), ".scopeName: Invalid value: \"Else\": unsupported scope"),
            (
                "PriorityClass",
                "In",
                json!([]),
                ".values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            (
                "PriorityClass",
                "Exists",
                json!(["x"]),
                ".values: Invalid value: [\"x\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            (
                "PriorityClass",
                "Like",
                json!([]),
                ".operator: Invalid value: \"Like\": not a valid selector operator",
            ),
        ] {
            assert_eq!(faults(scope, operator, values), [format!("{AT}{expected}")]);
        }
        assert!(faults("BestEffort", "In", json!(["x"]))[0].contains("must be 'Exists' when"));
    }
}
