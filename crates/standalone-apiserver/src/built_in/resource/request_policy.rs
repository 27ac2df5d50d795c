//! The amounts of a capacity of a device that may be requested.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::checks::check_set;
use crate::built_in::amounts::whole_value;
use crate::built_in::checks::{FieldErrors, quote};

/// The largest number of valid amounts.
const OPTIONS: usize = 10;

/// An amount, which is zero if it cannot be read.
fn quantity(amount: &Amount) -> Quantity {
    Quantity::parse(&amount.0).unwrap_or_else(|_| Quantity::from_whole(0))
}

fn shown(amount: Quantity) -> String {
    quote(&amount.to_string())
}

/// Validates a policy for a capacity of this size.
pub(super) fn check(
    policy: &CapacityRequestPolicy,
    capacity: &Amount,
    at: &str,
    faults: &mut FieldErrors,
) {
    let capacity = quantity(capacity);
    let default = policy.default.as_ref().map(quantity);
    let options = policy.valid_values.as_ref().filter(|options| !options.is_empty());
    let missing = |field: &str| {
        let why = format!("required when {field} is defined");
        FieldError::required(format!("{at}.default"), &why)
    };
    match (options, &policy.valid_range, default) {
        (Some(_), Some(_), _) => {
            let why = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            faults.push(FieldError::forbidden(at, why));
        }
        (Some(_), None, None) => faults.push(missing("validValues")),
        (Some(options), None, Some(default)) => {
            check_options(options, default, capacity, &format!("{at}.validValues"), faults);
        }
        (None, Some(_), None) => faults.push(missing("validRange")),
        (None, Some(range), Some(default)) => {
            check_range(range, default, capacity, &format!("{at}.validRange"), faults);
        }
        (None, None, _) => {}
    }
}

fn check_options(
    options: &Vec<Amount>,
    default: Quantity,
    capacity: Quantity,
    at: &str,
    faults: &mut FieldErrors,
) {
    for (index, pair) in options.windows(2).enumerate() {
        if let [one, next] = pair
            && quantity(one).nanos() > quantity(next).nanos()
        {
            let why = "values must be sorted in ascending order";
            let at = format!("{at}[{}]", index + 1);
            faults.push(FieldError::invalid(at, shown(quantity(next)), why));
        }
    }
    let key = |option: &Amount| quote(&whole_value(quantity(option)).to_string());
    check_set(Some(options), OPTIONS, at, faults, key, |option, at, faults| {
        let option = quantity(option);
        if option.nanos() > capacity.nanos() {
            let why = format!("option is larger than capacity value: {capacity}");
            faults.push(FieldError::invalid(at, shown(option), &why));
        }
    });
    let has_default = options.iter().any(|option| quantity(option).nanos() == default.nanos());
    // Options beyond the limit are not read.
    if options.len() > OPTIONS || !has_default {
        let why = "default value is not valid according to the requestPolicy";
        faults.push(FieldError::invalid(at, shown(default), why));
    }
}

fn check_range(
    range: &CapacityRequestPolicyRange,
    default: Quantity,
    capacity: Quantity,
    at: &str,
    faults: &mut FieldErrors,
) {
    let least = quantity(&range.min);
    let [at_min, at_max, at_step] = ["min", "max", "step"].map(|field| format!("{at}.{field}"));
    let mut check = |is_wrong: bool, at: &str, value: Quantity, why: String| {
        if is_wrong {
            faults.push(FieldError::invalid(at, shown(value), &why));
        }
    };
    let is_more = |one: Quantity, other: Quantity| one.nanos() > other.nanos();
    let why = format!("min is larger than capacity value: {capacity}");
    check(is_more(least, capacity), &at_min, least, why);
    check(is_more(least, default), &at_min, default, format!("default is less than min: {least}"));
    let most = range.max.as_ref().map(quantity);
    if let Some(most) = most {
        check(is_more(least, most), &at_max, least, format!("min is larger than max: {most}"));
        let why = format!("max is larger than capacity value: {capacity}");
        check(is_more(most, capacity), &at_max, most, why);
        check(
            is_more(default, most),
            &at_max,
            default,
            format!("default is more than max: {most}"),
        );
    }
    let Some(step) = range.step.as_ref().map(quantity) else { return };
    let first = least.plus(step);
    let why = format!("one step {first} is larger than capacity value: {capacity}");
    check(is_more(first, capacity), &at_step, step, why);
    for value in [Some(default), most].into_iter().flatten() {
        let added = whole_value(value) - whole_value(least);
        // kube-apiserver fails if the step is zero.
        let is_multiple = added.checked_rem(whole_value(step)).is_none_or(|rest| rest == 0);
        let why = format!("value is not a multiple of a given step ({step}) from ({least})");
        check(!is_multiple, &at_step, value, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn invalid_policies_are_rejected() {
        for (policy, expected) in [
            (json!({"default": "1", "validValues": ["1", "2"]}), vec![]),
            (json!({"default": "2", "validRange": {"min": "2", "max": "8", "step": "2"}}), vec![]),
            (
                json!({"default": "3", "validValues": ["2", "1", "1", "20"]}),
                vec![
                    "p.validValues[1]: Invalid value: \"1\": values must be sorted in ascending order",
                    "p.validValues[3]: Invalid value: \"20\": option is larger than capacity value: 10",
                    "p.validValues[2]: Duplicate value: \"1\"",
                    "p.validValues: Invalid value: \"3\": default value is not valid according to the requestPolicy",
                ],
            ),
            (
                json!({"default": "1", "validRange": {"min": "2", "max": "12", "step": "3"}}),
                vec![
                    "p.validRange.min: Invalid value: \"1\": default is less than min: 2",
                    "p.validRange.max: Invalid value: \"12\": max is larger than capacity value: 10",
                    "p.validRange.step: Invalid value: \"1\": value is not a multiple of a given step (3) from (2)",
                    "p.validRange.step: Invalid value: \"12\": value is not a multiple of a given step (3) from (2)",
                ],
            ),
            (
                json!({"validRange": {"min": "2"}}),
                vec!["p.default: Required value: required when validRange is defined"],
            ),
        ] {
            let mut faults = Vec::new();
            let parsed = object::<CapacityRequestPolicy>(policy.clone());
            check(&parsed, &Amount("10".to_owned()), "p", &mut faults);
            assert_eq!(texts(&faults), expected, "{policy}");
        }
    }
}
