//! Names of resources: those that Pods and claims request, and those that are counted.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;

use super::checks::{FieldErrors, check_with, quote};

/// The countable resources, whose amounts are integers.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// The resources of Pods and claims whose amounts are summed.
const MEASURED: [&str; 10] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];
/// The resources of containers without a domain in their name.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Whether a name without a domain is that of a standard resource.
pub(crate) fn is_standard(name: &str) -> bool {
    name == "storage" || is_standard_of_quotas(name)
}

/// Whether a quota can limit the resource of a name without a domain.
pub(crate) fn is_standard_of_quotas(name: &str) -> bool {
    let is_huge_page = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
    COUNTED.contains(&name) || MEASURED.contains(&name) || is_huge_page
}

/// Whether containers can request the resource of a name without a domain.
pub(crate) fn is_standard_of_containers(name: &str) -> bool {
    OF_CONTAINERS.contains(&name) || name.starts_with("hugepages-")
}

/// Whether amounts of a resource are integers.
pub(crate) fn is_whole(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Whether a resource belongs to Kubernetes itself.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource is an extended resource, such as `example.com/gpu`.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::check_label_key(&format!("requests.{name}")).is_empty()
}

/// Validates the name of any resource.
pub(crate) fn check(name: &str, at: &str, faults: &mut FieldErrors) {
    let before = faults.len();
    check_with(at, name, names::check_label_key, faults);
    if before == faults.len() && !name.contains('/') && !is_standard(name) {
        let why = "must be a standard resource type or fully qualified";
        faults.push(FieldError::invalid(at, quote(name), why));
    }
}

/// Validates the name of a resource that containers request.
pub(crate) fn check_of_container(name: &str, at: &str, faults: &mut FieldErrors) {
    check(name, at, faults);
    let invalid = |why: &str| FieldError::invalid(at, quote(name), why);
    if !name.contains('/') {
        if !is_standard_of_containers(name) {
            faults.push(invalid("must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        faults.push(invalid("doesn't follow extended resource name standard"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_containers() {
        for (name, count) in [
            ("cpu", 0),
            ("hugepages-2Mi", 0),
            ("example.com/gpu", 0),
            ("x.kubernetes.io/y", 0),
            ("pods", 1),
            ("storage", 1),
            ("gpu", 2),
            ("requests.example.com/gpu", 1),
            ("a b", 2),
        ] {
            let mut faults = Vec::new();
            check_of_container(name, "f", &mut faults);
            assert_eq!(faults.len(), count, "{name}");
        }
    }
}
