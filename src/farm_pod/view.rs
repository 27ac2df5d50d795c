//! What is read of a Pod: only what is shown of it, or decides what is shown.
//!
//! A cluster has many Pods, and most of a Pod is of no interest here: its
//! environment, mounts and probes would be ten times as much as what is kept.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

use super::amounts::Written;
use super::compact::{Pairs, parsed, time};
use super::images::Reference;
use super::metadata::Compact;

pub use super::compact::{List, Text, Word};

/// What is there, and nothing more of it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Present {}

/// What is read of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Read")]
pub struct PodView {
    /// Its metadata, without labels and owners, and with those annotations that are looked at.
    pub metadata: ObjectMeta,
    /// Its labels.
    pub labels: Pairs,
    /// What it belongs to.
    pub owners: List<OwnerReference>,
    /// What it is made of.
    pub spec: SpecView,
    /// How it is.
    pub status: StatusView,
}

#[derive(Deserialize)]
struct Read {
    #[serde(default)]
    metadata: Compact,
    #[serde(default)]
    spec: SpecView,
    #[serde(default)]
    status: StatusView,
}

impl From<Read> for PodView {
    fn from(read: Read) -> Self {
        let Read { mut metadata, spec, status } = read;
        let labels = std::mem::take(&mut metadata.labels);
        let owners = std::mem::take(&mut metadata.owner_references);
        Self { metadata: metadata.object(), labels, owners, spec, status }
    }
}

impl Resource for PodView {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What a Pod is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpecView {
    /// The containers that run side by side.
    pub containers: List<ContainerView>,
    /// Those that run before, and those that stay beside them.
    pub init_containers: List<ContainerView>,
    /// The node that it was put on.
    pub node_name: Option<Text>,
    /// Whose rights it has.
    pub service_account_name: Option<Text>,
    /// Whether containers start again: Always, OnFailure or Never.
    pub restart_policy: Option<Text>,
    /// How much it matters to the scheduler.
    pub priority: Option<i32>,
    /// The name of that.
    pub priority_class_name: Option<Text>,
    /// Conditions of others that it waits for before it is ready.
    pub readiness_gates: List<ReadinessGateView>,
    /// What is mounted.
    pub volumes: List<VolumeView>,
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
}

/// What a container is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    /// Its name.
    pub name: Text,
    /// What it runs.
    pub image: Text,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<Text>,
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequirementsView {
    /// What is asked for.
    pub requests: Written,
    /// What is the most.
    pub limits: Written,
}

/// What processes may do.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGateView {
    /// Its type.
    pub condition_type: Text,
}

/// What is mounted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeView {
    /// Its name.
    pub name: Text,
    /// A folder of the node.
    pub host_path: Option<Present>,
    /// A claim.
    pub persistent_volume_claim: Option<ClaimView>,
    /// A claim that is made for the Pod, and called as both.
    pub ephemeral: Option<Present>,
}

/// A claim that is mounted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimView {
    /// Its name.
    pub claim_name: Text,
}

/// How a Pod is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusView {
    /// How far it has come.
    pub phase: Option<Text>,
    /// Why it is so, as `Evicted`.
    pub reason: Option<Text>,
    /// The same in words.
    pub message: Option<Text>,
    /// What is so, and since when.
    pub conditions: List<ConditionView>,
    /// Its address.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<Text>,
    /// Who goes first where memory is short.
    pub qos_class: Option<Text>,
    /// The node that others are moved from for it.
    pub nominated_node_name: Option<Text>,
    /// How its containers are.
    pub container_statuses: List<ContainerStatusView>,
    /// How its init containers are.
    pub init_container_statuses: List<ContainerStatusView>,
}

impl StatusView {
    /// The condition of this type: the first one, if there are several.
    pub fn condition(&self, kind: &str) -> Option<&ConditionView> {
        self.conditions.iter().find(|condition| &*condition.type_ == kind)
    }

    /// Whether this condition is true.
    pub fn has(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(ConditionView::is_true)
    }
}

/// What is so, and since when.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionView {
    /// What it says.
    #[serde(rename = "type")]
    pub type_: Word,
    /// `True`, `False` or `Unknown`.
    pub status: Word,
    /// Why, in a word.
    pub reason: Option<Text>,
    /// Why, in words.
    pub message: Option<Text>,
    /// Since when.
    #[serde(deserialize_with = "time")]
    pub last_transition_time: Option<Time>,
}

impl ConditionView {
    /// Whether it is so.
    pub fn is_true(&self) -> bool {
        &*self.status == "True"
    }
}

/// How a container is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatusView {
    /// Its name.
    pub name: Text,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it has passed its startup probe.
    pub started: Option<bool>,
    /// How often it was restarted.
    pub restart_count: i32,
    /// The digest of the image that runs.
    #[serde(rename = "imageID", deserialize_with = "digest")]
    pub digest: Option<Text>,
    /// How it is now.
    pub state: StateView,
    /// How it was before it was restarted.
    pub last_state: StateView,
    /// What it has been given.
    pub resources: Option<Box<RequirementsView>>,
    /// What its node has set aside for it.
    pub allocated_resources: Written,
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
    #[serde(deserialize_with = "time")]
    pub started_at: Option<Time>,
}

/// What a container waits for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WaitingView {
    /// As `CrashLoopBackOff`.
    pub reason: Option<Text>,
    /// The same in words.
    pub message: Option<Text>,
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
    pub reason: Option<Text>,
    /// What it said last.
    pub message: Option<Text>,
    /// When it ended.
    #[serde(deserialize_with = "time")]
    pub finished_at: Option<Time>,
}

/// Reads the digest of an image.
fn digest<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    parsed(deserializer, |image_id| Reference::parse(image_id).digest.map(Text::from))
}

/// The text, if there is any.
pub fn given(text: Option<&Text>) -> Option<&str> {
    text.map(|text| &**text).filter(|text| !text.is_empty())
}
