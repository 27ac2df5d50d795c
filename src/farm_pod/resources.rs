//! The requests and limits of a Pod, summed with the rules of the scheduler. Sidecars count with the main containers.
//! Another init container counts only if it needs more than all containers that run after it. A pending resize counts
//! as the larger of the old and the new amounts.

use std::collections::BTreeMap;

use aggregated_apiserver::types::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::amounts::Amounts;
use super::view::{ContainerStatusView, ContainerView, PodView, RequirementsView};

/// Requests, limits and usage of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Processors, for example `250m` or `2`.
    #[serde(default, skip_serializing_if = "Amount::is_empty")]
    pub cpu: Amount,
    /// Memory in bytes, for example `512Mi`.
    #[serde(default, skip_serializing_if = "Amount::is_empty")]
    pub memory: Amount,
    /// Disk space of the node in bytes, for example `1Gi`.
    #[serde(default, skip_serializing_if = "Amount::is_empty")]
    pub ephemeral_storage: Amount,
    /// The requested GPUs and other extended resources, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<String, String>,
}

/// Amounts of one resource.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    /// The amount that the node must reserve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The limit of the containers, as far as they have limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The last measured usage. Published when it has changed by a tenth of the request, or after five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<String>,
    /// The usage in percent of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_of_request: Option<i64>,
    /// The usage in percent of the limit, if all containers have limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_of_limit: Option<i64>,
}

impl Amount {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(name: &str, requests: &Amounts, limits: &Amounts) -> Self {
        let text = |amounts: &Amounts| amounts.get(name).map(|amount| amount.to_string());
        Self { request: text(requests), limit: text(limits), ..Self::default() }
    }
}

/// Returns the requests and limits of a Pod.
pub fn resources(pod: &PodView) -> Resources {
    let (requests, limits) = (requests(pod), limits(pod));
    let of = |name| Amount::of(name, &requests, &limits);
    let extended = requests.iter().filter(|(name, _)| is_extended(name));
    Resources {
        cpu: of("cpu"),
        memory: of("memory"),
        ephemeral_storage: of("ephemeral-storage"),
        extended: extended.map(|(name, amount)| (name.to_owned(), amount.to_string())).collect(),
    }
}

/// Removes the percentage of a limit that only some containers have, because the usage is that of all containers.
pub fn drop_partial_limits(pod: &PodView, resources: &mut Resources) {
    let own = pod.spec.resources.limits.read();
    for (name, amount) in [("cpu", &mut resources.cpu), ("memory", &mut resources.memory)] {
        let sidecars = pod.spec.init_containers.iter().filter(|one| one.is_sidecar());
        let mut lasting = pod.spec.containers.iter().chain(sidecars);
        let has_limit = |one: &ContainerView| one.resources.limits.read().get(name).is_some();
        if own.get(name).is_none() && !lasting.all(has_limit) {
            amount.percent_of_limit = None;
        }
    }
}

/// Whether a resource is an extended one. The names of Kubernetes' own resources have no domain.
fn is_extended(name: &str) -> bool {
    name.contains('/')
}

/// The requests of all containers, or those of the Pod itself, plus the overhead of the Pod.
pub fn requests(pod: &PodView) -> Amounts {
    let mut sum = sum(pod, effective_requests);
    set_own(&mut sum, &pod.spec.resources.requests.read());
    sum.add(&pod.spec.overhead.read());
    sum
}

/// The limits of all containers, or those of the Pod itself, plus the overhead of the Pod. The overhead does not add a
/// limit to a resource without one.
pub fn limits(pod: &PodView) -> Amounts {
    let mut sum = sum(pod, effective_limits);
    set_own(&mut sum, &pod.spec.resources.limits.read());
    for (name, overhead) in pod.spec.overhead.read().iter() {
        if let Some(limit) = sum.get(name).filter(|limit| limit.nanos() != 0) {
            sum.set(name, limit.plus(overhead));
        }
    }
    sum
}

/// Resources of the Pod as a whole take precedence over the sum of its containers.
fn set_own(sum: &mut Amounts, own: &Amounts) {
    let may_be_said =
        |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    for (name, amount) in own.iter().filter(|(name, _)| may_be_said(name)) {
        sum.set(name, amount);
    }
}

fn sum(
    pod: &PodView,
    of: fn(&PodView, &ContainerView, Option<&ContainerStatusView>) -> Amounts,
) -> Amounts {
    let (spec, status) = (&pod.spec, &pod.status);
    let mut sum = Amounts::default();
    for container in &spec.containers {
        let status = status.container_statuses.iter().find(|one| one.name == container.name);
        sum.add(&of(pod, container, status));
    }
    let mut of_sidecars = Amounts::default();
    let mut of_initialization = Amounts::default();
    for container in &spec.init_containers {
        if container.is_sidecar() {
            let status =
                status.init_container_statuses.iter().find(|one| one.name == container.name);
            let amounts = of(pod, container, status);
            sum.add(&amounts);
            of_sidecars.add(&amounts);
            of_initialization.raise(&of_sidecars);
        } else {
            let mut amounts = of(pod, container, None);
            amounts.add(&of_sidecars);
            of_initialization.raise(&amounts);
        }
    }
    sum.raise(&of_initialization);
    sum
}

/// Whether the node has rejected a resize permanently.
fn is_resize_infeasible(pod: &PodView) -> bool {
    let pending = pod.status.condition("PodResizePending");
    pending.is_some_and(|pending| pending.reason.is_some_and(|reason| **reason == *"Infeasible"))
}

fn given(
    status: Option<&ContainerStatusView>,
) -> Option<(&ContainerStatusView, &RequirementsView)> {
    let status = status?;
    Some((status, status.resources.as_ref()?))
}

fn effective_requests(
    pod: &PodView,
    container: &ContainerView,
    status: Option<&ContainerStatusView>,
) -> Amounts {
    let asked = container.resources.requests.read();
    let Some((status, given)) = given(status) else { return asked };
    let mut most = given.requests.read();
    most.raise(&status.allocated_resources.read());
    if !is_resize_infeasible(pod) {
        most.raise(&asked);
    }
    most
}

fn effective_limits(
    pod: &PodView,
    container: &ContainerView,
    status: Option<&ContainerStatusView>,
) -> Amounts {
    let asked = container.resources.limits.read();
    let Some((_, given)) = given(status) else { return asked };
    let mut most = given.limits.read();
    if !is_resize_infeasible(pod) {
        most.raise(&asked);
    }
    most
}

/// Formats the usage as a percentage of the request or limit, for example `48%`. Without either it formats the usage;
/// without a measurement it formats the request, for example `250m`.
pub fn usage_cell(
    amount: &Amount,
    percent: Option<i64>,
    text: fn(&str) -> Option<String>,
) -> Option<String> {
    match (&amount.usage, percent) {
        (_, Some(percent)) => Some(format!("{percent}%")),
        (Some(usage), None) => text(usage),
        (None, None) => text(amount.request.as_deref()?),
    }
}

/// Formats the usage, and its percentages of the request and of the limit, for example `120m (48%, 12%)`.
pub fn used_cell(amount: &Amount, text: fn(&str) -> Option<String>) -> Option<String> {
    let used = text(amount.usage.as_deref()?)?;
    let percent =
        |percent: Option<i64>| percent.map_or_else(|| "-".to_owned(), |of| format!("{of}%"));
    let (request, limit) = (percent(amount.percent_of_request), percent(amount.percent_of_limit));
    Some(format!("{used} ({request}, {limit})"))
}

/// Formats an amount of processors.
pub fn cpu_cell(amount: &str) -> Option<String> {
    Some(amount.to_owned())
}

/// Formats an amount of memory in five characters: `128Mi`, `1.1Gi`.
pub fn memory_cell(amount: &str) -> Option<String> {
    const MEBI: i128 = 1 << 20;
    let bytes = Quantity::parse(amount).ok()?.nanos() / 1_000_000_000;
    let mebi = (bytes + MEBI / 2) / MEBI;
    Some(match mebi {
        0 => Quantity::parse(amount).ok()?.to_string(),
        1..1000 => format!("{mebi}Mi"),
        _ => {
            let unit = |shift: u32| (bytes * 10 + (1 << shift) / 2) >> shift;
            let (tenths, name) = match unit(30) {
                tenths @ ..10_000 => (tenths, "Gi"),
                _ => (unit(40), "Ti"),
            };
            match (tenths / 10, tenths % 10) {
                (whole, 0) => format!("{whole}{name}"),
                (whole @ 100.., _) => format!("{whole}{name}"),
                (whole, tenth) => format!("{whole}.{tenth}{name}"),
            }
        }
    })
}

#[cfg(test)]
mod tests;
