//! The cause why a Pod does not run well: one cause, the one to examine first.
//!
//! A problem appears in many fields of a Pod: a failing container also makes the Pod not ready, and a lost node affects
//! all of its Pods. So the causes are checked in a fixed order, and the first one that applies is returned.

mod containers;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use jiff::SignedDuration;

use super::metadata::Rare;
use super::node::NodeView;
use super::view::{ConditionView, PodView, VolumeView, given};

/// The largest number of characters of a message. A container can write a message of four thousand.
const MESSAGE_CHARACTERS: usize = 256;

/// The cause why a Pod does not run well.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The cause in one word, for example `OOMKilled`, `ImagePullBackOff` or `Unschedulable`.
    pub code: String,
    /// The cause in one line.
    pub message: String,
    /// The time since when, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The container of the cause, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl Why {
    /// Creates a cause without a container. The message is joined into one line.
    pub fn new(code: impl Into<String>, message: impl AsRef<str>, since: Option<Time>) -> Self {
        let (code, message) = (code.into(), one_line(message.as_ref()));
        Self { code, message, since, container: None }
    }

    /// The cause that a condition names. `code` is the default if the condition has no reason.
    fn of_condition(condition: ConditionView<'_>, code: &str) -> Self {
        let code = given(condition.reason).unwrap_or(code);
        let message = given(condition.message).unwrap_or_default();
        Self::new(code, message, condition.last_transition_time.time())
    }
}

/// The cause why a Pod does not run well, or `None` if it runs well or has succeeded.
pub fn why(pod: &PodView, node: Option<&NodeView>) -> Option<Why> {
    let deletion = being_deleted(pod, node);
    if deletion.is_some() || pod.status.phase.as_deref() == Some("Succeeded") {
        return deletion;
    }
    let causes: [&dyn Fn() -> Option<Why>; 7] = [
        &|| said_of_the_pod(pod),
        &|| not_scheduled(pod),
        &|| node_not_ready(pod, node),
        &|| containers::in_trouble(pod),
        &|| not_started(pod),
        &|| containers::not_ready(pod).or_else(|| not_ready(pod)),
        &|| resize_pending(pod),
    ];
    causes.iter().find_map(|cause| cause())
}

/// Whether the container of a cause, if the cause has one, was killed rather than ended by itself.
pub fn was_killed(pod: &PodView, container: Option<&str>) -> bool {
    container.is_some_and(|name| containers::was_killed(pod, name))
}

/// The Pod is being deleted.
fn being_deleted(pod: &PodView, node: Option<&NodeView>) -> Option<Why> {
    let Rare { deletion_timestamp, deletion_grace_period_seconds, finalizers, .. } =
        pod.metadata.rare.as_deref()?;
    let deadline = deletion_timestamp.timestamp()?;
    let grace = SignedDuration::from_secs(deletion_grace_period_seconds.unwrap_or(0));
    // `deletionTimestamp` is the time by which the object must be deleted.
    let since = deadline.checked_sub(grace).unwrap_or(deadline);
    let disruption = pod.status.condition("DisruptionTarget").filter(|one| one.is_true());
    let disruption = disruption.and_then(|one| given(one.message));
    let message = if let Some(node) = node_not_ready(pod, node) {
        format!("being deleted, but {}", node.message)
    } else if let Some(said) = given(pod.status.message.as_ref()) {
        format!("being deleted: {said}")
    } else if !finalizers.is_empty() {
        format!("being deleted, held by {}", finalizers.join(", "))
    } else if let Some(disruption) = disruption {
        format!("being deleted: {disruption}")
    } else {
        "being deleted".to_owned()
    };
    Some(Why::new("Terminating", message, Some(Time(since))))
}

/// The reason that the kubelet or a controller set for the Pod as a whole, for example `Evicted`.
fn said_of_the_pod(pod: &PodView) -> Option<Why> {
    let code = given(pod.status.reason.as_ref())?;
    let message = given(pod.status.message.as_ref()).unwrap_or_default();
    let conditions = ["DisruptionTarget", "Ready"].map(|kind| pod.status.condition(kind));
    let since = conditions.into_iter().flatten().find_map(|one| one.last_transition_time.time());
    Some(Why::new(code, message, since))
}

/// The Pod has no node yet.
fn not_scheduled(pod: &PodView) -> Option<Why> {
    if given(pod.spec.node_name.as_ref()).is_some() || !is_pending(pod) {
        return None;
    }
    let since = pod.metadata.creation_timestamp.time();
    let unknown = || Why::new("NotScheduled", "no scheduler has looked at it yet", since);
    let condition = pod.status.condition("PodScheduled").filter(|one| !one.is_true());
    Some(condition.map_or_else(unknown, |one| Why::of_condition(one, "Unschedulable")))
}

/// The node of the Pod reports that it is not ready, or has stopped reporting.
fn node_not_ready(pod: &PodView, node: Option<&NodeView>) -> Option<Why> {
    let node = node.filter(|_| !is_over(pod))?;
    let ready = node.condition("Ready").filter(|ready| !ready.is_true())?;
    let name = given(pod.spec.node_name.as_ref()).unwrap_or_default();
    let said = given(ready.message).or_else(|| given(ready.reason));
    let message = match said {
        Some(said) => format!("node {name} is not ready: {said}"),
        None => format!("node {name} is not ready"),
    };
    Some(Why::new("NodeNotReady", message, ready.last_transition_time.time()))
}

/// The Pod has a node, and none of its containers has started.
fn not_started<'a>(pod: &'a PodView) -> Option<Why> {
    let status = &pod.status;
    if !is_pending(pod) {
        return None;
    }
    let scheduled = status.condition("PodScheduled");
    let since = scheduled.and_then(|scheduled| scheduled.last_transition_time.time());
    if status.container_statuses.is_empty() && status.init_container_statuses.is_empty() {
        let name = given(pod.spec.node_name.as_ref()).unwrap_or_default();
        let message = format!("the kubelet of node {name} has said nothing of it yet");
        return Some(Why::new("NotStarted", message, since));
    }
    let prepared = status.condition("PodReadyToStartContainers");
    if prepared.is_none_or(ConditionView::is_true) {
        return Some(Why::new("ContainerCreating", "its containers are being made", since));
    }
    let claim = |volume: &'a VolumeView| match volume {
        VolumeView::Claim(name) => Some(&**name),
        _ => None,
    };
    let claims: Vec<&str> = pod.spec.volumes.iter().filter_map(claim).collect();
    let message = match claims.as_slice() {
        [] => "its sandbox, network or volumes are being made".to_owned(),
        claims => format!("its sandbox, network or volumes ({}) are being made", claims.join(", ")),
    };
    Some(Why::new("ContainerCreating", message, since))
}

/// The Pod is not ready, and no container is the cause.
fn not_ready(pod: &PodView) -> Option<Why> {
    let ready = pod.status.condition("Ready").filter(|ready| !ready.is_true() && !is_over(pod))?;
    Some(Why::of_condition(ready, "NotReady"))
}

/// A resize of the Pod is pending.
fn resize_pending(pod: &PodView) -> Option<Why> {
    let pending = pod.status.condition("PodResizePending").filter(|one| one.is_true())?;
    let reason = given(pending.reason).unwrap_or("Pending");
    let why = Why::of_condition(pending, "");
    Some(Why { code: format!("Resize{reason}"), ..why })
}

fn is_pending(pod: &PodView) -> bool {
    matches!(pod.status.phase.as_deref(), None | Some("" | "Pending"))
}

fn is_over(pod: &PodView) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Joins a string into one line, and truncates it if it is long.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MESSAGE_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests;
