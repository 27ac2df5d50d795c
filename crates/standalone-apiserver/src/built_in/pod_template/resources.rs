//! Amounts of resources: requests, limits, and the capacity of nodes.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::{NameRule, names};
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use serde_json::{Value, json};

use super::scope::{Owner, Scope};
use crate::built_in::amounts::whole_value;
use crate::built_in::checks::{FieldErrors, check_given, check_with, quote};
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
pub(crate) fn validate(
    resources: &ResourceRequirements,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    check_amounts(resources, resource_names::check_of_container, scope, at, faults);
    check_claims(resources, scope, &format!("{at}.claims"), faults);
}

/// Validates the overhead of a Pod.
pub(crate) fn check_overhead(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let Some(overhead) = &scope.spec.overhead else { return };
    let limits = Some(overhead.clone());
    let overhead = ResourceRequirements { limits, ..ResourceRequirements::default() };
    check_amounts(&overhead, resource_names::check_of_container, scope, at, faults);
}

/// Validates amounts; `check_name` validates their names.
pub(crate) fn check_amounts(
    resources: &ResourceRequirements,
    check_name: fn(&str, &str, &mut FieldErrors),
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let nothing = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&nothing);
    let requests = resources.requests.as_ref().unwrap_or(&nothing);
    let check_one = |list: &str, name: &str, amount: &Amount, faults: &mut FieldErrors| {
        let at = format!("{at}.{list}[{name}]");
        check_name(name, &at, faults);
        check_quantity(name, amount, &at, faults);
    };
    let check_pages = |list: &str, name: &str, amount: &Amount, faults: &mut FieldErrors| {
        if !scope.allowed.indivisible_huge_pages && is_indivisible(name, amount) {
            let value = canonical(amount);
            let why = format!("{value} is not positive integer multiple of {name}");
            let at = format!("{at}.{list}[{name}]");
            faults.push(FieldError::invalid(at, quote(&value), &why));
        }
    };
    for (name, limit) in limits {
        check_one("limits", name, limit, faults);
        check_pages("limits", name, limit, faults);
    }
    for (name, request) in requests {
        check_one("requests", name, request, faults);
        check_limit(name, request, limits.get(name), at, faults);
        check_pages("requests", name, request, faults);
    }
    let names = || limits.keys().chain(requests.keys());
    if names().any(|name| is_huge_page(name))
        && !names().any(|name| matches!(name.as_str(), "cpu" | "memory"))
    {
        faults.push(FieldError::forbidden(at, "HugePages require cpu or memory"));
    }
}

/// Checks a request against the limit of the same resource.
fn check_limit(
    name: &str,
    request: &Amount,
    limit: Option<&Amount>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let can_be_overcommitted = resource_names::is_native(name) && !is_huge_page(name);
    let Some(limit) = limit else {
        if !can_be_overcommitted {
            let why = "Limit must be set for non overcommitable resources";
            faults.push(FieldError::required(format!("{at}.limits"), why));
        }
        return;
    };
    let (Ok(asked), Ok(most)) = (Quantity::parse(&request.0), Quantity::parse(&limit.0)) else {
        return;
    };
    let relation = if !can_be_overcommitted && asked.nanos() != most.nanos() {
        "equal to"
    } else if asked.nanos() > most.nanos() {
        "less than or equal to"
    } else {
        return;
    };
    let why = format!("must be {relation} {name} limit of {}", canonical(limit));
    let value = quote(&canonical(request));
    faults.push(FieldError::invalid(format!("{at}.requests"), value, &why));
}

fn check_quantity(name: &str, amount: &Amount, at: &str, faults: &mut FieldErrors) {
    let Ok(quantity) = Quantity::parse(&amount.0) else { return };
    if quantity.nanos() < 0 {
        let why = "must be greater than or equal to 0";
        faults.push(FieldError::invalid(at, quote(&canonical(amount)), why));
    }
    // Fractions of a thousandth were rounded up before.
    if resource_names::is_whole(name) && quantity.nanos() % 1_000_000_000 != 0 {
        let value = quote(&canonical(amount));
        faults.push(FieldError::invalid(at, value, "must be an integer"));
    }
}

/// Checks that the claims of a container are claims of the Pod, without duplicates.
pub(crate) fn check_claims(
    resources: &ResourceRequirements,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (index, claim) in resources.claims.iter().flatten().enumerate() {
        let at = format!("{at}[{index}]");
        let name = claim.name.as_str();
        if !check_given(&at, name, faults) {
            continue;
        }
        if names.contains(name) {
            faults.push(FieldError::duplicate(&*at, quote(name)));
        } else {
            let request = claim.request.as_deref().unwrap_or_default();
            let mut key = name.to_owned();
            if !request.is_empty() {
                check_with(&format!("{at}.request"), request, names::check_dns_1123_label, faults);
                key = format!("{name}/{request}");
            }
            let part_of_it = format!("{name}/");
            if names.contains(&key) {
                faults.push(FieldError::duplicate(&*at, quote(&key)));
            } else if request.is_empty() {
                let parts = names.iter().filter(|key| key.starts_with(&part_of_it));
                faults.extend(parts.map(|_| FieldError::duplicate(&*at, quote(name))));
            }
            names.insert(key);
        }
        if !scope.claims.contains(name) {
            let all = scope.claims.iter().copied().collect::<Vec<_>>().join(", ");
            let which =
                if all.is_empty() { " which is empty".to_owned() } else { format!(": {all}") };
            let error = FieldError::not_found(at, quote(name));
            faults.push(error.with_words(|words| {
                format!("{words}: must be one of the names in pod.spec.resourceClaims{which}")
            }));
        }
    }
}

/// Validates the claims of a Pod.
pub(crate) fn check_pod_claims(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let annotations = scope.metadata.and_then(|metadata| metadata.annotations.as_ref());
    let is_mirror = scope.owner == Owner::Pod
        && annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"));
    let mut names = BTreeSet::new();
    for (index, claim) in scope.spec.resource_claims.iter().flatten().enumerate() {
        if is_mirror {
            let why = "static pods do not support resource claims";
            faults.push(FieldError::forbidden("", why));
            continue;
        }
        let at = format!("{at}[{index}]");
        let name_at = format!("{at}.name");
        if check_given(&name_at, &claim.name, faults) {
            if names.insert(claim.name.as_str()) {
                check_with(&name_at, &claim.name, names::check_dns_1123_label, faults);
            } else {
                faults.push(FieldError::duplicate(name_at, quote(&claim.name)));
            }
        }
        let (named, template) = (&claim.resource_claim_name, &claim.resource_claim_template_name);
        let why = match (named, template) {
            (Some(_), Some(_)) => Some(
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (None, None) => {
                Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
            }
            _ => None,
        };
        if let Some(why) = why {
            // The fields have the names of Go.
            let value = json!({
                "Name": claim.name, "ResourceClaimName": named,
                "ResourceClaimTemplateName": template,
            });
            faults.push(FieldError::invalid(&*at, in_order(&value, CLAIM_FIELDS), why));
        }
        for (field, name) in [("resourceClaimName", named), ("resourceClaimTemplateName", template)]
        {
            if let Some(name) = name {
                let check = |name: &str| NameRule::Dns1123Subdomain.check(name);
                check_with(&format!("{at}.{field}"), name, check, faults);
            }
        }
    }
}

const CLAIM_FIELDS: &[&str] = &["Name", "ResourceClaimName", "ResourceClaimTemplateName"];

/// The JSON of an object, with its fields in this order.
pub(crate) fn in_order(value: &Value, fields: &[&str]) -> String {
    let fields = fields.iter().map(|field| format!("{}:{}", quote(field), value[field]));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// An amount in the format of Go.
pub(crate) fn canonical(amount: &Amount) -> String {
    Quantity::parse(&amount.0).map_or_else(|_| amount.0.clone(), |amount| amount.to_string())
}

/// Whether a resource is huge pages.
pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether an amount of huge pages is not a multiple of the page size.
fn is_indivisible(name: &str, amount: &Amount) -> bool {
    let Some(size) = name.strip_prefix("hugepages-") else { return false };
    let size = Quantity::parse(size).map(|size| size.nanos()).unwrap_or(0);
    if size <= 0 || size % 1_000_000_000 != 0 {
        return true;
    }
    Quantity::parse(&amount.0).is_ok_and(|amount| whole_value(amount) % (size / 1_000_000_000) != 0)
}

/// Whether containers of a PodSpec have amounts of huge pages that are not a multiple of the page size.
pub(crate) fn has_indivisible_huge_pages(spec: &PodSpec) -> bool {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let resources = containers.filter_map(|container| container.resources.as_ref());
    let lists = resources.flat_map(|one| [one.limits.as_ref(), one.requests.as_ref()]);
    lists.flatten().flatten().any(|(name, amount)| is_indivisible(name, amount))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};

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
    fn invalid_container_resources_are_rejected() {
        let one = json!({"example.com/x": "1"});
        for (resources, expected) in [
            (json!({}), vec![]),
            (
                json!({"limits": {"cpu": "1", "example.com/x": "1", "hugepages-2Mi": "4Mi"}, "requests": one}),
                vec![],
            ),
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
            (
                json!({"requests": one}),
                vec![
                    "r.limits: Required value: Limit must be set for non overcommitable resources",
                ],
            ),
            (
                json!({"limits": {"hugepages-2Mi": "3Mi"}}),
                vec![
                    "r.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                    "r: Forbidden: HugePages require cpu or memory",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            let spec = PodSpec::default();
            let scope = Scope::new(&spec, Owner::Pod, None, None);
            validate(&object(resources.clone()), &scope, "r", &mut faults);
            assert_eq!(texts(&faults), expected, "{resources}");
        }
    }
}
