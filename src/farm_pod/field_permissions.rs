//! The permissions that a user needs, besides reading farm pods, to see fields that come from lookups.

use aggregated_apiserver::FieldPermissions;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};

use super::{
    BudgetView, ClaimedView, CountedView, EventView, NodeView, OwnerView, PodMetricsView,
    ServiceView,
};

/// Fields that come from owners: kinds and names, which are also in references to owners, and the release that
/// installed them.
const OF_OWNERS: [&str; 3] = ["status.owner", "status.owners", "status.release"];

/// The measured usage of a Pod.
pub(crate) const MEASURED: [&str; 6] = [
    "status.resources.cpu.percentOfLimit",
    "status.resources.cpu.percentOfRequest",
    "status.resources.cpu.usage",
    "status.resources.memory.percentOfLimit",
    "status.resources.memory.percentOfRequest",
    "status.resources.memory.usage",
];

/// The field permissions of farm pods.
///
/// Permission to read Pods is enough to see the names of the workloads, the nodes, and the cause of a problem, which
/// includes messages of warning Events. Services, budgets, usage, and the phase, size and storage class of claims are
/// visible only with permission to read these objects in the namespace of the Pod. The names of claims come from the
/// Pod itself.
pub fn field_permissions() -> FieldPermissions {
    FieldPermissions::new()
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
