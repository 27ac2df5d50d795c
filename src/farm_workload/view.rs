//! The fields that are read of a workload, for every kind of workload.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use kube::Resource;
use serde::Deserialize;

use crate::farm_pod::ObjectView;
use crate::farm_pod::view::{ConditionView, Conditions};

/// The fields that are read of a workload of kind `K`.
pub type WorkloadView<K> = ObjectView<K, WorkloadSpecView, WorkloadStatusView>;

/// The spec of a workload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpecView {
    replicas: Option<i64>,
    paused: bool,
    suspend: bool,
    parallelism: Option<i64>,
    completions: Option<i64>,
}

/// The status of a workload. Each kind has its own fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatusView {
    ready_replicas: i64,
    updated_replicas: i64,
    available_replicas: i64,
    desired_number_scheduled: i64,
    number_ready: i64,
    updated_number_scheduled: i64,
    number_available: i64,
    succeeded: i64,
    conditions: Conditions,
}

impl WorkloadStatusView {
    /// The condition of this type, if its status is `True` or, for `is_true == false`, `False`.
    pub fn condition(&self, kind: &str, is_true: bool) -> Option<ConditionView<'_>> {
        let status = if is_true { "True" } else { "False" };
        self.conditions.iter().find(|one| &**one.type_ == kind && &**one.status == status)
    }
}

/// The wanted and existing numbers of replicas of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The number of wanted replicas; for a Job, the number that must succeed.
    pub wanted: i64,
    /// The number of ready replicas; for a Job, the number that have succeeded.
    pub ready: i64,
    /// The number of replicas that match the current spec.
    pub updated: Option<i64>,
    /// The number of replicas that have been ready for `minReadySeconds`.
    pub available: Option<i64>,
    /// Whether the workload is paused or suspended.
    pub is_paused: bool,
}

/// A kind of workload.
pub trait Workload: Resource<DynamicType = ()> + Send + Sync + 'static {
    /// The short name of the kind in kubectl.
    const SHORT_NAME: &'static str;
    /// The kind of the controller of its Pods: the workload's own kind, or the kind in between.
    const POD_OWNER: &'static str;

    /// Counts the replicas.
    fn counts(workload: &WorkloadView<Self>) -> Counts
    where
        Self: Sized;
}

impl Workload for Deployment {
    const SHORT_NAME: &'static str = "deploy";
    const POD_OWNER: &'static str = "ReplicaSet";

    fn counts(WorkloadView { spec, status, .. }: &WorkloadView<Self>) -> Counts {
        Counts {
            wanted: spec.replicas.unwrap_or(1),
            ready: status.ready_replicas,
            updated: Some(status.updated_replicas),
            available: Some(status.available_replicas),
            is_paused: spec.paused,
        }
    }
}

impl Workload for StatefulSet {
    const SHORT_NAME: &'static str = "sts";
    const POD_OWNER: &'static str = "StatefulSet";

    fn counts(WorkloadView { spec, status, .. }: &WorkloadView<Self>) -> Counts {
        Counts {
            wanted: spec.replicas.unwrap_or(1),
            ready: status.ready_replicas,
            updated: Some(status.updated_replicas),
            available: Some(status.available_replicas),
            is_paused: false,
        }
    }
}

impl Workload for DaemonSet {
    const SHORT_NAME: &'static str = "ds";
    const POD_OWNER: &'static str = "DaemonSet";

    fn counts(WorkloadView { status, .. }: &WorkloadView<Self>) -> Counts {
        Counts {
            wanted: status.desired_number_scheduled,
            ready: status.number_ready,
            updated: Some(status.updated_number_scheduled),
            available: Some(status.number_available),
            is_paused: false,
        }
    }
}

impl Workload for Job {
    const SHORT_NAME: &'static str = "job";
    const POD_OWNER: &'static str = "Job";

    fn counts(WorkloadView { spec, status, .. }: &WorkloadView<Self>) -> Counts {
        Counts {
            // A Job that processes a work queue is complete when one Pod has succeeded and all have ended.
            wanted: spec.completions.or(spec.parallelism.map(|most| most.min(1))).unwrap_or(1),
            ready: status.succeeded,
            updated: None,
            available: None,
            is_paused: spec.suspend,
        }
    }
}
