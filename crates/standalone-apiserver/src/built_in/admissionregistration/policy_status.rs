//! The validation of the status of ValidatingAdmissionPolicies, with the messages of kube-apiserver.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

use crate::built_in::checks::FieldErrors;
use crate::built_in::conditions;

pub(super) fn validate(policy: &ValidatingAdmissionPolicy) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(status) = &policy.status else { return faults };
    let warnings = status.type_checking.as_ref().and_then(|all| all.expression_warnings.as_ref());
    for (index, warning) in warnings.into_iter().flatten().enumerate() {
        let at = format!("status.typeChecking.expressionWarnings[{index}]");
        if warning.warning.is_empty() {
            faults.push(FieldError::required(format!("{at}.warning"), ""));
        }
        if warning.field_ref.trim().is_empty() {
            faults.push(FieldError::required(format!("{at}.fieldRef"), ""));
        }
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions::check(conditions, "status.conditions", &mut faults);
    faults
}
