//! Tolerations.

use aggregated_apiserver::{FieldError, names};
use k8s_openapi::api::core::v1::Toleration;

use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};

/// Validates a toleration.
pub(crate) fn validate(toleration: &Toleration, at: &str, faults: &mut FieldErrors) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    if !key.is_empty() {
        check_with(&format!("{at}.key"), key, names::check_label_key, faults);
    } else if operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        faults.push(FieldError::invalid(format!("{at}.operator"), quote(operator), why));
    }
    match operator {
        "" | "Equal" => {
            check_with(&format!("{at}.operator"), value, names::check_label_value, faults);
        }
        "Exists" => {
            if !value.is_empty() {
                let why = "value must be empty when `operator` is 'Exists'";
                faults.push(FieldError::invalid(format!("{at}.operator"), quote(value), why));
            }
        }
        other => {
            let all = ["Equal", "Exists"];
            faults.push(FieldError::not_supported(format!("{at}.operator"), quote(other), &all));
        }
    }
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.push(FieldError::invalid(format!("{at}.effect"), quote(effect), why));
    }
    if let Some(effect) = toleration.effect.as_ref().filter(|effect| !effect.is_empty()) {
        let all = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        check_one_of(format!("{at}.effect"), Some(effect), &all, faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn faults() {
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
                    "t.operator: Unsupported value: \"X\": supported values: \"Equal\", \"Exists\"",
                    "t.effect: Invalid value: \"Y\": effect must be 'NoExecute' when `tolerationSeconds` is set",
                    "t.effect: Unsupported value: \"Y\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            validate(&object(toleration.clone()), "t", &mut faults);
            assert_eq!(texts(&faults), expected, "{toleration}");
        }
    }
}
