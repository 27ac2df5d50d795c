//! The fields that are read of a Pod: only those that a farm kind shows, or that decide what it shows.
//!
//! A cluster has many Pods, and most fields of a Pod are not needed here. Its environment, mounts and probes would use
//! ten times as much memory as the fields that are stored.

use std::ops::Deref;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Deserializer};

use super::amounts::Written;
use super::compact::{parsed, pooled};
use super::images::Reference;
use super::object_view::ObjectView;

pub use super::compact::{Address, List, Moment, Shared, Text, Word};
pub use super::conditions::{ConditionView, Conditions};

/// Records that a field is present; its contents are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct Present {}

/// The fields that are read of a Pod.
pub type PodView = ObjectView<Pod, SpecView, StatusView>;

/// The spec of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "TemplateView")]
pub struct SpecView {
    /// The fields that are the same in all Pods of a template.
    template: Shared<TemplateView>,
    /// The node that the Pod is scheduled on.
    pub node_name: Option<Word>,
    /// The volumes of interest.
    pub volumes: Shared<List<VolumeView>>,
}

impl Deref for SpecView {
    type Target = TemplateView;

    fn deref(&self) -> &TemplateView {
        &self.template
    }
}

impl From<TemplateView> for SpecView {
    fn from(mut read: TemplateView) -> Self {
        let (node_name, volumes) = (read.node_name.take(), std::mem::take(&mut read.volumes));
        Self { template: read.into(), node_name, volumes: volumes.into() }
    }
}

/// The fields that are the same in all Pods of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateView {
    /// The main containers.
    pub containers: List<ContainerView>,
    /// The init containers, including sidecars.
    pub init_containers: List<ContainerView>,
    /// The service account whose permissions the Pod has.
    pub service_account_name: Option<Word>,
    /// The restart policy of containers: Always, OnFailure or Never.
    pub restart_policy: Option<Word>,
    /// The priority for the scheduler.
    pub priority: Option<i32>,
    /// The name of the priority class.
    pub priority_class_name: Option<Word>,
    /// Additional conditions that must be true before the Pod is ready.
    pub readiness_gates: List<ReadinessGateView>,
    /// The overhead of the Pod besides its containers.
    pub overhead: Written,
    /// The requests and limits of all containers together.
    pub resources: RequirementsView,
    /// The security context of all containers.
    pub security_context: SecurityView,
    /// Whether the Pod uses the network of its node.
    #[serde(rename = "hostNetwork")]
    pub host_network: bool,
    /// Whether the Pod sees the processes of its node.
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    /// Whether the Pod shares IPC, for example shared memory, with processes of its node.
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    /// Set only during deserialization: node name and volumes differ between the Pods of a template.
    node_name: Option<Word>,
    #[serde(deserialize_with = "of_interest")]
    volumes: List<VolumeView>,
}

pooled!(TemplateView);

/// The spec of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    /// The name of the container.
    pub name: Word,
    /// The image that the container runs.
    pub image: Word,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<Word>,
    /// The requests and limits.
    pub resources: RequirementsView,
    /// Whether there is a liveness probe, whose failure restarts the container.
    pub liveness_probe: Option<Present>,
    /// Whether there is a readiness probe, whose failure removes the Pod from Services.
    pub readiness_probe: Option<Present>,
    /// Whether there is a startup probe, which must succeed before the other probes run.
    pub startup_probe: Option<Present>,
    /// The security context of the container.
    pub security_context: SecurityView,
}

impl ContainerView {
    /// Whether an init container is a sidecar, which runs beside the main containers.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct RequirementsView {
    /// The requested amounts.
    pub requests: Written,
    /// The largest allowed amounts.
    pub limits: Written,
}

/// The fields that are read of a security context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityView {
    /// Whether the processes have all privileges of the node.
    pub privileged: Option<bool>,
    /// Whether a process can gain more privileges than its parent.
    pub allow_privilege_escalation: Option<bool>,
    /// Whether the container is rejected if it would run as root.
    pub run_as_non_root: Option<bool>,
    /// The user id of the processes.
    pub run_as_user: Option<i64>,
}

/// A readiness gate: a condition that a Pod waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGateView {
    /// The type of the condition.
    pub condition_type: Word,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeView {
    /// A directory of the node.
    HostPath,
    /// A PersistentVolumeClaim of this name.
    Claim(Text),
    /// A claim that is created for the Pod. It is named after the Pod and the volume; the field is the name of the
    /// volume.
    Ephemeral(Text),
}

pooled!(List<VolumeView>);

/// Reads only the volumes of interest. The names of the others can differ from Pod to Pod.
fn of_interest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<List<VolumeView>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Read {
        name: Text,
        host_path: Option<Present>,
        persistent_volume_claim: Option<Claim>,
        ephemeral: Option<Present>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Claim {
        claim_name: Text,
    }

    let view = |read: Read| match read {
        Read { persistent_volume_claim: Some(claim), .. } => {
            Some(VolumeView::Claim(claim.claim_name))
        }
        Read { ephemeral: Some(_), name, .. } => Some(VolumeView::Ephemeral(name)),
        Read { host_path: Some(_), .. } => Some(VolumeView::HostPath),
        _ => None,
    };
    let read = Vec::<Read>::deserialize(deserializer)?;
    Ok(read.into_iter().filter_map(view).collect::<Vec<_>>().into())
}

/// The status of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "ReadPodStatus")]
pub struct StatusView {
    /// The fields that many Pods have in common.
    common: Shared<CommonStatusView>,
    /// The conditions of the Pod.
    pub conditions: Conditions,
    /// The IP address of the Pod.
    pub pod_ip: Address,
    /// The statuses of the main containers.
    pub container_statuses: List<ContainerStatusView>,
    /// The statuses of the init containers.
    pub init_container_statuses: List<ContainerStatusView>,
}

impl Deref for StatusView {
    type Target = CommonStatusView;

    fn deref(&self) -> &CommonStatusView {
        &self.common
    }
}

/// The fields of a status that many Pods have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommonStatusView {
    /// The phase.
    pub phase: Option<Word>,
    /// The reason of the phase, for example `Evicted`.
    pub reason: Option<Word>,
    /// The message about the phase.
    pub message: Option<Word>,
    /// The quality of service class, which decides the order of evictions when memory is short.
    pub qos_class: Option<Word>,
}

pooled!(CommonStatusView);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadPodStatus {
    phase: Option<Word>,
    reason: Option<Word>,
    message: Option<Word>,
    qos_class: Option<Word>,
    conditions: Conditions,
    #[serde(rename = "podIP")]
    pod_ip: Address,
    container_statuses: List<ContainerStatusView>,
    init_container_statuses: List<ContainerStatusView>,
}

impl From<ReadPodStatus> for StatusView {
    fn from(read: ReadPodStatus) -> Self {
        let ReadPodStatus { phase, reason, message, qos_class, .. } = read;
        Self {
            common: CommonStatusView { phase, reason, message, qos_class }.into(),
            conditions: read.conditions,
            pod_ip: read.pod_ip,
            container_statuses: read.container_statuses,
            init_container_statuses: read.init_container_statuses,
        }
    }
}

impl StatusView {
    /// The condition of this type; the first one, if there are several.
    pub fn condition(&self, kind: &str) -> Option<ConditionView<'_>> {
        self.conditions.get(kind)
    }

    /// Whether the condition of this type is true.
    pub fn has(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(ConditionView::is_true)
    }
}

/// The status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "ReadStatus")]
pub struct ContainerStatusView {
    /// The fields that containers of other Pods have in common with this one.
    container: Shared<RunContainerView>,
    /// The current state.
    pub state: StateView,
    /// The state before the last restart.
    pub last_state: StateView,
    /// The number of restarts.
    pub restart_count: i32,
    /// Whether the container is ready.
    pub ready: bool,
    /// Whether the container has passed its startup probe.
    pub started: Option<bool>,
}

impl Deref for ContainerStatusView {
    type Target = RunContainerView;

    fn deref(&self) -> &RunContainerView {
        &self.container
    }
}

/// The part of a container status that the Pods of a template have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunContainerView {
    /// The name of the container.
    pub name: Word,
    /// The digest of the running image.
    pub digest: Option<Word>,
    /// The requests and limits that are in effect.
    pub resources: Option<RequirementsView>,
    /// The resources that the node has allocated to the container.
    pub allocated_resources: Written,
}

pooled!(RunContainerView);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadStatus {
    name: Word,
    ready: bool,
    started: Option<bool>,
    restart_count: i32,
    #[serde(rename = "imageID", deserialize_with = "digest")]
    digest: Option<Word>,
    state: StateView,
    last_state: StateView,
    resources: Option<RequirementsView>,
    allocated_resources: Written,
}

impl From<ReadStatus> for ContainerStatusView {
    fn from(read: ReadStatus) -> Self {
        let ReadStatus { name, digest, resources, allocated_resources, .. } = read;
        let container = RunContainerView { name, digest, resources, allocated_resources };
        Self {
            container: container.into(),
            state: read.state,
            last_state: read.last_state,
            restart_count: read.restart_count,
            ready: read.ready,
            started: read.started,
        }
    }
}

/// The state of a container: waiting, running or terminated.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StateView {
    /// Set if the container waits.
    pub waiting: Option<Box<WaitingView>>,
    /// Set if the container runs.
    pub running: Option<RunningView>,
    /// Set if the container has ended.
    pub terminated: Option<Box<TerminatedView>>,
}

/// The state of a running container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunningView {
    /// The start time.
    pub started_at: Moment,
}

/// The state of a waiting container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WaitingView {
    /// The reason, for example `CrashLoopBackOff`.
    pub reason: Option<Word>,
    /// The message.
    pub message: Option<Word>,
}

/// The state of a container that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminatedView {
    /// The exit code.
    pub exit_code: i32,
    /// The signal that ended the container.
    pub signal: Option<i32>,
    /// The reason, for example `OOMKilled`.
    pub reason: Option<Word>,
    /// The last message of the container.
    pub message: Option<Word>,
    /// The time of the end.
    pub finished_at: Moment,
}

/// Deserializes the digest of an image.
fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Word>, D::Error> {
    parsed(deserializer, |image_id| Reference::parse(image_id).digest.map(Word::from))
}

/// The string, unless it is empty.
pub fn given<T: Deref<Target = str>>(text: Option<&T>) -> Option<&str> {
    text.map(|text| &**text).filter(|text| !text.is_empty())
}

/// An owned copy of the string, unless it is empty.
pub fn owned<T: Deref<Target = str>>(text: Option<&T>) -> Option<String> {
    given(text).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one view for each Pod of a cluster. A new field belongs in a part that many Pods share, or in a box.
    #[test]
    fn pod_views_have_a_limited_size() {
        assert!(size_of::<PodView>() <= 176, "{}", size_of::<PodView>());
        assert!(size_of::<ContainerStatusView>() <= 80, "{}", size_of::<ContainerStatusView>());
    }
}
