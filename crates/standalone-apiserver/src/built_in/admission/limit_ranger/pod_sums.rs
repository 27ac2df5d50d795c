//! The total resources of a Pod.

use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::Amounts;

/// The resources that a Pod can request at the Pod level.
const OF_PODS: [&str; 2] = ["cpu", "memory"];

/// The sum of the requests of the containers, or the requests at the Pod level.
pub(super) fn requests(spec: &PodSpec) -> Amounts {
    sums(spec, |resources| resources.requests.as_ref())
}

/// The sum of the limits of the containers, or the limits at the Pod level.
pub(super) fn limits(spec: &PodSpec) -> Amounts {
    sums(spec, |resources| resources.limits.as_ref())
}

fn sums(spec: &PodSpec, of: fn(&ResourceRequirements) -> Option<&Amounts>) -> Amounts {
    let nothing = Amounts::new();
    let amounts = |resources: &'_ Option<ResourceRequirements>| -> Amounts {
        resources.as_ref().and_then(of).unwrap_or(&nothing).clone()
    };
    let mut all = Amounts::new();
    for container in &spec.containers {
        add(&mut all, &amounts(&container.resources));
    }
    // Init containers run before the regular containers, and concurrently with the sidecars before them.
    let (mut staying, mut most) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let own = amounts(&container.resources);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut all, &own);
            add(&mut staying, &own);
            raise(&mut most, &staying);
        } else {
            let mut together = own;
            add(&mut together, &staying);
            raise(&mut most, &together);
        }
    }
    raise(&mut all, &most);
    let own = amounts(&spec.resources).into_iter();
    all.extend(own.filter(|(name, _)| OF_PODS.contains(&name.as_str())));
    all
}

fn add(all: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = match all.get(name).map(|there| (parsed(there), parsed(amount))) {
            Some((Some(there), Some(amount))) => Amount(there.plus(amount).to_string()),
            _ => amount.clone(),
        };
        all.insert(name.clone(), sum);
    }
}

fn raise(all: &mut Amounts, others: &Amounts) {
    let nanos = |amount: &Amount| parsed(amount).map(|amount| amount.nanos());
    for (name, amount) in others {
        if all.get(name).is_none_or(|there| nanos(amount) > nanos(there)) {
            all.insert(name.clone(), amount.clone());
        }
    }
}

fn parsed(amount: &Amount) -> Option<Quantity> {
    Quantity::parse(&amount.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    #[test]
    fn pod_requests_include_init_containers_and_sidecars() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| {
            let mut sidecar = container(cpu);
            sidecar["restartPolicy"] = "Always".into();
            sidecar
        };
        let requested = |spec: Value| requests(&object(spec)).remove("cpu").map(|amount| amount.0);
        let two = json!([container("1"), container("500m")]);
        for (spec, expected) in [
            (json!({"containers": two}), "1500m"),
            (json!({"containers": two, "initContainers": [container("2")]}), "2"),
            (json!({"containers": two, "initContainers": [container("1")]}), "1500m"),
            (json!({"containers": two, "initContainers": [sidecar("1"), container("2")]}), "3"),
            (json!({"containers": two, "initContainers": [sidecar("1"), container("1")]}), "2500m"),
            (json!({"containers": two, "resources": {"requests": {"cpu": "4"}}}), "4"),
        ] {
            assert_eq!(requested(spec.clone()).as_deref(), Some(expected), "{spec}");
        }
        assert_eq!(requested(json!({"containers": []})), None);
    }
}
