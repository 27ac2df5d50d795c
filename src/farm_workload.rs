//! FarmWorkload: a Deployment, StatefulSet, DaemonSet or Job, with the sums over its Pods.

mod restart;
mod tally;
mod variant;
mod view;

use aggregated_apiserver::computed::ComputedFromVariants;
use aggregated_apiserver::{FieldPermissions, PrinterColumns};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use restart::restart;
pub use view::WorkloadView;

use crate::farm_pod::field_permissions::MEASURED;
use crate::farm_pod::view::PodView;
use crate::farm_pod::{
    OwnerView, PodMetricsView, Release, Resources, release, resources, restarts,
};
use variant::Of;

/// The identity of a farm workload: its workload.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "farm.example.com",
    version = "v1alpha",
    kind = "FarmWorkload",
    namespaced,
    status = "FarmWorkloadStatus",
    shortname = "fw",
    category = "farm",
    selectable = ".spec.kind",
    selectable = ".spec.workload",
    selectable = ".status.available",
    selectable = ".status.lastRestartTime",
    selectable = ".status.paused",
    selectable = ".status.pods",
    selectable = ".status.readiness",
    selectable = ".status.ready",
    selectable = ".status.release.chart",
    selectable = ".status.release.name",
    selectable = ".status.release.namespace",
    selectable = ".status.release.tool",
    selectable = ".status.resources.cpu.percentOfRequest",
    selectable = ".status.resources.cpu.request",
    selectable = ".status.resources.cpu.usage",
    selectable = ".status.resources.memory.percentOfRequest",
    selectable = ".status.resources.memory.request",
    selectable = ".status.resources.memory.usage",
    selectable = ".status.restarts",
    selectable = ".status.updated",
    selectable = ".status.wanted",
    selectable = ".status.why.code",
    selectable = ".status.why.message",
    selectable = ".status.why.pods",
    selectable = ".status.why.since",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.readiness",
        description = "How many of the replicas that are wanted are ready; of a Job, how many have succeeded"
    ),
    printcolumn(
        name = "Restarts",
        type_ = "string",
        json_path = ".status.restarts",
        description = "How often the containers of its Pods were restarted, all together, and how long ago last"
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.resources.cpu.request",
        description = "What its Pods use of the processors that they request; where that is not measured, how much they request"
    ),
    printcolumn(
        name = "Mem",
        type_ = "string",
        json_path = ".status.resources.memory.request",
        description = "What its Pods use of the memory that they request; where that is not measured, how much they request"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.why.code",
        description = "Why it does not run well, and how many of its Pods say so"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "How long ago it was created"
    ),
    printcolumn(
        name = "Pods",
        type_ = "integer",
        json_path = ".status.pods",
        priority = 1,
        description = "How many Pods it has that have not ended"
    ),
    printcolumn(
        name = "Updated",
        type_ = "integer",
        json_path = ".status.updated",
        priority = 1,
        description = "How many replicas are as it is described now"
    ),
    printcolumn(
        name = "Available",
        type_ = "integer",
        json_path = ".status.available",
        priority = 1,
        description = "How many replicas have been ready for long enough"
    ),
    printcolumn(
        name = "CPU Used",
        type_ = "string",
        json_path = ".status.resources.cpu.usage",
        priority = 1,
        description = "The processors that its Pods use"
    ),
    printcolumn(
        name = "Mem Used",
        type_ = "string",
        json_path = ".status.resources.memory.usage",
        priority = 1,
        description = "The memory that its Pods use"
    ),
    printcolumn(
        name = "Release",
        type_ = "string",
        json_path = ".status.release.name",
        priority = 1,
        description = "What it was installed by: Helm, Flux or Argo CD, and the name there"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.why.message",
        priority = 1,
        description = "What one of the Pods says that do not run well"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FarmWorkloadSpec {
    /// Deployment, StatefulSet, DaemonSet or Job.
    pub kind: String,
    /// The name of the workload, which is in the same namespace.
    pub workload: String,
}

/// The observed state of a workload, and the sums over its Pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FarmWorkloadStatus {
    /// The ready and the wanted number of replicas, for example `1/2`; for a Job, the succeeded and the required
    /// number.
    pub readiness: String,
    /// The number of wanted replicas; for a Job, the number that must succeed.
    pub wanted: i64,
    /// The number of ready replicas; for a Job, the number that have succeeded.
    pub ready: i64,
    /// The number of replicas that match the current spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<i64>,
    /// The number of replicas that have been ready for `minReadySeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<i64>,
    /// Whether the workload is paused or suspended.
    pub paused: bool,
    /// The number of Pods that have not ended. This field and the following ones, except the release, are hidden from
    /// users without permission to read Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<i64>,
    /// The number of restarts of the containers of all Pods together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i64>,
    /// The time at which the last restarted container had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restart_time: Option<Time>,
    /// The requests of the Pods, summed with the rules of the scheduler, and their usage.
    #[serde(default)]
    pub resources: Resources,
    /// The cause why the workload does not run well. Not set if it runs well or has completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Trouble>,
    /// The release that installed the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
}

/// The cause why a workload does not run well: the worst cause of its Pods, or its own condition.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// The cause in one word, for example `CrashLoopBackOff`.
    pub code: String,
    /// The cause in one line, from one of the Pods.
    pub message: String,
    /// The time since when that Pod has the problem, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The number of Pods with this cause; 0 if it is the workload's own condition.
    pub pods: i64,
}

/// The fields that are computed from the Pods of a workload.
const OF_PODS: [&str; 5] =
    ["status.lastRestartTime", "status.pods", "status.resources", "status.restarts", "status.why"];

impl ComputedFromVariants for FarmWorkload {
    type Variants = (Of<Deployment>, Of<StatefulSet>, Of<DaemonSet>, Of<Job>);

    /// The field permissions of farm workloads. Permission to read a workload is enough to see the fields that come
    /// from the workload itself. The sums over its Pods and the cause of a problem, which also depend on the
    /// ReplicaSets in between, are visible only with permission to read Pods in the same namespace. The usage also
    /// requires permission to read the metrics of Pods.
    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new()
            .shows::<OwnerView<ReplicaSet>>(OF_PODS)
            .protects_in_namespace::<PodView>(OF_PODS)
            .protects_in_namespace::<PodMetricsView>(MEASURED)
    }

    fn printer_columns() -> PrinterColumns<Self> {
        let of = |cell: fn(&FarmWorkloadStatus) -> Option<String>| {
            move |workload: &Self, _| workload.status.as_ref().and_then(cell)
        };
        PrinterColumns::new()
            .cell("Restarts", |workload: &Self, now| {
                let status = workload.status.as_ref()?;
                Some(restarts::cell(status.restarts?, status.last_restart_time.as_ref(), now))
            })
            .cell(
                "CPU",
                of(|status| {
                    let cpu = &status.resources.cpu;
                    resources::usage_cell(cpu, cpu.percent_of_request, resources::cpu_cell)
                }),
            )
            .cell(
                "Mem",
                of(|status| {
                    let memory = &status.resources.memory;
                    resources::usage_cell(memory, memory.percent_of_request, resources::memory_cell)
                }),
            )
            .cell("Why", of(|status| status.why.as_ref().map(Trouble::cell)))
            .cell("Release", of(|status| status.release.as_ref().map(release::cell)))
    }
}

impl Trouble {
    /// Formats a cause, for example `CrashLoopBackOff (2)`.
    fn cell(&self) -> String {
        match self.pods {
            0 => self.code.clone(),
            pods => format!("{} ({pods})", self.code),
        }
    }
}

#[cfg(test)]
mod tests;
