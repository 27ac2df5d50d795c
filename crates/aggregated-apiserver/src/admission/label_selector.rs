//! The evaluation of label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Whether a selector has no requirements.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether a valid selector selects these labels.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use aggregated_apiserver::admission::label_selector;
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
///
/// let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
/// let selector = LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() };
/// assert!(label_selector::matches(&selector, Some(&labels)));
/// assert!(!label_selector::matches(&selector, None));
/// ```
pub fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let equal =
        selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted));
    let others = selector.match_expressions.iter().flatten().all(|term| {
        let found = value(&term.key);
        let is_in = found.is_some_and(|found| term.values.iter().flatten().any(|one| one == found));
        match term.operator.as_str() {
            "In" => is_in,
            "NotIn" => !is_in,
            "Exists" => found.is_some(),
            _ => found.is_none(),
        }
    });
    equal && others
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(selector: &Value) -> LabelSelector {
        serde_json::from_value(selector.clone()).unwrap()
    }

    #[test]
    fn label_selectors_match_labels_and_expressions() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        for (selector, is_selected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "b"}}), true),
            (json!({"matchLabels": {"a": "c"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}), true),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["b"]}]}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
        ] {
            assert_eq!(matches(&object(&selector), Some(&labels)), is_selected, "{selector}");
        }
        assert!(!matches(&object(&json!({"matchLabels": {"a": "b"}})), None));
    }
}
