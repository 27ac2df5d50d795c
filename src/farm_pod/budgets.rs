//! The PodDisruptionBudgets that cover a Pod, and how many of their Pods may be evicted.
//!
//! What a budget covers changes seldom, and its counters with each Pod that becomes ready: they are looked at apart,
//! so that a rollout of many Pods does not have all of them computed again for each of them.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::{Lookup, Scoped, SourceApi, SourceScope, SourceType};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compact::{Moment, Pairs, Text, Word};
use super::object_view::ObjectView;
use super::view::{PodView, owned};
use super::{FarmPodStatus, IfServed};

/// What is read of a PodDisruptionBudget that its author has said.
pub type BudgetView = ObjectView<PodDisruptionBudget, BudgetSpecView>;

/// What a budget is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpecView {
    /// The labels of the Pods that it covers.
    pub selector: Option<LabelSelector>,
    /// `AlwaysAllow`, where Pods that are not ready may always be evicted.
    pub unhealthy_pod_eviction_policy: Option<Word>,
}

/// What has been counted of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CountedView {
    /// Its metadata.
    #[serde(default)]
    pub metadata: Generated,
    /// How it is.
    #[serde(default)]
    pub status: BudgetStatusView,
}

/// Of which name a budget is, and of which generation.
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

/// How a budget is.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatusView {
    /// How many of its Pods may be evicted now.
    pub disruptions_allowed: Option<i64>,
    /// How many are ready.
    pub current_healthy: i64,
    /// How many have to be.
    pub desired_healthy: i64,
    /// The generation that was counted for.
    pub observed_generation: i64,
}

/// Counters move with each Pod. They are looked at no more often than usage is measured.
pub struct Counted;

impl Scoped for Counted {
    const SCOPE: SourceScope = SourceScope::ALL.measured_every(Duration::from_secs(15)).if_served();
}

impl CountedView {
    /// Whether its counters were made for another selector, or never: then they say nothing, though they are written
    /// down as nought.
    fn is_outdated(&self) -> bool {
        self.status.observed_generation < self.metadata.generation.unwrap_or(0)
    }
}

/// A budget that covers a Pod.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Its name.
    pub name: String,
    /// How many of its Pods may be evicted now, if that has been counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<i64>,
}

/// What keeps Pods from being evicted: what covers them, and what was counted of it.
pub type Budgets = (Lookup<BudgetView, IfServed>, Lookup<CountedView, Counted>);

/// The budgets that cover a Pod, each with what was counted of it.
pub struct Covering(Vec<(Arc<BudgetView>, Option<Arc<CountedView>>)>);

impl Covering {
    /// Those that cover what has the labels. Kubernetes asks them of each Pod, also of one without labels.
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

    /// What is shown of them.
    pub fn shown(&self) -> Vec<Budget> {
        let shown = |(budget, counted): &(Arc<BudgetView>, Option<Arc<CountedView>>)| {
            let name = owned(budget.metadata.name.as_ref())?;
            let counted = counted.as_ref().filter(|counted| !counted.is_outdated());
            let allowed = counted.and_then(|counted| counted.status.disruptions_allowed);
            Some(Budget { name, disruptions_allowed: allowed })
        };
        self.0.iter().filter_map(shown).collect()
    }

    /// How many of the Pods that they cover may be evicted now, this one among them. `None` if no budget keeps
    /// this one from being evicted, or that has not been counted. As kube-apiserver decides it: it asks
    /// no budget of a Pod that has ended, has not begun or is being deleted, evicts none that several cover, and evicts
    /// one that is not ready if its budget says so or has as many Pods that are ready as it needs.
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
        // Nothing is evicted until somebody has counted.
        match counted.is_outdated() {
            true => Some(0),
            false => status.disruptions_allowed.map(|allowed| allowed.max(0)),
        }
    }
}

/// What a budget covers: all Pods if its selector is empty, and none without one, or with one that is invalid.
fn selector(budget: &BudgetView) -> Option<Selector> {
    budget.spec.selector.clone()?.try_into().ok()
}

/// Whether what has been counted differs so much that it is worth telling: something may be evicted now, or nothing any
/// more, or it was not known before.
pub fn has_moved(shown: &FarmPodStatus, computed: &FarmPodStatus) -> bool {
    let allows = |allowed: Option<i64>| allowed.map(|allowed| allowed > 0);
    let of_all = |status: &FarmPodStatus| {
        let budgets = status.budgets.iter();
        budgets.map(|budget| allows(budget.disruptions_allowed)).collect::<Vec<_>>()
    };
    allows(shown.disruptions_allowed) != allows(computed.disruptions_allowed)
        || of_all(shown) != of_all(computed)
}

/// As `web (1)`.
pub fn cell(budgets: &[Budget]) -> Option<String> {
    let text = |budget: &Budget| match budget.disruptions_allowed {
        Some(allowed) => format!("{} ({allowed})", budget.name),
        None => budget.name.clone(),
    };
    let texts: Vec<String> = budgets.iter().map(text).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}
