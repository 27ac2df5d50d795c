//! Label selectors.

use std::collections::BTreeMap;

use aggregated_apiserver::FieldError;
pub(crate) use aggregated_apiserver::admission::label_selector::{is_empty, matches};
use aggregated_apiserver::strategy::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::cell_texts::{NONE, or_none};
use super::checks::{FieldErrors, check_with, quote};
use super::row::Column;

/// Validates a selector.
pub(crate) fn validate(selector: &LabelSelector, at: &str, faults: &mut FieldErrors) {
    check_labels(selector.match_labels.as_ref(), &format!("{at}.matchLabels"), faults);
    for (index, term) in selector.match_expressions.iter().flatten().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        let values = term.values.as_deref().unwrap_or_default();
        match term.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                faults.push(FieldError::required(format!("{at}.values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                faults.push(FieldError::forbidden(format!("{at}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let why = "not a valid selector operator";
                faults.push(FieldError::invalid(format!("{at}.operator"), quote(other), why));
            }
        }
        check_with(&format!("{at}.key"), &term.key, names::check_label_key, faults);
        for (number, value) in values.iter().enumerate() {
            check_with(&format!("{at}.values[{number}]"), value, names::check_label_value, faults);
        }
    }
}

/// Validates labels.
pub(crate) fn check_labels(
    labels: Option<&BTreeMap<String, String>>,
    at: &str,
    faults: &mut FieldErrors,
) {
    for (key, value) in labels.into_iter().flatten() {
        check_with(at, key, names::check_label_key, faults);
        check_with(at, value, names::check_label_value, faults);
    }
}

/// The column of the label selector of a workload.
pub(crate) fn column<K: 'static>(of: fn(&K) -> Option<&LabelSelector>) -> Column<K> {
    Column::computed("Selector", move |object: &K, _| shown_selector(of(object))).wide()
}

/// A selector in the format of kubectl: `app=web,tier in (a,b)`.
pub(crate) fn shown_selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return NONE.to_owned() };
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.clone().unwrap_or_default().join(",");
        match one.operator.as_str() {
            "In" => format!("{} in ({values})", one.key),
            "NotIn" => format!("{} notin ({values})", one.key),
            "DoesNotExist" => format!("!{}", one.key),
            _ => one.key.clone(),
        }
    });
    or_none(equal.chain(others).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn invalid_label_selectors_are_rejected() {
        for (selector, expected) in [
            (json!({}), vec![]),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}),
                vec![],
            ),
            (
                json!({"matchExpressions": [
                    {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]},
                    {"key": "a", "operator": "X"},
                ]}),
                vec![
                    "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                    "s.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    "s.matchExpressions[2].operator: Invalid value: \"X\": not a valid selector operator",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            validate(&object(selector.clone()), "s", &mut faults);
            assert_eq!(texts(&faults), expected, "{selector}");
        }
        let mut faults = Vec::new();
        validate(&object(json!({"matchLabels": {"a b": "c d"}})), "s", &mut faults);
        assert_eq!(faults.len(), 2);
        assert!(faults.iter().all(|fault| fault.field() == "s.matchLabels"));
    }

    #[test]
    fn label_selectors_are_formatted_in_selector_syntax() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]},
            {"key": "f", "operator": "NotIn", "values": ["g"]},
            {"key": "h", "operator": "Exists"}, {"key": "i", "operator": "DoesNotExist"},
        ]});
        assert_eq!(shown_selector(Some(&object(selector))), "a=b,c in (d,e),f notin (g),h,!i");
        assert_eq!(shown_selector(Some(&object(json!({})))), "<none>");
        assert_eq!(shown_selector(None), "<none>");
    }
}
