//! Aggregation: the rules of a ClusterRole that selects other ClusterRoles by label, same as in
//! kube-controller-manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use crate::built_in::label_selector;

/// The rules of the roles that `role` selects, without duplicates, in the order of its selectors, then of role names;
/// `None` without any rules. A selected role that is aggregated itself contributes its current rules.
pub(super) fn aggregated_rules(
    role: &ClusterRole,
    all: &BTreeMap<String, Arc<ClusterRole>>,
) -> Option<Vec<PolicyRule>> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    let aggregation = role.aggregation_rule.as_ref()?;
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        for (name, other) in all {
            let is_own = role.metadata.name.as_ref() == Some(name);
            if is_own || !label_selector::matches(selector, other.metadata.labels.as_ref()) {
                continue;
            }
            for rule in other.rules.iter().flatten() {
                if !rules.iter().any(|known| is_same(known, rule)) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules).filter(|rules| !rules.is_empty())
}

/// Whether a role has exactly these rules, in any order.
pub(super) fn has_rules(role: &ClusterRole, rules: Option<&Vec<PolicyRule>>) -> bool {
    let (own, rules) =
        (role.rules.as_deref().unwrap_or_default(), rules.map_or(&[][..], Vec::as_slice));
    let covers = |these: &[PolicyRule], those: &[PolicyRule]| {
        those.iter().all(|rule| these.iter().any(|other| is_same(other, rule)))
    };
    covers(own, rules) && covers(rules, own)
}

/// Whether two rules are equal; an empty list equals a missing list.
fn is_same(one: &PolicyRule, other: &PolicyRule) -> bool {
    let lists = |rule: &PolicyRule| {
        let lists =
            [&rule.api_groups, &rule.resources, &rule.resource_names, &rule.non_resource_urls];
        lists.map(|list| list.as_deref().unwrap_or_default().to_vec())
    };
    one.verbs == other.verbs && lists(one) == lists(other)
}
