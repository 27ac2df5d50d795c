//! The PodDisruptionBudgets that cover a Pod.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::Selector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata;

/// What is read of a PodDisruptionBudget.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = PodDisruptionBudget)]
pub struct BudgetView {
    /// Its metadata.
    #[serde(default, deserialize_with = "metadata::read")]
    pub metadata: ObjectMeta,
    /// What it is about.
    #[serde(default)]
    pub spec: BudgetSpecView,
    /// How it is.
    #[serde(default)]
    pub status: BudgetStatusView,
}

/// What a budget is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BudgetSpecView {
    /// The labels of the Pods that it covers.
    pub selector: Option<LabelSelector>,
}

/// How a budget is.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatusView {
    /// How many of its Pods may be evicted now.
    pub disruptions_allowed: Option<i64>,
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

/// What a budget covers: all Pods if its selector is empty, and none without one.
pub fn selector(budget: &BudgetView) -> Option<Selector> {
    budget.spec.selector.clone()?.try_into().ok()
}

/// What is shown of a budget.
pub fn shown(budget: &BudgetView) -> Option<Budget> {
    let name = budget.metadata.name.clone()?;
    Some(Budget { name, disruptions_allowed: budget.status.disruptions_allowed })
}

/// How many of the Pods that these budgets cover may be evicted now, if that has been counted. Kubernetes evicts no Pod
/// that several cover.
pub fn allowed(budgets: &[Budget]) -> Option<i64> {
    match budgets {
        [] => None,
        [one] => one.disruptions_allowed,
        _ => Some(0),
    }
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
