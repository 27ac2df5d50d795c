//! The data of ConfigMaps and Secrets.

use std::collections::BTreeMap;

/// The largest size of all values together, in bytes; same as kube-apiserver.
pub(crate) const SIZE_LIMIT: usize = 1 << 20;

/// The message for a change of immutable data.
pub(crate) const IMMUTABLE_DATA: &str = "field is immutable when `immutable` is set";

const KEY_LIMIT: usize = 253;

/// The message for a key with invalid characters.
pub(crate) const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Returns the errors of a key.
pub(crate) fn check_key(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > KEY_LIMIT {
        faults.push(format!("must be no more than {KEY_LIMIT} characters"));
    }
    if key.is_empty()
        || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    {
        faults.push(KEY.to_owned());
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// The map, or `None` if it is empty, because an empty map equals a missing one.
pub(crate) fn none_if_empty<V>(map: &Option<BTreeMap<String, V>>) -> Option<&BTreeMap<String, V>> {
    map.as_ref().filter(|map| !map.is_empty())
}
