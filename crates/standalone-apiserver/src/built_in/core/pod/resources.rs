//! The requests of a Pod, and its QoS class.

use std::collections::BTreeMap;

use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::pod_template::pod_resources::{
    is_of_pods, limits_of_containers, requests_of_containers,
};

/// Sets the requests of a container to its limits, where they are missing.
pub(crate) fn default_requests(container: &mut Container) {
    let Some(resources) = &mut container.resources else { return };
    let Some(limits) = resources.limits.clone() else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Sets missing limits and requests at the Pod level, if a Pod has some. The limits of huge pages are those of its
/// containers. The requests are those of its containers, or else the limits of the Pod.
pub(crate) fn default_pod_resources(spec: &mut PodSpec) {
    let containers_limits = limits_of_containers(spec);
    let containers_requests = requests_of_containers(spec);
    let Some(own) = &mut spec.resources else { return };
    let is_empty = |amounts: &Option<BTreeMap<String, Amount>>| {
        amounts.as_ref().is_none_or(BTreeMap::is_empty)
    };
    if is_empty(&own.limits) && is_empty(&own.requests) {
        return;
    }
    for (name, limit) in containers_limits {
        let is_requested =
            own.requests.as_ref().is_some_and(|requests| requests.contains_key(&name));
        if name.starts_with("hugepages-") && !is_requested {
            let limits = own.limits.get_or_insert_default();
            limits.entry(name).or_insert_with(|| Amount(limit.to_string()));
        }
    }
    let Some(limits) = own.limits.clone().filter(|limits| !limits.is_empty()) else { return };
    let requests = own.requests.get_or_insert_default();
    for (name, request) in containers_requests {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.entry(name).or_insert_with(|| Amount(request.to_string()));
        }
    }
    for (name, limit) in limits {
        if is_of_pods(&name) {
            requests.entry(name).or_insert(limit);
        }
    }
    if requests.is_empty() {
        own.requests = None;
    }
}

/// The QoS class of a Pod, by its resources at the Pod level, or else by those of its containers.
pub(crate) fn qos_class(spec: &PodSpec) -> &'static str {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_containers = containers.map(|container| container.resources.clone().unwrap_or_default());
    let all: Vec<ResourceRequirements> = match &spec.resources {
        Some(own) => vec![own.clone()],
        None => of_containers.collect(),
    };
    let mut is_guaranteed = true;
    let mut is_best_effort = true;
    for resources in &all {
        let amount = |of: &Option<BTreeMap<String, Amount>>, name: &str| {
            let given = of.as_ref().and_then(|amounts| amounts.get(name));
            let nanos = given.and_then(|given| Quantity::parse(&given.0).ok())?.nanos();
            Some(nanos).filter(|nanos| *nanos > 0)
        };
        for name in ["cpu", "memory"] {
            let limit = amount(&resources.limits, name);
            let request = amount(&resources.requests, name);
            is_best_effort &= limit.is_none() && request.is_none();
            is_guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (is_best_effort, is_guaranteed) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    fn spec(resources: &[Value]) -> PodSpec {
        let containers = resources.iter().map(|resources| json!({"resources": resources}));
        object(json!({"containers": containers.collect::<Vec<_>>()}))
    }

    #[test]
    fn quality_of_service() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let guaranteed = json!({"limits": both, "requests": both});
        for (resources, expected) in [
            (vec![], "BestEffort"),
            (vec![json!({"requests": {"cpu": "0"}})], "BestEffort"),
            (vec![json!({"limits": {"example.com/x": "1"}})], "BestEffort"),
            (vec![json!({"requests": {"cpu": "1"}})], "Burstable"),
            (vec![guaranteed.clone()], "Guaranteed"),
            (vec![guaranteed, json!({})], "Burstable"),
            (
                vec![json!({"limits": {"cpu": "1", "memory": "1Gi"},
                            "requests": {"cpu": "1000m", "memory": "1024Mi"}})],
                "Guaranteed",
            ),
        ] {
            assert_eq!(qos_class(&spec(&resources)), expected, "{resources:?}");
        }
        let mut own = spec(&[json!({})]);
        own.resources = object(json!({"requests": {"cpu": "1"}}));
        assert_eq!(qos_class(&own), "Burstable");
    }

    #[test]
    fn a_limit_is_requested() {
        let mut spec =
            spec(&[json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}})]);
        default_requests(&mut spec.containers[0]);
        assert_eq!(
            serde_json::to_value(&spec.containers[0].resources).unwrap()["requests"],
            json!({"cpu": "1", "memory": "1Gi"})
        );
        spec.resources = object(json!({"limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}}));
        default_pod_resources(&mut spec);
        assert_eq!(
            serde_json::to_value(&spec.resources).unwrap()["requests"],
            json!({"cpu": "1", "hugepages-2Mi": "2Mi", "memory": "1Gi"})
        );
    }
}
