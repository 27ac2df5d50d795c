//! A number of Pods, or a percentage of them.

use aggregated_apiserver::FieldError;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::checks::{FieldErrors, check_not_negative, quote, to_json};

/// The message for a string that is not a percentage.
pub(crate) const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// Checks that a value is a non-negative number or a percentage.
pub(crate) fn check(at: &str, share: &IntOrString, faults: &mut FieldErrors) {
    match share {
        IntOrString::Int(number) => check_not_negative(at, Some(*number), faults),
        IntOrString::String(text) if percent(text).is_none() => {
            faults.push(FieldError::invalid(at, quote(text), PERCENT));
        }
        IntOrString::String(_) => {}
    }
}

/// Checks that a percentage is at most 100.
pub(crate) fn check_at_most_all(at: &str, share: &IntOrString, faults: &mut FieldErrors) {
    let IntOrString::String(text) = share else { return };
    if percent(text).is_some_and(|percent| percent > 100) {
        let why = "must not be greater than 100%";
        faults.push(FieldError::invalid(at, to_json(share), why));
    }
}

/// Whether a value is zero. A string that is not a percentage counts as zero.
pub(crate) fn is_nothing(share: &IntOrString) -> bool {
    match share {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(text) => percent(text).unwrap_or_default() == 0,
    }
}

/// The value in the format of tables: `3` or `25%`.
pub(crate) fn text(share: &IntOrString) -> String {
    match share {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// The number before the `%`; `u64::MAX` if it is larger.
fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::texts;

    #[test]
    fn int_or_percent_values_are_validated_and_formatted() {
        let number = IntOrString::Int;
        let share = |text: &str| IntOrString::String(text.to_owned());
        let percent_fault = |text: &str| format!("f: Invalid value: \"{text}\": {PERCENT}");
        for (share, expected, is_none, shown) in [
            (number(0), vec![], true, "0"),
            (number(200), vec![], false, "200"),
            (
                number(-1),
                vec!["f: Invalid value: -1: must be greater than or equal to 0".to_owned()],
                false,
                "-1",
            ),
            (share("0%"), vec![], true, "0%"),
            (share("100%"), vec![], false, "100%"),
            (
                share("101%"),
                vec!["f: Invalid value: \"101%\": must not be greater than 100%".to_owned()],
                false,
                "101%",
            ),
            (
                share("99999999999999999999%"),
                vec![
                    "f: Invalid value: \"99999999999999999999%\": must not be greater than 100%"
                        .to_owned(),
                ],
                false,
                "99999999999999999999%",
            ),
            (share("-1%"), vec![percent_fault("-1%")], true, "-1%"),
            (share("%"), vec![percent_fault("%")], true, "%"),
            (share("5"), vec![percent_fault("5")], true, "5"),
        ] {
            let mut faults = Vec::new();
            check("f", &share, &mut faults);
            check_at_most_all("f", &share, &mut faults);
            assert_eq!(texts(&faults), expected, "{shown}");
            assert_eq!((is_nothing(&share), text(&share).as_str()), (is_none, shown));
        }
    }
}
