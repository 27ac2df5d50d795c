//! Tolerations.

use aggregated_apiserver::{FieldError, names};
use k8s_openapi::api::core::v1::Toleration;

use crate::built_in::checks::{Faults, check_one_of, check_with, quote};

pub(crate) fn check_toleration(toleration: &Toleration, at: &str, faults: &mut Faults) {
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
