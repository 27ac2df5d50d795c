//! Annotations of audit events, in the format of kube-apiserver.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::admission::AdmissionRequest;

/// The property that exempts a Pod: `namespace`, `user` or `runtimeClass`.
pub(super) const EXEMPT: &str = "exempt";
/// The level that was enforced.
pub(super) const ENFORCED_POLICY: &str = "enforce-policy";
/// The violations of the level of the mode `audit`.
pub(super) const AUDIT_VIOLATIONS: &str = "audit-violations";
/// The reason for which a Pod could not be checked, or not with the labels of its namespace.
pub(super) const ERROR: &str = "error";

pub(super) fn annotate(request: &AdmissionRequest<'_>, key: &str, value: &str) {
    request.annotate(&format!("pod-security.kubernetes.io/{key}"), value);
}

/// Records that labels of the namespace are invalid.
pub(super) fn annotate_label_errors(request: &AdmissionRequest<'_>, errors: &[FieldError]) {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let all = match &texts[..] {
        [] => return,
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    annotate(request, ERROR, &format!("Failed to parse policy: {all}"));
}
