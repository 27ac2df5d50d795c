//! The validation of LimitRanges.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::amounts::{milli_value, whole_value};
use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::resource_names;

const TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];

/// The largest amount that is compared in thousandths.
pub(crate) const MOST_IN_MILLI: i128 = i64::MAX as i128 / 1_000;

pub(super) fn validate(range: &LimitRange) -> FieldErrors {
    let mut faults = Vec::new();
    let mut types = BTreeSet::new();
    let limits = range.spec.as_ref().map(|spec| spec.limits.as_slice()).unwrap_or_default();
    for (index, limit) in limits.iter().enumerate() {
        let at = format!("spec.limits[{index}]");
        check_type(&limit.type_, &format!("{at}.type"), &mut faults);
        if !types.insert(&limit.type_) {
            faults.push(FieldError::duplicate(format!("{at}.type"), quote(&limit.type_)));
        }
        check_limit(limit, &at, &mut faults);
    }
    faults
}

fn check_type(name: &str, at: &str, faults: &mut FieldErrors) {
    let before = faults.len();
    check_with(at, name, names::check_label_key, faults);
    if before == faults.len() && !name.contains('/') && !TYPES.contains(&name) {
        let why = "must be a standard limit type or fully qualified";
        faults.push(FieldError::invalid(at, quote(name), why));
    }
}

fn check_limit(limit: &LimitRangeItem, at: &str, faults: &mut FieldErrors) {
    let mut all = BTreeSet::new();
    let is_of_containers = matches!(limit.type_.as_str(), "Pod" | "Container");
    let mut check_names = |field: &str, amounts: &Amounts, faults: &mut FieldErrors| {
        for name in amounts.iter().flat_map(BTreeMap::keys) {
            let at = format!("{at}.{field}[{name}]");
            match is_of_containers {
                true => resource_names::check_of_container(name, &at, faults),
                false => resource_names::check(name, &at, faults),
            }
            all.insert(name.clone());
        }
    };
    check_names("max", &limit.max, faults);
    check_names("min", &limit.min, faults);
    let is_of_pods = limit.type_ == "Pod";
    for (field, amounts) in
        [("default", &limit.default), ("defaultRequest", &limit.default_request)]
    {
        if !is_of_pods {
            check_names(field, amounts, faults);
        } else if amounts.as_ref().is_some_and(|amounts| !amounts.is_empty()) {
            let why = "may not be specified when `type` is 'Pod'";
            faults.push(FieldError::forbidden(format!("{at}.{field}"), why));
        }
    }
    let has_storage =
        |amounts: &Amounts| amounts.as_ref().is_some_and(|all| all.contains_key("storage"));
    if limit.type_ == "PersistentVolumeClaim"
        && !has_storage(&limit.min)
        && !has_storage(&limit.max)
    {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        faults.push(FieldError::required(format!("{at}.limits"), why));
    }
    check_names("maxLimitRequestRatio", &limit.max_limit_request_ratio, faults);
    for name in &all {
        let defaults = (!is_of_pods).then_some((&limit.default, &limit.default_request));
        check_amounts(limit, defaults, name, at, faults);
    }
}

type Amounts = Option<BTreeMap<String, Amount>>;

/// Checks the amounts of one resource.
fn check_amounts(
    limit: &LimitRangeItem,
    defaults: Option<(&Amounts, &Amounts)>,
    name: &str,
    at: &str,
    faults: &mut FieldErrors,
) {
    let of = |amounts: &Amounts| Quantity::parse(&amounts.as_ref()?.get(name)?.0).ok();
    let (min, max) = (of(&limit.min), of(&limit.max));
    let (default, request) =
        defaults.map_or((None, None), |(default, request)| (of(default), of(request)));
    let ratio = of(&limit.max_limit_request_ratio);
    let mut refuse = |field: &str, value: Quantity, why: String| {
        let at = format!("{at}.{field}[{name}]");
        faults.push(FieldError::invalid(at, quote(&value.to_string()), &why));
    };
    let is_more = |one: Quantity, other: Quantity| one.nanos() > other.nanos();
    if let (Some(min), Some(max)) = (min, max)
        && is_more(min, max)
    {
        refuse("min", min, format!("min value {min} is greater than max value {max}"));
    }
    if let (Some(request), Some(min)) = (request, min)
        && is_more(min, request)
    {
        let why = format!("min value {min} is greater than default request value {request}");
        refuse("defaultRequest", request, why);
    }
    if let (Some(request), Some(max)) = (request, max)
        && is_more(request, max)
    {
        let why = format!("default request value {request} is greater than max value {max}");
        refuse("defaultRequest", request, why);
    }
    if let (Some(request), Some(default)) = (request, default)
        && is_more(request, default)
    {
        let why = format!(
            "default request value {request} is greater than default limit value {default}"
        );
        refuse("defaultRequest", request, why);
    }
    // In these two errors, kube-apiserver reports the value of the other field.
    if let (Some(default), Some(min)) = (default, min)
        && is_more(min, default)
    {
        let why = format!("min value {min} is greater than default value {default}");
        refuse("default", min, why);
    }
    if let (Some(default), Some(max)) = (default, max)
        && is_more(default, max)
    {
        let why = format!("default value {default} is greater than max value {max}");
        refuse("default", max, why);
    }
    if let Some(ratio) = ratio {
        if ratio.nanos() < 1_000_000_000 {
            refuse("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min, max)
            && let Some(most) = exceeded(ratio, min, max)
        {
            let why = format!("ratio {ratio} is greater than max/min = {most:.6}");
            refuse("maxLimitRequestRatio", ratio, why);
        }
    }
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    if let (Some(default), Some(request)) = (default, request)
        && (!is_native || name.starts_with("hugepages-"))
        && default.nanos() != request.nanos()
    {
        let why = format!(
            "default value {default} must equal to defaultRequest value {request} in {name}"
        );
        refuse("defaultRequest", request, why);
    }
}

/// The largest ratio that `min` and `max` allow, if `ratio` is larger.
#[allow(clippy::cast_precision_loss)] // Go computes with the same numbers
fn exceeded(ratio: Quantity, min: Quantity, max: Quantity) -> Option<f64> {
    let is_small = |amount: Quantity| whole_value(amount) < MOST_IN_MILLI;
    let (ratio, min, max) = match is_small(ratio) && is_small(min) && is_small(max) {
        true => (milli_value(ratio) as f64 / 1000.0, milli_value(min), milli_value(max)),
        false => (whole_value(ratio) as f64, whole_value(min), whole_value(max)),
    };
    let most = max as f64 / min as f64;
    (ratio > most).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::{Value, json};

    #[test]
    fn limit_range_validation_reports_invalid_fields() {
        for (limits, expected) in [
            (json!([{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "100m"}}]), vec![]),
            (
                json!([{"type": "X"}, {"type": "x.io/Y"}, {"type": "x.io/Y"}]),
                vec![
                    "spec.limits[0].type: Invalid value: \"X\": must be a standard limit type or fully qualified",
                    "spec.limits[2].type: Duplicate value: \"x.io/Y\"",
                ],
            ),
            (
                json!([{"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}]),
                vec![
                    "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                    "spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
                ],
            ),
            (
                json!([{"type": "PersistentVolumeClaim"}]),
                vec![
                    "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
                ],
            ),
            (
                json!([{"type": "Container", "min": {"cpu": "3"}, "max": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "4"}}]),
                vec![
                    "spec.limits[0].min[cpu]: Invalid value: \"3\": min value 3 is greater than max value 2",
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"4\": default request value 4 is greater than max value 2",
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"4\": default request value 4 is greater than default limit value 1",
                    "spec.limits[0].default[cpu]: Invalid value: \"3\": min value 3 is greater than default value 1",
                ],
            ),
            (
                json!([{"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "1500m"}, "maxLimitRequestRatio": {"cpu": "2"}}]),
                vec![
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"2\": ratio 2 is greater than max/min = 1.500000",
                ],
            ),
            (
                json!([{"type": "Container", "default": {"x.io/a": "2"}, "defaultRequest": {"x.io/a": "1"}, "maxLimitRequestRatio": {"cpu": "500m"}}]),
                vec![
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
                    "spec.limits[0].defaultRequest[x.io/a]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in x.io/a",
                ],
            ),
        ] {
            let range: Value = json!({"spec": {"limits": limits}});
            assert_eq!(texts(&validate(&object(range))), expected, "{limits}");
        }
    }
}
