//! Tolerations.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::Toleration;

use super::scope::Scope;
use crate::built_in::checks::{FieldErrors, check_with, quote};

/// Validates tolerations.
pub(crate) fn validate(
    tolerations: &[Toleration],
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    for (index, toleration) in tolerations.iter().enumerate() {
        check(toleration, scope.allowed.toleration_comparisons, &format!("{at}[{index}]"), faults);
    }
}

/// Validates a toleration, which may compare numbers if `allows` is true.
fn check(toleration: &Toleration, allows: bool, at: &str, faults: &mut FieldErrors) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let operator_at = format!("{at}.operator");
    if !key.is_empty() {
        check_with(&format!("{at}.key"), key, names::check_label_key, faults);
    } else if operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        faults.push(FieldError::invalid(&*operator_at, quote(operator), why));
    }
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.push(FieldError::invalid(format!("{at}.effect"), quote(effect), why));
    }
    let value = toleration.value.as_deref().unwrap_or_default();
    match operator {
        "" | "Equal" => {
            let whys = names::check_label_value(value);
            if !whys.is_empty() {
                faults.push(FieldError::invalid(operator_at, quote(value), &whys.join(";")));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                let why = "value must be empty when `operator` is 'Exists'";
                faults.push(FieldError::invalid(operator_at, quote(value), why));
            }
        }
        "Lt" | "Gt" if allows => check_number(value, &format!("{at}.value"), faults),
        "Lt" | "Gt" => {
            let all = ["Equal", "Exists", "Lt", "Gt"];
            faults.push(FieldError::not_supported(operator_at, quote(operator), &all));
        }
        other => {
            let all = ["Equal", "Exists"];
            faults.push(FieldError::not_supported(operator_at, quote(other), &all));
        }
    }
    if let Some(effect) = toleration.effect.as_ref().filter(|effect| !effect.is_empty()) {
        let all = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let at = format!("{at}.effect");
        if !all.contains(&effect.as_str()) {
            faults.push(FieldError::not_supported(at, quote(effect), &all));
        }
    }
}

/// Checks that a value is an integer.
fn check_number(value: &str, at: &str, faults: &mut FieldErrors) {
    if value.parse::<i64>().is_err() || value.starts_with('+') {
        let why = "must be a valid decimal integer in canonical form";
        faults.push(FieldError::invalid(at, quote(value), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn invalid_tolerations_are_rejected() {
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), vec![]),
            (json!({"key": "a", "value": "b", "effect": "NoSchedule"}), vec![]),
            (
                json!({}),
                vec![
                    "t.operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
                ],
            ),
            (
                json!({"key": "a", "operator": "Exists", "value": "b"}),
                vec![
                    "t.operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
                ],
            ),
            (
                json!({"key": "a", "operator": "X", "effect": "Y", "tolerationSeconds": 5}),
                vec![
                    "t.effect: Invalid value: \"Y\": effect must be 'NoExecute' when `tolerationSeconds` is set",
                    "t.operator: Unsupported value: \"X\": supported values: \"Equal\", \"Exists\"",
                    "t.effect: Unsupported value: \"Y\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            check(&object(toleration.clone()), false, "t", &mut faults);
            assert_eq!(texts(&faults), expected, "{toleration}");
        }
    }
}
