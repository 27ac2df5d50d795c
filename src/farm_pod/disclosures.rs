//! What farm pods show of what is looked up, and to which of those who may read Pods.

use aggregated_apiserver::Disclosures;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};

use super::{
    BudgetView, ClaimedView, CountedView, EventView, NodeView, OwnerView, PodMetricsView,
    ServiceView,
};

/// What comes of owners: kinds and names, which stand in references to owners as well, and what those were installed by.
const OF_OWNERS: [&str; 3] = ["status.owner", "status.owners", "status.release"];

/// What is measured of a Pod.
pub(crate) const MEASURED: [&str; 6] = [
    "status.resources.cpu.percentOfLimit",
    "status.resources.cpu.percentOfRequest",
    "status.resources.cpu.usage",
    "status.resources.memory.percentOfLimit",
    "status.resources.memory.percentOfRequest",
    "status.resources.memory.usage",
];

/// Whoever may read Pods is shown the names of the workloads that they belong to, where and on what they run, and why
/// they do not run well, with the warnings of Events about them. Services, what becomes of claims (their names are said by the
/// Pod), budgets and usage are shown to those who may read these in the same namespace.
pub fn disclosures() -> Disclosures {
    Disclosures::new()
        .shows::<OwnerView<ReplicaSet>>(OF_OWNERS)
        .shows::<OwnerView<Job>>(OF_OWNERS)
        .shows::<OwnerView<Deployment>>(OF_OWNERS)
        .shows::<OwnerView<CronJob>>(OF_OWNERS)
        .shows::<NodeView>(["status.node", "status.why"])
        .shows::<EventView>(["status.why"])
        .protects_in_namespace::<ServiceView>(["status.services"])
        .protects_in_namespace::<ClaimedView>([
            "status.claims[*].phase",
            "status.claims[*].size",
            "status.claims[*].storageClass",
        ])
        .protects_in_namespace::<BudgetView>(["status.budgets", "status.disruptionsAllowed"])
        .protects_in_namespace::<CountedView>(["status.budgets", "status.disruptionsAllowed"])
        .protects_in_namespace::<PodMetricsView>(MEASURED)
}
