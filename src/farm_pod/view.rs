//! What is read of a Pod: only what is shown of it, or decides what is shown.
//!
//! A cluster has many Pods, and most of a Pod is of no interest here: its
//! environment, mounts and probes would be ten times as much as what is kept.

use std::ops::Deref;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Deserializer};

use super::amounts::Written;
use super::compact::{parsed, pooled};
use super::images::Reference;
use super::object_view::ObjectView;

pub use super::compact::{Address, List, Moment, Shared, Text, Word};
pub use super::conditions::{ConditionView, Conditions};

/// What is there, and nothing more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct Present {}

/// What is read of a Pod.
pub type PodView = ObjectView<Pod, SpecView, StatusView>;

/// What a Pod is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "TemplateView")]
pub struct SpecView {
    /// What it has in common with others of its template.
    template: Shared<TemplateView>,
    /// The node that it was put on.
    pub node_name: Option<Word>,
    /// What is mounted, as far as it is of interest.
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

/// What the Pods of a template have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateView {
    /// The containers that run side by side.
    pub containers: List<ContainerView>,
    /// Those that run before, and those that stay beside them.
    pub init_containers: List<ContainerView>,
    /// Whose rights it has.
    pub service_account_name: Option<Word>,
    /// Whether containers start again: Always, OnFailure or Never.
    pub restart_policy: Option<Word>,
    /// How much it matters to the scheduler.
    pub priority: Option<i32>,
    /// The name of that.
    pub priority_class_name: Option<Word>,
    /// Conditions of others that it waits for before it is ready.
    pub readiness_gates: List<ReadinessGateView>,
    /// What it takes by itself, besides its containers.
    pub overhead: Written,
    /// What all containers take together.
    pub resources: RequirementsView,
    /// What its processes may do.
    pub security_context: SecurityView,
    /// Whether it is in the network of its node.
    #[serde(rename = "hostNetwork")]
    pub host_network: bool,
    /// Whether it sees the processes of its node.
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    /// Whether it shares memory with processes of its node.
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    /// What is of one Pod alone: it is here only while it is read.
    node_name: Option<Word>,
    #[serde(deserialize_with = "of_interest")]
    volumes: List<VolumeView>,
}

pooled!(TemplateView);

/// What a container is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    /// Its name.
    pub name: Word,
    /// What it runs.
    pub image: Word,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<Word>,
    /// What it takes.
    pub resources: RequirementsView,
    /// Whether there is a probe that ends it.
    pub liveness_probe: Option<Present>,
    /// Whether there is a probe that takes it out of service.
    pub readiness_probe: Option<Present>,
    /// Whether there is a probe that it has to pass first.
    pub startup_probe: Option<Present>,
    /// What its processes may do.
    pub security_context: SecurityView,
}

impl ContainerView {
    /// Whether it is an init container that goes on beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// What is asked for, and what is the most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct RequirementsView {
    /// What is asked for.
    pub requests: Written,
    /// What is the most.
    pub limits: Written,
}

/// What processes may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityView {
    /// All that the node may.
    pub privileged: Option<bool>,
    /// To have more rights than who started them.
    pub allow_privilege_escalation: Option<bool>,
    /// Whether they are refused as root.
    pub run_as_non_root: Option<bool>,
    /// The user that they are.
    pub run_as_user: Option<i64>,
}

/// A condition that a Pod waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGateView {
    /// Its type.
    pub condition_type: Word,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeView {
    /// A folder of the node.
    HostPath,
    /// A claim of this name.
    Claim(Text),
    /// A claim that is made for the Pod, and called as that and the volume, which has this name.
    Ephemeral(Text),
}

pooled!(List<VolumeView>);

/// Reads of volumes those that are of interest. The others have names that differ from Pod to Pod.
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

/// How a Pod is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "ReadPodStatus")]
pub struct StatusView {
    /// What it has in common with other Pods.
    common: Shared<CommonStatusView>,
    /// What is so, and since when.
    pub conditions: Conditions,
    /// Its address.
    pub pod_ip: Address,
    /// How its containers are.
    pub container_statuses: List<ContainerStatusView>,
    /// How its init containers are.
    pub init_container_statuses: List<ContainerStatusView>,
}

impl Deref for StatusView {
    type Target = CommonStatusView;

    fn deref(&self) -> &CommonStatusView {
        &self.common
    }
}

/// What is said of many Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommonStatusView {
    /// How far it has come.
    pub phase: Option<Word>,
    /// Why it is so, as `Evicted`.
    pub reason: Option<Word>,
    /// The same in words.
    pub message: Option<Word>,
    /// Who goes first where memory is short.
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
    /// The condition of this type: the first one, if there are several.
    pub fn condition(&self, kind: &str) -> Option<ConditionView<'_>> {
        self.conditions.get(kind)
    }

    /// Whether this condition is true.
    pub fn has(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(ConditionView::is_true)
    }
}

/// How a container is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "ReadStatus")]
pub struct ContainerStatusView {
    /// What it has in common with those of other Pods.
    container: Shared<RunContainerView>,
    /// How it is now.
    pub state: StateView,
    /// How it was before it was restarted.
    pub last_state: StateView,
    /// How often it was restarted.
    pub restart_count: i32,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it has passed its startup probe.
    pub started: Option<bool>,
}

impl Deref for ContainerStatusView {
    type Target = RunContainerView;

    fn deref(&self) -> &RunContainerView {
        &self.container
    }
}

/// A container as its node runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunContainerView {
    /// Its name.
    pub name: Word,
    /// The digest of the image that runs.
    pub digest: Option<Word>,
    /// What it has been given.
    pub resources: Option<RequirementsView>,
    /// What its node has set aside for it.
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

/// One of three states.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StateView {
    /// It waits.
    pub waiting: Option<Box<WaitingView>>,
    /// It runs.
    pub running: Option<RunningView>,
    /// It has ended.
    pub terminated: Option<Box<TerminatedView>>,
}

/// That a container runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunningView {
    /// Since when.
    pub started_at: Moment,
}

/// What a container waits for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WaitingView {
    /// As `CrashLoopBackOff`.
    pub reason: Option<Word>,
    /// The same in words.
    pub message: Option<Word>,
}

/// How a container has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminatedView {
    /// What it returned.
    pub exit_code: i32,
    /// What it was ended by.
    pub signal: Option<i32>,
    /// As `OOMKilled`.
    pub reason: Option<Word>,
    /// What it said last.
    pub message: Option<Word>,
    /// When it ended.
    pub finished_at: Moment,
}

/// Reads the digest of an image.
fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Word>, D::Error> {
    parsed(deserializer, |image_id| Reference::parse(image_id).digest.map(Word::from))
}

/// The text, if there is any.
pub fn given<T: Deref<Target = str>>(text: Option<&T>) -> Option<&str> {
    text.map(|text| &**text).filter(|text| !text.is_empty())
}

/// The same to be shown.
pub fn owned<T: Deref<Target = str>>(text: Option<&T>) -> Option<String> {
    given(text).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for each Pod of a cluster: what is added to it belongs to what many have in common, or in a box.
    #[test]
    fn a_pod_takes_little_room() {
        assert!(size_of::<PodView>() <= 176, "{}", size_of::<PodView>());
        assert!(size_of::<ContainerStatusView>() <= 80, "{}", size_of::<ContainerStatusView>());
    }
}
