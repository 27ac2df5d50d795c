//! Converts events between the core group, which is the stored form, and `events.k8s.io`.

use serde_json::{Map, Value};

/// The fields with different names: first the name in the core group, then the name in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Converts an event of `events.k8s.io` to one of the core group.
pub(crate) fn to_core(event: Map<String, Value>) -> Map<String, Value> {
    rename(event, |name| NAMES.iter().find(|(_, new)| *new == name).map(|(core, _)| *core))
}

/// Converts an event of the core group to one of `events.k8s.io`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_survives_both_ways() {
        let new = json!({
            "metadata": {"name": "a"}, "regarding": {"kind": "Pod"}, "note": "n", "reason": "r",
            "reportingController": "c", "deprecatedSource": {"component": "s"},
            "deprecatedFirstTimestamp": "f", "deprecatedLastTimestamp": "l", "deprecatedCount": 3,
        });
        let core = to_core(new.as_object().unwrap().clone());
        assert_eq!(
            Value::Object(core.clone()),
            json!({
                "metadata": {"name": "a"}, "involvedObject": {"kind": "Pod"}, "message": "n",
                "reason": "r", "reportingComponent": "c", "source": {"component": "s"},
                "firstTimestamp": "f", "lastTimestamp": "l", "count": 3,
            })
        );
        assert_eq!(Value::Object(from_core(core)), new);
    }
}
