//! One event in two forms: that of the core group, in which it is kept, and that
//! of `events.k8s.io`.

use serde_json::{Map, Value};

/// What a member is called in the core group, and in the other one.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// An event of `events.k8s.io` as one of the core group.
pub(crate) fn to_core(event: Map<String, Value>) -> Map<String, Value> {
    rename(event, |name| NAMES.iter().find(|(_, new)| *new == name).map(|(core, _)| *core))
}

/// The other way round.
pub(crate) fn from_core(event: Map<String, Value>) -> Map<String, Value> {
    rename(event, |name| NAMES.iter().find(|(core, _)| *core == name).map(|(_, new)| *new))
}

fn rename(
    event: Map<String, Value>,
    other: impl Fn(&str) -> Option<&'static str>,
) -> Map<String, Value> {
    let members = event.into_iter().map(|(name, value)| match other(&name) {
        Some(other) => (other.to_owned(), value),
        None => (name, value),
    });
    members.collect()
}
