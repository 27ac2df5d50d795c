//! The quota usage of a Pod: one of `pods`, until it has terminated.

use serde::Deserialize;

/// The fields that determine whether a Pod is counted. Other fields are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

pub(super) fn of(json: &[u8]) -> Vec<(&'static str, u64)> {
    let pod: Counted = serde_json::from_slice(json).unwrap_or_default();
    let has_ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    vec![("pods", u64::from(!has_ended))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminated_pods_do_not_count_towards_quota() {
        for (phase, expected) in [("Pending", 1), ("Running", 1), ("Succeeded", 0), ("Failed", 0)] {
            let json = format!(r#"{{"spec":{{"x":[1]}},"status":{{"phase":"{phase}"}}}}"#);
            assert_eq!(of(json.as_bytes()), [("pods", expected)], "{phase}");
        }
        assert_eq!(of(b"{}"), [("pods", 1)]);
    }
}
