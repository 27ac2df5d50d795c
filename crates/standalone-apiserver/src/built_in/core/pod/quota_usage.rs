//! The quota usage of a Pod: one of `pods`, and its requests and limits, until it has terminated.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::strategy::{ObjectScopes, ObjectUsage, QuotaEvaluator};
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{
    Affinity, Container, PodAffinityTerm, PodSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::resources::qos_class;
use crate::built_in::pod_template::pod_resources::{
    is_of_pods, limits_of_containers, requests_of_containers,
};
use crate::built_in::resource_names::{is_extended, is_native};

/// The resources whose amounts in a container must be set if a quota limits them.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
/// The resources of containers that quotas limit under their own name, and under names with a prefix.
const MEASURED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// The prefix of resources that belong to a DeviceClass.
const OF_DEVICES: &str = "deviceclass.resource.kubernetes.io/";

/// The quota evaluator of Pods.
#[derive(Debug)]
pub(super) struct PodEvaluator;

impl QuotaEvaluator for PodEvaluator {
    fn usage(&self, json: &[u8]) -> Result<ObjectUsage, serde_json::Error> {
        let pod: Counted = serde_json::from_slice(json)?;
        let scopes = pod.scopes();
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return Ok(ObjectUsage { scopes, ..ObjectUsage::default() });
        }
        Ok(ObjectUsage { amounts: pod.amounts(), scopes })
    }

    fn covers(&self, resource: &str) -> bool {
        let bare = resource.strip_prefix("requests.");
        let measured = bare.or_else(|| resource.strip_prefix("limits.")).unwrap_or(resource);
        let is_huge_page = bare.unwrap_or(resource).starts_with("hugepages-");
        let is_extended = bare.is_some_and(|bare| bare.starts_with(OF_DEVICES))
            || (bare.is_some() && !is_native(resource));
        resource == "pods" || MEASURED.contains(&measured) || is_huge_page || is_extended
    }

    fn charges_update(&self, old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
        // The resources of a Pod do not change in an update.
        let has_deadline = |pod: &Map<String, Value>| {
            let deadline = pod.get("spec").and_then(|spec| spec["activeDeadlineSeconds"].as_i64());
            deadline.is_some_and(|seconds| seconds >= 0)
        };
        has_deadline(old) != has_deadline(new)
    }

    fn missing(&self, object: &Map<String, Value>, limited: &BTreeSet<&str>) -> Option<String> {
        let required = || REQUIRED.into_iter().filter(|name| limited.contains(name));
        required().next()?;
        let pod = Counted::deserialize(object).unwrap_or_default();
        if pod.spec.has_own_resources() {
            return None;
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
            for name in required().filter(|name| !container.specifies(name)) {
                missing.entry(name).or_default().insert(&container.name);
            }
        }
        let missing = missing.into_iter().map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        });
        let missing: Vec<String> = missing.collect();
        (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
    }
}

/// The fields that determine the usage of a Pod. Other fields are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    containers: Vec<CountedContainer>,
    init_containers: Vec<CountedContainer>,
    resources: Option<ResourceRequirements>,
    overhead: Amounts,
    active_deadline_seconds: Option<i64>,
    priority_class_name: String,
    affinity: Option<Affinity>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CountedContainer {
    name: String,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    resources: Option<ResourceRequirements>,
    allocated_resources: Amounts,
}

type Amounts = BTreeMap<String, Amount>;

impl Counted {
    /// The requests and limits of the Pod, by the names that quotas use.
    fn amounts(&self) -> BTreeMap<String, Quantity> {
        let spec = self.pod_spec(|container, is_init| match is_init && !container.is_sidecar() {
            // Only containers that keep running can be resized.
            true => container.resources.clone(),
            false => self.current_resources(container),
        });
        let own = self.spec.resources.as_ref();
        let with_own = |mut sums: BTreeMap<String, Quantity>, own: Option<&Amounts>| {
            let own = own.into_iter().flatten().filter(|(name, _)| is_of_pods(name));
            sums.extend(own.filter_map(|(name, amount)| Some((name.clone(), parsed(amount)?))));
            sums
        };
        let of_own = |list: fn(&ResourceRequirements) -> Option<&Amounts>| own.and_then(list);
        let mut requests =
            with_own(requests_of_containers(&spec), of_own(|own| own.requests.as_ref()));
        let mut limits = with_own(limits_of_containers(&spec), of_own(|own| own.limits.as_ref()));
        for (name, amount) in &self.spec.overhead {
            let Some(amount) = parsed(amount) else { continue };
            let sum = requests.get(name).map_or(amount, |before| before.plus(amount));
            requests.insert(name.clone(), sum);
            if let Some(limit) = limits.get_mut(name).filter(|limit| limit.nanos() != 0) {
                *limit = limit.plus(amount);
            }
        }
        let mut amounts = BTreeMap::from([("pods".to_owned(), Quantity::from_whole(1))]);
        for (name, request) in requests {
            let is_measured = MEASURED.contains(&name.as_str()) || name.starts_with("hugepages-");
            if is_measured || is_extended(&name) || name.starts_with(OF_DEVICES) {
                amounts.insert(format!("requests.{name}"), request);
            }
            if is_measured {
                amounts.insert(name, request);
            }
        }
        let limits = limits.into_iter().filter(|(name, _)| MEASURED.contains(&name.as_str()));
        amounts.extend(limits.map(|(name, limit)| (format!("limits.{name}"), limit)));
        amounts
    }

    /// The scopes of quotas that apply to the Pod.
    fn scopes(&self) -> ObjectScopes {
        let spec = &self.spec;
        let is_terminating = spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
        let class = qos_class(&self.pod_spec(|container, _| container.resources.clone()));
        let mut flags = BTreeSet::from([
            if is_terminating { "Terminating" } else { "NotTerminating" },
            if class == "BestEffort" { "BestEffort" } else { "NotBestEffort" },
        ]);
        if spec.affinity.as_ref().is_some_and(crosses_namespaces) {
            flags.insert("CrossNamespacePodAffinity");
        }
        let priority = Some(&spec.priority_class_name).filter(|class| !class.is_empty());
        let values = [("PriorityClass", priority.cloned().into_iter().collect())];
        ObjectScopes { flags, values: values.into() }
    }

    /// A spec with only these resources of the containers. The flag of the function is true for init containers.
    fn pod_spec(
        &self,
        resources: impl Fn(&CountedContainer, bool) -> Option<ResourceRequirements>,
    ) -> PodSpec {
        let reduced = |container: &CountedContainer, is_init| Container {
            name: container.name.clone(),
            resources: resources(container, is_init),
            restart_policy: container.restart_policy.clone(),
            ..Container::default()
        };
        let containers = self.spec.containers.iter();
        let init_containers = self.spec.init_containers.iter();
        PodSpec {
            containers: containers.map(|one| reduced(one, false)).collect(),
            init_containers: Some(init_containers.map(|one| reduced(one, true)).collect()),
            resources: self.spec.resources.clone(),
            ..PodSpec::default()
        }
    }

    /// The resources of a container while they are resized: the largest of the specified, the allocated and the current
    /// ones. The specified ones do not count if the node cannot provide them.
    fn current_resources(&self, container: &CountedContainer) -> Option<ResourceRequirements> {
        let specified = container.resources.clone();
        let statuses = self.status.container_statuses.iter();
        let status = statuses
            .chain(&self.status.init_container_statuses)
            .find(|status| status.name == container.name);
        let Some((status, current)) =
            status.and_then(|status| Some((status, status.resources.clone()?)))
        else {
            return specified;
        };
        let pending = self.status.conditions.iter().find(|one| one.type_ == "PodResizePending");
        let is_infeasible = pending.is_some_and(|one| one.reason == "Infeasible");
        let specified = specified.filter(|_| !is_infeasible).unwrap_or_default();
        let mut requests = current.requests.unwrap_or_default();
        raise(&mut requests, status.allocated_resources.clone());
        raise(&mut requests, specified.requests.unwrap_or_default());
        let mut limits = current.limits.unwrap_or_default();
        raise(&mut limits, specified.limits.unwrap_or_default());
        Some(ResourceRequirements {
            requests: Some(requests),
            limits: Some(limits),
            ..ResourceRequirements::default()
        })
    }
}

impl Spec {
    /// Whether the Pod has requests or limits at the Pod level.
    fn has_own_resources(&self) -> bool {
        let own = self.resources.as_ref();
        let lists = own.into_iter().flat_map(|own| [&own.requests, &own.limits]);
        lists.flatten().flat_map(BTreeMap::keys).any(|name| is_of_pods(name))
    }
}

impl CountedContainer {
    /// Whether the container, an init container, runs until the Pod ends.
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }

    /// Whether the container has an amount for this resource of a quota.
    fn specifies(&self, name: &str) -> bool {
        let resources = self.resources.as_ref();
        let has = |list: Option<&Amounts>, name: &str| {
            list.is_some_and(|amounts| amounts.contains_key(name))
        };
        match name.strip_prefix("limits.") {
            Some(bare) => has(resources.and_then(|all| all.limits.as_ref()), bare),
            None => {
                let bare = name.strip_prefix("requests.").unwrap_or(name);
                has(resources.and_then(|all| all.requests.as_ref()), bare)
            }
        }
    }
}

/// Whether a Pod selects Pods of other namespaces by an affinity or an anti-affinity.
fn crosses_namespaces(affinity: &Affinity) -> bool {
    let crosses = |term: &PodAffinityTerm| {
        term.namespaces.as_ref().is_some_and(|names| !names.is_empty())
            || term.namespace_selector.is_some()
    };
    let (near, far) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
    let required = [
        near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref()),
        far.and_then(|far| far.required_during_scheduling_ignored_during_execution.as_ref()),
    ];
    let preferred = [
        near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref()),
        far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_ref()),
    ];
    let preferred = preferred.into_iter().flatten().flatten();
    let preferred = preferred.map(|weighted| &weighted.pod_affinity_term);
    required.into_iter().flatten().flatten().chain(preferred).any(crosses)
}

/// Raises amounts to those of others.
fn raise(amounts: &mut Amounts, others: Amounts) {
    let nanos = |amount: &Amount| parsed(amount).map(|amount| amount.nanos());
    for (name, amount) in others {
        if amounts.get(&name).is_none_or(|before| nanos(before) < nanos(&amount)) {
            amounts.insert(name, amount);
        }
    }
}

fn parsed(amount: &Amount) -> Option<Quantity> {
    Quantity::parse(&amount.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn usage(pod: &Value) -> ObjectUsage {
        PodEvaluator.usage(pod.to_string().as_bytes()).unwrap()
    }

    fn amounts(pod: &Value) -> Value {
        let amounts = usage(pod).amounts.into_iter();
        amounts.map(|(name, amount)| (name, Value::from(amount.to_string()))).collect()
    }

    fn container(name: &str, requests: &Value, limits: &Value) -> Value {
        json!({"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn terminated_pods_do_not_count_towards_quota() {
        for (phase, expected) in [
            ("Pending", json!({"pods": "1"})),
            ("Running", json!({"pods": "1"})),
            ("Succeeded", json!({})),
            ("Failed", json!({})),
        ] {
            let pod = json!({"spec": {"x": [1]}, "status": {"phase": phase}});
            assert_eq!(amounts(&pod), expected, "{phase}");
        }
        assert_eq!(amounts(&json!({})), json!({"pods": "1"}));
    }

    #[test]
    fn requests_and_limits_of_containers_are_summed() {
        let one = container(
            "a",
            &json!({"cpu": "100m", "memory": "1Gi", "hugepages-2Mi": "2Mi", "example.com/gpu": "1"}),
            &json!({"cpu": "1", "hugepages-2Mi": "2Mi", "example.com/gpu": "1"}),
        );
        let two = container("b", &json!({"cpu": "900m", "ephemeral-storage": "1G"}), &json!({}));
        let pod = json!({"spec": {"containers": [one, two], "overhead": {"cpu": "500m"}}});
        assert_eq!(
            amounts(&pod),
            json!({
                "pods": "1", "cpu": "1500m", "requests.cpu": "1500m", "limits.cpu": "1500m",
                "memory": "1Gi", "requests.memory": "1Gi", "ephemeral-storage": "1G",
                "requests.ephemeral-storage": "1G", "hugepages-2Mi": "2Mi",
                "requests.hugepages-2Mi": "2Mi", "requests.example.com/gpu": "1",
            })
        );
        let own = json!({"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}});
        let pod = json!({"spec": {
            "containers": [container("a", &json!({"cpu": "1"}), &json!({"memory": "1Gi"}))],
            "resources": own,
        }});
        assert_eq!(
            amounts(&pod),
            json!({"pods": "1", "cpu": "3", "requests.cpu": "3", "limits.memory": "2Gi"})
        );
    }

    #[test]
    fn a_pod_that_is_resized_uses_its_largest_resources() {
        let pod = |reason: &str| {
            json!({
                "spec": {"containers": [container("a", &json!({"cpu": "3"}), &json!({"cpu": "4"}))]},
                "status": {
                    "conditions": [{"type": "PodResizePending", "reason": reason}],
                    "containerStatuses": [{
                        "name": "a", "allocatedResources": {"cpu": "2"},
                        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "5"}},
                    }],
                },
            })
        };
        let expected = |requests: &str| json!({"pods": "1", "cpu": requests, "requests.cpu": requests, "limits.cpu": "5"});
        assert_eq!(amounts(&pod("Deferred")), expected("3"));
        assert_eq!(amounts(&pod("Infeasible")), expected("2"));
    }

    #[test]
    fn the_status_of_an_init_container_counts_only_if_it_is_a_sidecar() {
        let pod = |restart_policy: Option<&str>| {
            let mut init = container("a", &json!({"cpu": "1"}), &json!({}));
            init["restartPolicy"] = json!(restart_policy);
            json!({
                "spec": {"containers": [{"name": "b"}], "initContainers": [init]},
                "status": {"initContainerStatuses": [{
                    "name": "a", "resources": {"requests": {"cpu": "2"}},
                }]},
            })
        };
        let expected = |cpu: &str| json!({"pods": "1", "cpu": cpu, "requests.cpu": cpu});
        assert_eq!(amounts(&pod(None)), expected("1"));
        assert_eq!(amounts(&pod(Some("Always"))), expected("2"));
    }

    #[test]
    fn scopes_of_pods() {
        let scopes = |spec: Value| usage(&json!({"spec": spec})).scopes;
        let best_effort = scopes(json!({"containers": [{"name": "c"}]}));
        assert_eq!(best_effort.flags, BTreeSet::from(["BestEffort", "NotTerminating"]));
        assert_eq!(best_effort.values["PriorityClass"], BTreeSet::new());
        let term = json!({"topologyKey": "t", "namespaces": ["n"]});
        let requests = container("c", &json!({"cpu": "1"}), &json!({}));
        let urgent = scopes(json!({
            "containers": [requests],
            "activeDeadlineSeconds": 0, "priorityClassName": "high",
            "affinity": {"podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution":
                    [{"weight": 1, "podAffinityTerm": term}],
            }},
        }));
        let flags = ["CrossNamespacePodAffinity", "NotBestEffort", "Terminating"];
        assert_eq!(urgent.flags, BTreeSet::from(flags));
        assert_eq!(urgent.values["PriorityClass"], BTreeSet::from(["high".to_owned()]));
    }

    #[test]
    fn containers_must_specify_limited_resources() {
        let limited = BTreeSet::from(["requests.cpu", "memory", "limits.memory", "pods"]);
        let missing = |spec: Value| {
            let pod = json!({"spec": spec});
            PodEvaluator.missing(pod.as_object().unwrap(), &limited)
        };
        let (cpu, memory) = (json!({"cpu": "1"}), json!({"memory": "1"}));
        let spec = json!({
            "containers": [container("b", &cpu, &memory), container("a", &memory, &memory)],
            "initContainers": [container("c", &memory, &json!({}))],
        });
        let expected = "must specify limits.memory for: c; memory for: b; requests.cpu for: a,c";
        assert_eq!(missing(spec).as_deref(), Some(expected));
        let own = json!({"requests": cpu});
        assert_eq!(missing(json!({"containers": [{"name": "a"}], "resources": own})), None);
        assert_eq!(
            PodEvaluator.missing(&Map::new(), &BTreeSet::from(["pods", "ephemeral-storage"])),
            None
        );
    }

    #[test]
    fn resources_of_pods_in_quotas() {
        for (name, expected) in [
            ("pods", true),
            ("cpu", true),
            ("limits.ephemeral-storage", true),
            ("requests.memory", true),
            ("hugepages-2Mi", true),
            ("requests.hugepages-1Gi", true),
            ("requests.example.com/gpu", true),
            ("requests.deviceclass.resource.kubernetes.io/a", true),
            ("limits.hugepages-2Mi", false),
            ("requests.storage", false),
            ("requests.kubernetes.io/a", false),
            ("a.storageclass.storage.k8s.io/requests.storage", false),
            ("services", false),
        ] {
            assert_eq!(PodEvaluator.covers(name), expected, "{name}");
        }
    }
}
