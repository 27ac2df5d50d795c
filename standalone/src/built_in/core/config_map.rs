//! ConfigMaps.

use std::collections::BTreeMap;

use aggregated_apiserver::{FieldError, Rules};
use k8s_openapi::api::core::v1::ConfigMap;

use super::data::{SEALED, SIZE_LIMIT, check_key, filled};
use crate::built_in::checks::{Faults, check_with, quote};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy;

pub(crate) fn row() -> Row<ConfigMap> {
    Row {
        short_names: &["cm"],
        columns: columns(),
        rules: Rules::none().validate(|map, old, _| validate(map, old)),
        ..Row::new(strategy::plain())
    }
}

fn columns() -> Vec<Column<ConfigMap>> {
    let data = |map: &ConfigMap, _| {
        let data = map.data.as_ref().map_or(0, BTreeMap::len);
        data + map.binary_data.as_ref().map_or(0, BTreeMap::len)
    };
    vec![Column::computed("Data", data), Column::age()]
}

fn validate(map: &ConfigMap, old: Option<&ConfigMap>) -> Faults {
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
        ("data", filled(&map.data) == filled(&old.data)),
        ("binaryData", filled(&map.binary_data) == filled(&old.binary_data)),
    ] {
        if !is_kept {
            faults.push(FieldError::forbidden(field, SEALED));
        }
    }
    faults
}
