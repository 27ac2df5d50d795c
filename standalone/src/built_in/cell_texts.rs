//! Texts that the cells of several kinds show.

use std::collections::BTreeMap;

/// What stands where there is nothing.
pub(crate) const NONE: &str = "<none>";

/// What stands where nobody knows.
pub(crate) const UNKNOWN: &str = "<unknown>";

pub(crate) fn pairs(pairs: Option<&BTreeMap<String, String>>) -> String {
    let pairs = pairs.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

pub(crate) fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}
