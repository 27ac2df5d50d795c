//! What is read of a workload, whatever its kind.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use kube::Resource;
use serde::Deserialize;

use crate::farm_pod::ObjectView;
use crate::farm_pod::view::{ConditionView, Conditions};

/// What is read of a workload of this kind.
pub type WorkloadView<K> = ObjectView<K, WorkloadSpecView, WorkloadStatusView>;

/// What is wanted of a workload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpecView {
    replicas: Option<i64>,
    paused: bool,
    suspend: bool,
    parallelism: Option<i64>,
    completions: Option<i64>,
}

/// What there is of a workload: each kind says it in words of its own.
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
    /// The condition of this type, if it is so or, where that is wanted, is not.
    pub fn condition(&self, kind: &str, is_true: bool) -> Option<ConditionView<'_>> {
        let status = if is_true { "True" } else { "False" };
        self.conditions.iter().find(|one| &**one.type_ == kind && &**one.status == status)
    }
}

/// How many of a workload are wanted, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// How many are wanted; of a Job, how many have to succeed.
    pub wanted: i64,
    /// How many of these are ready; of a Job, how many have succeeded.
    pub ready: i64,
    /// How many are as they are described now.
    pub updated: Option<i64>,
    /// How many have been ready for long enough.
    pub available: Option<i64>,
    /// Whether no more are made, because somebody has said so.
    pub is_paused: bool,
}

/// A kind of workloads.
pub trait Workload: Resource<DynamicType = ()> + Send + Sync + 'static {
    /// What kubectl calls it for short.
    const SHORT_NAME: &'static str;
    /// The kind of what stands between it and its Pods, if that is not nothing.
    const POD_OWNER: &'static str;

    /// How many are wanted, and how many there are.
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
            // One of a queue is done when one has succeeded and all have ended.
            wanted: spec.completions.or(spec.parallelism.map(|most| most.min(1))).unwrap_or(1),
            ready: status.succeeded,
            updated: None,
            available: None,
            is_paused: spec.suspend,
        }
    }
}
