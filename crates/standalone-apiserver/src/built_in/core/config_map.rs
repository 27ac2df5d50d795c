//! ConfigMaps.

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::QuotaUsage;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::core::v1::ConfigMap;

use super::data::{IMMUTABLE_DATA, SIZE_LIMIT, check_key, none_if_empty};
use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;

pub(crate) fn row() -> Row<ConfigMap> {
    Row {
        short_names: &["cm"],
        columns: columns(),
        rules: Validation::new().validate(|map, old, _| validate(map, old)),
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy { quota_usage: QuotaUsage::CountAs("configmaps"), ..without_generation() }
}

fn columns() -> Vec<Column<ConfigMap>> {
    let data = |map: &ConfigMap, _| {
        let data = map.data.as_ref().map_or(0, BTreeMap::len);
        data + map.binary_data.as_ref().map_or(0, BTreeMap::len)
    };
    vec![Column::computed("Data", data), Column::age()]
}

fn validate(map: &ConfigMap, old: Option<&ConfigMap>) -> FieldErrors {
    let mut faults = Vec::new();
    let binary = map.binary_data.clone().unwrap_or_default();
    let mut size = 0;
    for (key, value) in map.data.iter().flatten() {
        let at = format!("data[{key}]");
        check_with(&at, key, check_key, &mut faults);
        if binary.contains_key(key) {
            let why = "duplicate of key present in binaryData";
            faults.push(FieldError::invalid(at, quote(key), why));
        }
        size += value.len();
    }
    for (key, value) in &binary {
        check_with(&format!("binaryData[{key}]"), key, check_key, &mut faults);
        size += value.0.len();
    }
    if size > SIZE_LIMIT {
        faults.push(FieldError::too_long("", SIZE_LIMIT as u64));
    }
    let Some(old) = old.filter(|old| old.immutable == Some(true)) else { return faults };
    for (field, is_kept) in [
        ("immutable", map.immutable == Some(true)),
        ("data", none_if_empty(&map.data) == none_if_empty(&old.data)),
        ("binaryData", none_if_empty(&map.binary_data) == none_if_empty(&old.binary_data)),
    ] {
        if !is_kept {
            faults.push(FieldError::forbidden(field, IMMUTABLE_DATA));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::super::data::KEY;
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::json;

    #[test]
    fn config_map_validation_reports_invalid_fields() {
        let no_key = |at: &str, key: &str| format!("{at}[{key}]: Invalid value: {key:?}: {KEY}");
        for (map, expected) in [
            (json!({}), vec![]),
            (json!({"data": {"a.b_c-D": ""}, "binaryData": {"b": "AAE="}}), vec![]),
            (
                json!({"data": {"a/b": "c"}, "binaryData": {"": "AAE="}}),
                vec![no_key("data", "a/b"), no_key("binaryData", "")],
            ),
            (
                json!({"data": {"..": "x"}}),
                vec!["data[..]: Invalid value: \"..\": must not be '..'".to_owned()],
            ),
            (
                json!({"data": {"a": "b"}, "binaryData": {"a": "AAE="}}),
                vec![
                    "data[a]: Invalid value: \"a\": duplicate of key present in binaryData"
                        .to_owned(),
                ],
            ),
            (
                json!({"data": {"a": "x".repeat(SIZE_LIMIT + 1)}}),
                vec![": Too long: may not be more than 1048576 bytes".to_owned()],
            ),
        ] {
            assert_eq!(faults_of_new(validate, map.clone()), expected);
        }
    }

    #[test]
    fn data_of_an_immutable_config_map_cannot_change() {
        let old = json!({"immutable": true, "data": {"a": "b"}});
        for (new, forbidden) in [
            (json!({"immutable": true, "data": {"a": "b"}, "binaryData": {}}), vec![]),
            (json!({"immutable": true, "data": {"a": "c"}}), vec!["data"]),
            (json!({"data": {"a": "b"}}), vec!["immutable"]),
            (json!({"binaryData": {"a": "AAE="}}), vec!["immutable", "data", "binaryData"]),
        ] {
            let expected: Vec<String> = forbidden
                .into_iter()
                .map(|field| format!("{field}: Forbidden: {IMMUTABLE_DATA}"))
                .collect();
            assert_eq!(faults_of_update(validate, old.clone(), new), expected);
        }
        let may_change = json!({"data": {"a": "b"}});
        assert_eq!(faults_of_update(validate, may_change, json!({})), [] as [&str; 0]);
    }

    #[test]
    fn config_map_table_counts_data_and_binary_data() {
        let map = json!({"data": {"a": "", "b": ""}, "binaryData": {"c": "AAE="}});
        assert_eq!(cells(columns(), map), json!({"Data": 3, "Age": "<unknown>"}));
        assert_eq!(cells(columns(), json!({})), json!({"Data": 0, "Age": "<unknown>"}));
    }
}
