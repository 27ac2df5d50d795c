//! ClusterRoles.

use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::rbac::v1::ClusterRole;

use super::policy_rule::{self, Paths};
use super::strategy::strategy;
use crate::built_in::checks::FieldErrors;
use crate::built_in::label_selector;
use crate::built_in::row::{Column, Row};

pub(crate) fn row() -> Row<ClusterRole> {
    let rules = Validation::new().validate(|role, _, _| validate(role));
    Row { columns: vec![Column::created_at()], rules, ..Row::new(strategy()) }
}

fn validate(role: &ClusterRole) -> FieldErrors {
    let mut faults = Vec::new();
    policy_rule::check(role.rules.as_ref(), Paths::Allowed, &mut faults);
    let Some(aggregated) = &role.aggregation_rule else { return faults };
    let at = "aggregationRule.clusterRoleSelectors";
    let selectors = aggregated.cluster_role_selectors.as_deref().unwrap_or_default();
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        faults.push(FieldError::required(at, why));
    }
    for (index, selector) in selectors.iter().enumerate() {
        let (at, before) = (format!("{at}[{index}]"), faults.len());
        label_selector::validate(selector, &at, &mut faults);
        if faults.len() > before {
            faults.push(FieldError::invalid(at, "null", "invalid label selector."));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn an_aggregation_rule_requires_a_cluster_role_selector() {
        for (rule, expected) in [
            (json!(null), vec![]),
            (json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}), vec![]),
            (
                json!({}),
                vec![
                    "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
                ],
            ),
        ] {
            let role = object(json!({"aggregationRule": rule}));
            assert_eq!(texts(&validate(&role)), expected, "{rule}");
        }
    }
}
