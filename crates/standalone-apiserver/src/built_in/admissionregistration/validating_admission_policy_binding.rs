//! ValidatingAdmissionPolicyBindings.

use std::collections::BTreeSet;

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::admissionregistration::v1::{ParamRef, ValidatingAdmissionPolicyBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::configuration::{strategy, warnings};
use super::match_resources;
use crate::built_in::checks::{FieldErrors, check_given, check_one_of, check_with, quote, to_json};
use crate::built_in::label_selector;
use crate::built_in::row::{Column, Row};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

pub(crate) fn row() -> Row<ValidatingAdmissionPolicyBinding> {
    let rules = Validation::new()
        .prepare(|binding, _| prepare(binding))
        .validate(|binding, _, _| validate(binding))
        .warn(|binding: &ValidatingAdmissionPolicyBinding, _, _| warnings(&binding.metadata));
    Row { categories: &["api-extensions"], columns: columns(), rules, ..Row::new(strategy()) }
}

fn columns() -> Vec<Column<ValidatingAdmissionPolicyBinding>> {
    let policy_name =
        |binding: &ValidatingAdmissionPolicyBinding, _| binding.spec.policy_name.clone();
    let param_ref = |binding: &ValidatingAdmissionPolicyBinding, _| {
        let param_ref = binding.spec.param_ref.as_ref();
        param_ref.and_then(shown).unwrap_or_else(|| "<unset>".to_owned())
    };
    vec![
        Column::computed("PolicyName", policy_name),
        Column::computed("ParamRef", param_ref),
        Column::age(),
    ]
}

/// The reference to parameters in tables.
fn shown(param_ref: &ParamRef) -> Option<String> {
    match param_ref.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => {
            let namespace = param_ref.namespace.as_deref();
            let namespace = namespace.filter(|namespace| !namespace.is_empty());
            Some(format!("{}/{name}", namespace.unwrap_or("*")))
        }
        None => param_ref.selector.as_ref().map(go_text),
    }
}

/// A label selector as Go formats it.
fn go_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let terms = selector.match_expressions.iter().flatten().map(|term| {
        let values = term.values.as_deref().unwrap_or_default().join(" ");
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            term.key, term.operator
        )
    });
    let terms: String = terms.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
    )
}

fn prepare(binding: &mut ValidatingAdmissionPolicyBinding) {
    if let Some(resources) = &mut binding.spec.match_resources {
        match_resources::set_defaults(resources);
    }
}

fn validate(binding: &ValidatingAdmissionPolicyBinding) -> FieldErrors {
    let mut faults = Vec::new();
    let (spec, at) = (&binding.spec, "spec.policyName");
    if check_given(at, &spec.policy_name, &mut faults) {
        check_with(at, &spec.policy_name, names::check_dns_1123_subdomain, &mut faults);
    }
    if let Some(param_ref) = &spec.param_ref {
        check_param_ref(param_ref, "spec.paramRef", &mut faults);
    }
    if let Some(resources) = &spec.match_resources {
        match_resources::check(resources, "spec.matchResources", &mut faults);
    }
    check_actions(&spec.validation_actions, "spec.validationActions", &mut faults);
    faults
}

fn check_param_ref(param_ref: &ParamRef, at: &str, faults: &mut FieldErrors) {
    let name = param_ref.name.as_deref().filter(|name| !name.is_empty());
    let exclusive = "name and selector are mutually exclusive";
    if let Some(name) = name {
        let at = format!("{at}.name");
        check_with(&at, name, names::check_path_segment, faults);
        if param_ref.selector.is_some() {
            faults.push(FieldError::forbidden(at, exclusive));
        }
    }
    if let Some(selector) = &param_ref.selector {
        let at = format!("{at}.selector");
        label_selector::validate(selector, &at, faults);
        if name.is_some() {
            faults.push(FieldError::forbidden(at, exclusive));
        }
    }
    if name.is_none() && param_ref.selector.is_none() {
        faults.push(FieldError::required(at, "one of name or selector must be specified"));
    }
    let at = format!("{at}.parameterNotFoundAction");
    let action = param_ref.parameter_not_found_action.clone().unwrap_or_default();
    if check_given(&at, &action, faults) {
        check_one_of(at, Some(&action), &["Deny", "Allow"], faults);
    }
}

fn check_actions(actions: &[String], at: &str, faults: &mut FieldErrors) {
    let mut known = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        let at = format!("{at}[{index}]");
        check_one_of(&at, Some(action), &ACTIONS, faults);
        if !known.insert(action.as_str()) {
            faults.push(FieldError::duplicate(at, quote(action)));
        }
    }
    if known.contains("Deny") && known.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        faults.push(FieldError::invalid(at, to_json(&actions), why));
    }
    if actions.is_empty() {
        faults.push(FieldError::required(at, "at least one validation action is required"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, object, texts};
    use serde_json::{Value, json};

    fn faults(spec: Value) -> Vec<String> {
        texts(&validate(&object(json!({"metadata": {"name": "b"}, "spec": spec}))))
    }

    #[test]
    fn invalid_bindings_are_rejected() {
        let valid = json!({
            "policyName": "p", "validationActions": ["Deny", "Audit"],
            "paramRef": {"name": "a", "parameterNotFoundAction": "Deny"},
        });
        assert_eq!(faults(valid), [] as [&str; 0]);
        assert_eq!(
            faults(json!({
                "validationActions": ["Deny", "Warn", "Deny", "X"],
                "paramRef": {"name": "a/b", "selector": {}, "parameterNotFoundAction": "X"},
            })),
            [
                "spec.policyName: Required value",
                "spec.paramRef.name: Invalid value: \"a/b\": may not contain '/'",
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.parameterNotFoundAction: Unsupported value: \"X\": supported values: \"Deny\", \"Allow\"",
                "spec.validationActions[2]: Duplicate value: \"Deny\"",
                "spec.validationActions[3]: Unsupported value: \"X\": supported values: \"Audit\", \"Deny\", \"Warn\"",
                "spec.validationActions: Invalid value: [\"Deny\",\"Warn\",\"Deny\",\"X\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
            ]
        );
        assert_eq!(
            faults(json!({"policyName": "p", "paramRef": {}})),
            [
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Required value",
                "spec.validationActions: Required value: at least one validation action is required",
            ]
        );
    }

    #[test]
    fn references_to_parameters_are_printed() {
        let shown = |param_ref: Value| {
            let spec = json!({"policyName": "p", "paramRef": param_ref});
            cells(columns(), json!({"metadata": {}, "spec": spec}))["ParamRef"].clone()
        };
        assert_eq!(shown(json!(null)), "<unset>");
        assert_eq!(shown(json!({"name": "a"})), "*/a");
        assert_eq!(shown(json!({"name": "a", "namespace": "n"})), "n/a");
        assert_eq!(
            shown(json!({"selector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}],
            }})),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[d e],},},}"
        );
    }
}
