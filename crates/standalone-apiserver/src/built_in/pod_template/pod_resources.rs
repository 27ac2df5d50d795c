//! The resources at the Pod level, and the sums of the resources of containers.

use std::collections::BTreeMap;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::resources::{canonical, check_amounts, check_claims, is_huge_page};
use super::scope::Scope;
use crate::built_in::checks::{FieldErrors, quote};
use crate::built_in::resource_names;

type Amounts = BTreeMap<String, Quantity>;

/// Validates the resources of a Pod.
pub(crate) fn validate(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let Some(resources) = &scope.spec.resources else { return };
    let at = format!("{at}.resources");
    if scope.os() == Some("windows") {
        let why = "may not be set for a windows pod";
        return faults.push(FieldError::forbidden(at, why));
    }
    if resources.claims.is_some() {
        let why = "claims may not be set for Resources at pod-level";
        faults.push(FieldError::forbidden(format!("{at}.claims"), why));
    }
    check_amounts(resources, check_name, scope, &at, faults);
    check_claims(resources, scope, &format!("{at}.claims"), faults);
    check_sums(scope.spec, resources, &at, faults);
    check_limits(scope.spec, resources, &at, faults);
}

/// Whether a resource can be requested at the Pod level.
pub(crate) fn is_of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// The largest total of requests of the containers of a Pod at any time.
pub(crate) fn requests_of_containers(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    sum(spec, |resources| resources.requests.as_ref())
}

/// The largest total of limits of the containers of a Pod at any time.
pub(crate) fn limits_of_containers(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    sum(spec, |resources| resources.limits.as_ref())
}

type List = fn(&ResourceRequirements) -> Option<&BTreeMap<String, Amount>>;

fn sum(spec: &PodSpec, list: List) -> Amounts {
    let of = |container: &Container| -> Amounts {
        let amounts = container.resources.as_ref().and_then(list).into_iter().flatten();
        let parsed =
            amounts.map(|(name, amount)| Some((name.clone(), Quantity::parse(&amount.0).ok()?)));
        parsed.flatten().collect()
    };
    let mut all = Amounts::new();
    spec.containers.iter().for_each(|container| add(&mut all, &of(container)));
    // An init container runs concurrently with the sidecars before it.
    let (mut going_on, mut most) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        let mut beside = going_on.clone();
        add(&mut beside, &own);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut all, &own);
            going_on.clone_from(&beside);
        }
        raise(&mut most, &beside);
    }
    raise(&mut all, &most);
    all
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or(*amount, |before| before.plus(*amount));
        to.insert(name.clone(), sum);
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|before| before.nanos() < amount.nanos()) {
            to.insert(name.clone(), *amount);
        }
    }
}

fn check_name(name: &str, at: &str, faults: &mut FieldErrors) {
    let before = faults.len();
    resource_names::check(name, at, faults);
    if before == faults.len() && !is_of_pods(name) {
        let all = ["cpu", "hugepages-", "memory"];
        faults.push(FieldError::not_supported(at, quote(name), &all));
    }
}

/// Checks that the total of the containers does not exceed the requests of the Pod.
fn check_sums(spec: &PodSpec, own: &ResourceRequirements, at: &str, faults: &mut FieldErrors) {
    let lists = [
        ("requests", &own.requests, requests_of_containers(spec)),
        ("limits", &own.limits, limits_of_containers(spec)),
    ];
    for (list, amounts, sums) in lists {
        for (name, sum) in sums {
            let amount = amounts.as_ref().and_then(|amounts| amounts.get(&name));
            let Some(amount) = amount.filter(|_| list == "requests" || is_huge_page(&name)) else {
                continue;
            };
            let Ok(most) = Quantity::parse(&amount.0) else { continue };
            if sum.nanos() > most.nanos() {
                let why =
                    format!("must be greater than or equal to aggregate container {list} of {sum}");
                let at = format!("{at}.{list}[{name}]");
                faults.push(FieldError::invalid(at, quote(&canonical(amount)), &why));
            }
        }
    }
}

/// Checks that no container has a higher limit than the Pod.
fn check_limits(spec: &PodSpec, own: &ResourceRequirements, at: &str, faults: &mut FieldErrors) {
    for (index, container) in spec.containers.iter().enumerate() {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        for (name, limit) in limits.into_iter().flatten() {
            let most = own.limits.as_ref().and_then(|limits| limits.get(name));
            let parsed = |amount: &Amount| Quantity::parse(&amount.0).ok();
            let (Some(most), Some(own)) = (most, parsed(limit)) else { continue };
            if parsed(most).is_some_and(|most| own.nanos() > most.nanos()) {
                let at = format!("{at}.containers[{index}][{name}].limits");
                let why =
                    format!("must be less than or equal to pod limits of {}", canonical(most));
                faults.push(FieldError::invalid(at, quote(&canonical(limit)), &why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::json;

    #[test]
    fn init_container_requests_include_running_sidecars() {
        let container = |cpu: &str, policy: Option<&str>| json!({"name": "c", "restartPolicy": policy, "resources": {"requests": {"cpu": cpu}}});
        let spec: PodSpec = object(json!({
            "containers": [container("1", None), container("1", None)],
            "initContainers": [container("1", Some("Always")), container("3", None)],
        }));
        let requests = requests_of_containers(&spec);
        assert_eq!(requests["cpu"].to_string(), "4");
        assert!(limits_of_containers(&spec).is_empty());
    }
}
