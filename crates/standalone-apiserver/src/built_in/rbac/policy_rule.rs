//! The rules of Roles and ClusterRoles.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::built_in::checks::{FieldErrors, to_json};

/// Whether rules may contain non-resource URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    Allowed,
    /// A rule in a namespace has no non-resource URLs.
    Refused,
}

/// Validates rules.
pub(super) fn check(rules: Option<&Vec<PolicyRule>>, paths: Paths, faults: &mut FieldErrors) {
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        check_rule(rule, paths, &format!("rules[{index}]"), faults);
    }
}

fn check_rule(rule: &PolicyRule, paths: Paths, at: &str, faults: &mut FieldErrors) {
    let is_empty = |values: &Option<Vec<String>>| values.as_ref().is_none_or(Vec::is_empty);
    if rule.verbs.is_empty() {
        let why = "verbs must contain at least one value";
        faults.push(FieldError::required(format!("{at}.verbs"), why));
    }
    if !is_empty(&rule.non_resource_urls) {
        let mut refuse = |why: &str| {
            let urls = to_json(&rule.non_resource_urls);
            faults.push(FieldError::invalid(format!("{at}.nonResourceURLs"), urls, why));
        };
        if paths == Paths::Refused {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if ![&rule.api_groups, &rule.resources, &rule.resource_names].into_iter().all(is_empty) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    for (name, values, what) in
        [("apiGroups", &rule.api_groups, "api group"), ("resources", &rule.resources, "resource")]
    {
        if is_empty(values) {
            let why = format!("resource rules must supply at least one {what}");
            faults.push(FieldError::required(format!("{at}.{name}"), &why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::{Value, json};

    fn faults(paths: Paths, rule: Value) -> Vec<String> {
        let mut faults = Vec::new();
        check(Some(&vec![object(rule)]), paths, &mut faults);
        texts(&faults)
    }

    #[test]
    fn invalid_rbac_rules_are_rejected() {
        let reads = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        assert_eq!(faults(Paths::Refused, reads), [""; 0]);
        let verbs = "rules[0].verbs: Required value: verbs must contain at least one value";
        let groups =
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group";
        let resources =
            "rules[0].resources: Required value: resource rules must supply at least one resource";
        assert_eq!(faults(Paths::Allowed, json!({})), [verbs, groups, resources]);
        let path = json!({"verbs": ["get"], "nonResourceURLs": ["/a", "/b"]});
        assert_eq!(faults(Paths::Allowed, path.clone()), [""; 0]);
        let namespaced = r#"rules[0].nonResourceURLs: Invalid value: ["/a","/b"]: namespaced rules cannot apply to non-resource URLs"#;
        assert_eq!(faults(Paths::Refused, path), [namespaced]);
        let both = json!({"verbs": ["get"], "nonResourceURLs": ["/a"], "resourceNames": ["b"]});
        let mixed = r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#;
        assert_eq!(faults(Paths::Allowed, both), [mixed]);
    }
}
