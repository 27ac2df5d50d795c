//! The texts in table cells of several kinds.

use std::collections::BTreeMap;

/// The cell of a missing value.
pub(crate) const NONE: &str = "<none>";

/// The cell of an unset value.
pub(crate) const UNSET: &str = "<unset>";

/// The cell of an unknown time.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// Labels in the format `a=b,c=d`.
pub(crate) fn pairs(pairs: Option<&BTreeMap<String, String>>) -> String {
    let pairs = pairs.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// The string, or `<none>` if it is empty.
pub(crate) fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}
