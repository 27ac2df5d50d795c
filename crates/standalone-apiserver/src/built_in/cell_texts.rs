//! Texts that the cells of several kinds show.

use std::collections::BTreeMap;

/// The cell of what is not set.
pub(crate) const NONE: &str = "<none>";

/// The cell of a time that is not known.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// `a=b,c=d`
pub(crate) fn pairs(pairs: Option<&BTreeMap<String, String>>) -> String {
    let pairs = pairs.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// The text, or `<none>` if it is empty.
pub(crate) fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}
