//! The conditions that several kinds have in their status (`metav1.Condition`).

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::checks::{FieldErrors, check_one_of, check_with, quote};

/// Go's zero time, which represents a missing time: the start of year 1.
pub(crate) const ZERO_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);

const LONGEST_REASON: usize = 1 << 10;
const LONGEST_MESSAGE: usize = 32 << 10;

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Validates conditions.
pub(crate) fn check(conditions: &[Condition], at: &str, faults: &mut FieldErrors) {
    let mut types = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if !types.insert(&condition.type_) {
            faults.push(FieldError::duplicate(format!("{at}.type"), quote(&condition.type_)));
        }
        check_one(condition, &at, faults);
    }
}

fn check_one(condition: &Condition, at: &str, faults: &mut FieldErrors) {
    check_with(&format!("{at}.type"), &condition.type_, names::check_label_key, faults);
    let states = ["False", "True", "Unknown"];
    let at_status = format!("{at}.status");
    match states.contains(&condition.status.as_str()) {
        true => {}
        false if condition.status.is_empty() => {
            faults.push(FieldError::not_supported(at_status, quote(""), &states));
        }
        false => check_one_of(at_status, Some(&condition.status), &states, faults),
    }
    if let Some(generation) = condition.observed_generation.filter(|number| *number < 0) {
        let why = "must be greater than or equal to zero";
        faults.push(FieldError::invalid(format!("{at}.observedGeneration"), generation, why));
    }
    if condition.last_transition_time.0 == ZERO_TIME {
        faults.push(FieldError::required(format!("{at}.lastTransitionTime"), ""));
    }
    let at_reason = format!("{at}.reason");
    match condition.reason.as_str() {
        "" => faults.push(FieldError::required(&at_reason, "")),
        reason if !is_reason(reason) => {
            faults.push(FieldError::invalid(&at_reason, quote(reason), REASON));
        }
        _ => {}
    }
    for (at, text, longest) in [
        (at_reason, &condition.reason, LONGEST_REASON),
        (format!("{at}.message"), &condition.message, LONGEST_MESSAGE),
    ] {
        if text.len() > longest {
            faults.push(FieldError::too_long(at, longest as u64));
        }
    }
}

/// Whether a string is a valid reason of a condition, such as `MinimumReplicasAvailable`.
fn is_reason(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons() {
        for (text, is_one) in [
            ("R", true),
            ("MinimumReplicasAvailable", true),
            ("a:b,c_", true),
            ("1a", false),
            ("a:", false),
            ("a b", false),
            ("_", false),
        ] {
            assert_eq!(is_reason(text), is_one, "{text}");
        }
    }
}
