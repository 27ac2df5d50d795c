//! Reconciles an object of the bootstrap policy with the existing object, by the rules of kube-apiserver: missing parts
//! are added, and parts that users have added remain.

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::bootstrap_policy::AUTO_UPDATE;
use super::policy_rules;

type Tree = Map<String, Value>;

/// The result of a reconciliation.
#[derive(Debug, PartialEq)]
pub(super) enum Reconciled {
    /// The object does not change.
    Unchanged,
    /// This object replaces it.
    Changed(Tree),
    /// The object must be deleted and created again, because a roleRef is immutable.
    Recreated,
}

/// Adds the missing parts of the policy to an object.
pub(super) fn reconcile(existing: &Tree, expected: &Tree) -> Reconciled {
    if metadata(existing)["annotations"][AUTO_UPDATE] == "false" {
        return Reconciled::Unchanged;
    }
    let role_ref = |object: &Tree| member::<RoleRef>(object, "roleRef");
    if role_ref(existing) != role_ref(expected) {
        return Reconciled::Recreated;
    }
    let mut object = existing.clone();
    for name in ["annotations", "labels"] {
        add_missing_keys(&mut object, expected, name);
    }
    add_missing_rules(&mut object, expected);
    add_missing_selectors(&mut object, expected);
    add_missing_items(&mut object, expected, "subjects");
    if object == *existing { Reconciled::Unchanged } else { Reconciled::Changed(object) }
}

fn add_missing_keys(object: &mut Tree, expected: &Tree, name: &str) {
    let Some(Value::Object(own)) = object.get_mut("metadata") else { return };
    let Some(wanted) = metadata(expected)[name].as_object() else { return };
    if let Value::Object(own) = own.entry(name).or_insert_with(|| json!({})) {
        for (key, value) in wanted {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Adds the permissions that the rules of the object do not cover, one rule for each.
fn add_missing_rules(object: &mut Tree, expected: &Tree) {
    let rules = |object: &Tree| member::<Vec<PolicyRule>>(object, "rules").unwrap_or_default();
    let missing = policy_rules::uncovered(&rules(object), &rules(expected));
    push(object, "rules", missing.into_iter().map(|rule| json!(rule)).collect());
}

/// Adds the selectors that the object lacks. An object that is not aggregated in the policy becomes a plain role.
fn add_missing_selectors(object: &mut Tree, expected: &Tree) {
    const RULE: &str = "aggregationRule";
    let Some(Value::Object(expected)) = expected.get(RULE) else {
        object.remove(RULE);
        return;
    };
    let own = object.entry(RULE).or_insert_with(|| json!({}));
    if let Value::Object(own) = own {
        add_missing_items(own, expected, "clusterRoleSelectors");
    }
}

fn add_missing_items(object: &mut Tree, expected: &Tree, list: &str) {
    let items =
        |object: &Tree| object.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
    let own = items(object);
    let missing = items(expected).into_iter().filter(|item| !own.contains(item));
    push(object, list, missing.collect());
}

fn push(object: &mut Tree, list: &str, items: Vec<Value>) {
    if items.is_empty() {
        return;
    }
    match object.get_mut(list) {
        Some(Value::Array(own)) => own.extend(items),
        _ => drop(object.insert(list.to_owned(), items.into())),
    }
}

fn metadata(object: &Tree) -> &Value {
    object.get("metadata").unwrap_or(&Value::Null)
}

fn member<T: DeserializeOwned>(object: &Tree, name: &str) -> Option<T> {
    serde_json::from_value(object.get(name)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(value: Value) -> Tree {
        value.as_object().unwrap().clone()
    }

    fn role(rules: Value) -> Tree {
        let metadata =
            json!({"name": "a", "annotations": {AUTO_UPDATE: "true"}, "labels": {"of": "policy"}});
        tree(json!({"kind": "ClusterRole", "metadata": metadata, "rules": rules}))
    }

    fn rule(resources: &[&str], verbs: &[&str]) -> Value {
        json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
    }

    #[test]
    fn missing_permissions_are_added_and_extra_permissions_remain() {
        let expected = role(json!([rule(&["pods", "nodes"], &["get", "list"])]));
        assert_eq!(reconcile(&expected, &expected), Reconciled::Unchanged);
        // The same permissions in other rules.
        let other = role(json!([
            rule(&["pods"], &["get", "list"]),
            rule(&["nodes"], &["*"]),
            rule(&["a"], &["b"]),
        ]));
        assert_eq!(reconcile(&other, &expected), Reconciled::Unchanged);
        let fewer =
            role(json!([rule(&["pods"], &["get", "list"]), rule(&["nodes", "a"], &["get"])]));
        let Reconciled::Changed(changed) = reconcile(&fewer, &expected) else {
            panic!("unchanged")
        };
        assert_eq!(
            changed["rules"],
            json!([
                rule(&["pods"], &["get", "list"]),
                rule(&["nodes", "a"], &["get"]),
                rule(&["nodes"], &["list"]),
            ])
        );
    }

    #[test]
    fn reconciliation_adds_missing_labels_and_preserves_existing_ones() {
        let expected = role(json!([]));
        let mut changed = expected.clone();
        changed["metadata"]["labels"] = json!({"of": "mine", "b": "c"});
        assert_eq!(reconcile(&changed, &expected), Reconciled::Unchanged);
        changed["metadata"]["labels"] = json!({"b": "c"});
        let Reconciled::Changed(changed) = reconcile(&changed, &expected) else {
            panic!("unchanged")
        };
        assert_eq!(changed["metadata"]["labels"], json!({"of": "policy", "b": "c"}));
    }

    #[test]
    fn an_object_with_auto_update_disabled_is_not_reconciled() {
        let expected = role(json!([rule(&["pods"], &["get"])]));
        let mut own = role(json!([]));
        own["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(reconcile(&own, &expected), Reconciled::Unchanged);
    }

    #[test]
    fn aggregation_selectors_are_added_and_removed_from_plain_roles() {
        let selector = |label: &str| json!({"matchLabels": {label: "true"}});
        let aggregated = |selectors: Value| {
            let mut role = role(json!([]));
            role.remove("rules");
            role.insert("aggregationRule".to_owned(), json!({"clusterRoleSelectors": selectors}));
            role
        };
        let expected = aggregated(json!([selector("a")]));
        let more = aggregated(json!([selector("b"), selector("a")]));
        assert_eq!(reconcile(&more, &expected), Reconciled::Unchanged);
        let other = aggregated(json!([selector("b")]));
        let Reconciled::Changed(changed) = reconcile(&other, &expected) else {
            panic!("unchanged")
        };
        assert_eq!(
            changed["aggregationRule"]["clusterRoleSelectors"],
            json!([selector("b"), selector("a")])
        );
        let plain = role(json!([]));
        let Reconciled::Changed(changed) = reconcile(&other, &plain) else { panic!("unchanged") };
        assert!(!changed.contains_key("aggregationRule"));
    }

    #[test]
    fn a_binding_gets_missing_subjects_and_is_created_anew_for_another_role() {
        let binding = |role: &str, subjects: Value| {
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
            tree(json!({"metadata": {"name": "a"}, "roleRef": role, "subjects": subjects}))
        };
        let subject = |name: &str| json!({"kind": "User", "name": name});
        let expected = binding("r", json!([subject("a")]));
        let Reconciled::Changed(changed) =
            reconcile(&binding("r", json!([subject("b")])), &expected)
        else {
            panic!("unchanged")
        };
        assert_eq!(changed["subjects"], json!([subject("b"), subject("a")]));
        assert_eq!(reconcile(&binding("s", json!([])), &expected), Reconciled::Recreated);
    }
}
