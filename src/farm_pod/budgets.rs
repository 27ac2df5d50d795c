//! The PodDisruptionBudgets that cover a Pod, and how many of their Pods may be evicted.
//!
//! The selector of a budget changes seldom; its counters change with each Pod that becomes ready. The two are separate
//! lookups, so that a rollout of many Pods does not recompute all of them for each Pod.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::Lookup;
use aggregated_apiserver::computed::{LookupOptions, SourceApi, SourceOptions, SourceType};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compact::{Moment, Pairs, Text, Word};
use super::object_view::ObjectView;
use super::view::{PodView, owned};
use super::{FarmPodStatus, IfServed};

/// The fields that are read of a PodDisruptionBudget, without its counters.
pub type BudgetView = ObjectView<PodDisruptionBudget, BudgetSpecView>;

/// The spec of a budget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpecView {
    /// The label selector of the Pods that the budget covers.
    pub selector: Option<LabelSelector>,
    /// `AlwaysAllow` if Pods that are not ready may always be evicted.
    pub unhealthy_pod_eviction_policy: Option<Word>,
}

/// The counters of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CountedView {
    /// The metadata of the budget.
    #[serde(default)]
    pub metadata: Generated,
    /// The status of the budget.
    #[serde(default)]
    pub status: BudgetStatusView,
}

/// The name, namespace and generation of a budget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Generated {
    name: Option<Text>,
    namespace: Option<Word>,
    generation: Option<i64>,
}

impl SourceType for CountedView {
    fn api() -> SourceApi {
        SourceApi::of::<PodDisruptionBudget>()
    }

    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    fn each_label(&self, _: &mut dyn FnMut(&str, &str)) {}
}

/// The status of a budget.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatusView {
    /// The number of covered Pods that may be evicted now.
    pub disruptions_allowed: Option<i64>,
    /// The number of covered Pods that are ready.
    pub current_healthy: i64,
    /// The number of covered Pods that must be ready.
    pub desired_healthy: i64,
    /// The generation of the budget that the counters were computed for.
    pub observed_generation: i64,
}

/// The watch options of the counters. They change with each Pod, so they are read at most every 15 seconds, the
/// interval of usage measurements.
pub struct Counted;

impl LookupOptions for Counted {
    const OPTIONS: SourceOptions =
        SourceOptions::ALL.measured_every(Duration::from_secs(15)).if_served();
}

impl CountedView {
    /// Whether the counters were computed for another selector, or never. Outdated counters are meaningless, although
    /// the object contains zeros.
    fn is_outdated(&self) -> bool {
        self.status.observed_generation < self.metadata.generation.unwrap_or(0)
    }
}

/// A PodDisruptionBudget that covers a Pod.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// The name of the budget.
    pub name: String,
    /// The number of covered Pods that may be evicted now. Not set until it has been counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<i64>,
}

/// The budgets of Pods, and the counters of the budgets.
pub type Budgets = (Lookup<BudgetView, IfServed>, Lookup<CountedView, Counted>);

/// The budgets that cover a Pod, each with its counters.
pub struct Covering(Vec<(Arc<BudgetView>, Option<Arc<CountedView>>)>);

impl Covering {
    /// Returns the budgets that cover an object with these labels. Kubernetes matches budgets against every Pod,
    /// including one without labels.
    pub fn of(labels: &Pairs, namespace: Option<&str>, budgets: &Budgets) -> Self {
        let (covering, counted) = budgets;
        let labels = labels.map().unwrap_or_default();
        let found = covering.find_selecting(selector, namespace, &labels).into_iter();
        let with_counters = found.map(|budget| {
            let name = budget.metadata.name.as_deref().unwrap_or_default();
            let counted = counted.get(namespace, name);
            (budget, counted)
        });
        Self(with_counters.collect())
    }

    /// Returns the budgets as the status of a farm pod lists them.
    pub fn shown(&self) -> Vec<Budget> {
        let shown = |(budget, counted): &(Arc<BudgetView>, Option<Arc<CountedView>>)| {
            let name = owned(budget.metadata.name.as_ref())?;
            let counted = counted.as_ref().filter(|counted| !counted.is_outdated());
            let allowed = counted.and_then(|counted| counted.status.disruptions_allowed);
            Some(Budget { name, disruptions_allowed: allowed })
        };
        self.0.iter().filter_map(shown).collect()
    }

    /// The number of covered Pods, this one included, that may be evicted now. Returns `None` if no budget prevents the
    /// eviction of this Pod, or if that has not been counted.
    ///
    /// Same decision as kube-apiserver's. It consults no budget for a Pod that has ended, has not started or is being
    /// deleted. It does not evict a Pod that several budgets cover. It evicts a Pod that is not ready if the policy of
    /// its budget is `AlwaysAllow`, or if as many Pods are ready as the budget requires.
    pub fn allowed(&self, pod: &PodView) -> Option<i64> {
        let phase = pod.status.phase.as_deref();
        let is_free = matches!(phase, Some("Pending" | "Succeeded" | "Failed"))
            || pod.metadata.deletion_timestamp() != Moment::default();
        if is_free {
            return None;
        }
        let (budget, counted) = match &*self.0 {
            [] => return None,
            [one] => one,
            _ => return Some(0),
        };
        let is_ready = pod.status.has("Ready");
        let policy = budget.spec.unhealthy_pod_eviction_policy.as_deref();
        if !is_ready && policy == Some("AlwaysAllow") {
            return None;
        }
        let counted = counted.as_deref()?;
        let CountedView { status, .. } = counted;
        let is_met = status.current_healthy >= status.desired_healthy && status.desired_healthy > 0;
        if !is_ready && is_met {
            return None;
        }
        // kube-apiserver evicts nothing until the budget has been counted.
        match counted.is_outdated() {
            true => Some(0),
            false => status.disruptions_allowed.map(|allowed| allowed.max(0)),
        }
    }
}

/// The selector of a budget. An empty selector matches all Pods; a missing or invalid selector matches none.
fn selector(budget: &BudgetView) -> Option<Selector> {
    budget.spec.selector.clone()?.try_into().ok()
}

/// Whether the counters changed enough to publish the farm pod: evictions became possible or impossible, or the
/// counters were unknown before.
pub fn has_moved(shown: &FarmPodStatus, computed: &FarmPodStatus) -> bool {
    let allows = |allowed: Option<i64>| allowed.map(|allowed| allowed > 0);
    let of_all = |status: &FarmPodStatus| {
        let budgets = status.budgets.iter();
        budgets.map(|budget| allows(budget.disruptions_allowed)).collect::<Vec<_>>()
    };
    allows(shown.disruptions_allowed) != allows(computed.disruptions_allowed)
        || of_all(shown) != of_all(computed)
}

/// Formats budgets for a table cell, for example `web (1)`.
pub fn cell(budgets: &[Budget]) -> Option<String> {
    let text = |budget: &Budget| match budget.disruptions_allowed {
        Some(allowed) => format!("{} ({allowed})", budget.name),
        None => budget.name.clone(),
    };
    let texts: Vec<String> = budgets.iter().map(text).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}
