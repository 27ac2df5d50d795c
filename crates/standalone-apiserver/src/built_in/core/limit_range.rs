//! LimitRanges. The admission plugin LimitRanger enforces them.

mod validation;

use std::collections::BTreeMap;

use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;
use validation::validate;

pub(crate) fn row() -> Row<LimitRange> {
    let rules = Validation::new()
        .prepare(|range, _| prepare(range))
        .validate(|range, _, _| validate(range));
    Row {
        short_names: &["limits"],
        columns: vec![Column::created_at()],
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy { allows_create_on_update: true, ..without_generation() }
}

fn prepare(range: &mut LimitRange) {
    // A LimitRange without a name gets its uid as its name.
    if range.metadata.name.as_ref().is_none_or(String::is_empty) {
        range.metadata.name.clone_from(&range.metadata.uid);
    }
    let limits = range.spec.iter_mut().flat_map(|spec| &mut spec.limits);
    for limit in limits.filter(|limit| limit.type_ == "Container") {
        set_defaults(limit);
    }
}

/// Sets the default limit to the maximum, and the default request to the default limit or the minimum.
fn set_defaults(limit: &mut LimitRangeItem) {
    fn fill(
        amounts: &mut Option<BTreeMap<String, Amount>>,
        from: Option<&BTreeMap<String, Amount>>,
    ) {
        for (name, amount) in from.into_iter().flatten() {
            let amounts = amounts.get_or_insert_default();
            amounts.entry(name.clone()).or_insert_with(|| amount.clone());
        }
    }
    fill(&mut limit.default, limit.max.as_ref());
    fill(&mut limit.default_request, limit.default.as_ref());
    fill(&mut limit.default_request, limit.min.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::prepared;
    use serde_json::json;

    #[test]
    fn defaults() {
        let range = json!({"metadata": {"uid": "u"}, "spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "min": {"cpu": "1", "x.io/a": "1"}, "default": {"cpu": "1500m"}},
            {"type": "Pod", "max": {"cpu": "2"}},
        ]}});
        let range = prepared(prepare, range);
        assert_eq!(range["metadata"]["name"], "u");
        let limits = &range["spec"]["limits"];
        assert_eq!(limits[0]["default"], json!({"cpu": "1500m", "memory": "1Gi"}));
        assert_eq!(
            limits[0]["defaultRequest"],
            json!({"cpu": "1500m", "memory": "1Gi", "x.io/a": "1"})
        );
        assert_eq!(limits[1], json!({"type": "Pod", "max": {"cpu": "2"}}));
    }
}
