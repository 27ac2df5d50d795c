//! Amounts of resources: requests, limits, and what nodes have.

use std::collections::BTreeMap;

use aggregated_apiserver::{FieldError, Quantity};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::checks::{FieldErrors, quote};
use crate::built_in::resource_names;

/// Rounds amounts up to thousandths, the smallest part of a resource.
pub(crate) fn round_up(amounts: &mut Option<BTreeMap<String, Amount>>) {
    for amount in amounts.iter_mut().flat_map(BTreeMap::values_mut) {
        if let Ok(given) = Quantity::parse(&amount.0) {
            amount.0 = given.in_thousandths().to_string();
        }
    }
}

/// Validates the requests and limits of a container.
pub(crate) fn validate(resources: &ResourceRequirements, at: &str, faults: &mut FieldErrors) {
    let nothing = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&nothing);
    let requests = resources.requests.as_ref().unwrap_or(&nothing);
    for (list, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts {
            let at = format!("{at}.{list}");
            check_resource(name, amount, &at, faults);
        }
    }
    for (name, request) in requests {
        let Some(limit) = limits.get(name) else { continue };
        let (Ok(asked), Ok(most)) = (Quantity::parse(&request.0), Quantity::parse(&limit.0)) else {
            continue;
        };
        if asked.nanos() > most.nanos() {
            let why = format!("must be less than or equal to {name} limit of {}", limit.0);
            faults.push(FieldError::invalid(format!("{at}.requests"), quote(&request.0), &why));
        }
    }
}

fn check_resource(name: &str, amount: &Amount, at: &str, faults: &mut FieldErrors) {
    let at = format!("{at}[{name}]");
    resource_names::check_of_container(name, &at, faults);
    if Quantity::parse(&amount.0).is_ok_and(|amount| amount.nanos() < 0) {
        let why = "must be greater than or equal to 0";
        faults.push(FieldError::invalid(at, quote(&amount.0), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn amounts_are_rounded_up_to_thousandths() {
        let mut amounts = object(json!({"cpu": "0.0001", "memory": "1Gi", "x": "no amount"}));
        round_up(&mut amounts);
        assert_eq!(
            serde_json::to_value(amounts).unwrap(),
            json!({"cpu": "1m", "memory": "1Gi", "x": "no amount"})
        );
    }

    #[test]
    fn faults() {
        for (resources, expected) in [
            (json!({}), vec![]),
            (json!({"limits": {"cpu": "1", "example.com/x": "1", "hugepages-2Mi": "4Mi"}}), vec![]),
            (
                json!({"requests": {"gpu": "1"}}),
                vec![
                    "r.requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                    "r.requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
                ],
            ),
            (
                json!({"limits": {"cpu": "-1"}}),
                vec!["r.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
            ),
            (
                json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1001m"}}),
                vec![
                    "r.requests: Invalid value: \"1001m\": must be less than or equal to cpu limit of 1",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            validate(&object(resources.clone()), "r", &mut faults);
            assert_eq!(texts(&faults), expected, "{resources}");
        }
    }
}
