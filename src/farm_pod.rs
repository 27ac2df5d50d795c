//! FarmPod: a Pod, with what one would otherwise join by hand.

use aggregated_apiserver::{Cells, Computed, Lookup, age};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::{CustomResource, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a farm pod is called: this and the name of its Pod.
const PREFIX: &str = "farm-";

/// Of a ReplicaSet only its owner is of interest.
pub type ReplicaSetMetadata = PartialObjectMeta<ReplicaSet>;
/// Of a Job only its owner is of interest.
pub type JobMetadata = PartialObjectMeta<Job>;

/// What a Pod is made of.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "farm.example.com",
    version = "v1alpha",
    kind = "FarmPod",
    namespaced,
    status = "FarmPodStatus",
    shortname = "fp",
    category = "farm",
    selectable = ".spec.containers",
    selectable = ".status.node",
    selectable = ".status.owner.kind",
    selectable = ".status.owner.name",
    selectable = ".status.phase",
    selectable = ".status.ready",
    selectable = ".status.restarts",
    printcolumn(
        name = "Containers",
        type_ = "integer",
        json_path = ".spec.containers",
        description = "How many containers the Pod has"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.ready",
        description = "How many of them are ready"
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "How far the Pod has come"
    ),
    printcolumn(
        name = "Restarts",
        type_ = "string",
        json_path = ".status.restarts",
        description = "How often they were restarted, all together, and how long ago last"
    ),
    printcolumn(
        name = "Owner",
        type_ = "string",
        json_path = ".status.owner.name",
        description = "The workload that the Pod belongs to"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "How long ago the Pod was created"
    ),
    printcolumn(
        name = "Kind",
        type_ = "string",
        json_path = ".status.owner.kind",
        priority = 1,
        description = "The kind of that workload"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.node",
        priority = 1,
        description = "The node that the Pod runs on"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.lastRestart.reason",
        priority = 1,
        description = "Why a container last ended and was restarted"
    )
)]
pub struct FarmPodSpec {
    /// How many containers the Pod has.
    pub containers: i64,
}

/// How a Pod is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FarmPodStatus {
    /// Its phase: Pending, Running, Succeeded, Failed or Unknown; Terminating
    /// once it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The node that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The workload that it belongs to: the Deployment behind the ReplicaSet,
    /// the CronJob behind the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// How many of its containers are ready, as `1/2`.
    pub ready: String,
    /// How often its containers were restarted, all together.
    pub restarts: i64,
    /// The last time that one of them ended and was restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<LastRestart>,
}

/// The workload that a Pod belongs to.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// As `apps/v1`.
    pub api_version: String,
    /// As `Deployment`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// The last time that a container ended and was restarted.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRestart {
    /// The container.
    pub container: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Why, as `OOMKilled` or `Error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its exit code.
    pub exit_code: i32,
}

/// What is read of a Pod. A cluster has many, and most of a Pod is not shown.
#[derive(Resource, Clone, Debug, Default, Deserialize, Serialize)]
#[resource(inherit = Pod)]
pub struct PodView {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it is made of.
    #[serde(default)]
    pub spec: PodViewSpec,
    /// How it is.
    #[serde(default)]
    pub status: PodViewStatus,
}

/// What a Pod is made of.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodViewSpec {
    /// Its containers: only their number is of interest.
    pub containers: Vec<Nothing>,
    /// The node that it runs on.
    pub node_name: Option<String>,
}

/// Whatever it is, nothing of it is kept.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Nothing {}

/// How a Pod is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodViewStatus {
    /// Its phase.
    pub phase: Option<String>,
    /// How its containers are.
    pub container_statuses: Vec<ContainerView>,
}

/// How a container is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    /// Its name.
    pub name: String,
    /// Whether it is ready.
    pub ready: bool,
    /// How often it was restarted.
    pub restart_count: i32,
    /// How it was before that.
    pub last_state: LastState,
}

/// How a container was before it was restarted.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct LastState {
    /// How it ended.
    pub terminated: Option<ContainerStateTerminated>,
}

impl Computed for FarmPod {
    type Source = PodView;
    type Related = (Lookup<ReplicaSetMetadata>, Lookup<JobMetadata>);

    fn compute(pod: &PodView, related: &Self::Related) -> Option<Self> {
        let name = format!("{PREFIX}{}", pod.metadata.name.as_deref()?);
        let containers = pod.spec.containers.len();
        let mut farm_pod =
            Self::new(&name, FarmPodSpec { containers: i64::try_from(containers).ok()? });
        farm_pod.metadata.labels = pod.metadata.labels.clone();
        let statuses = &pod.status.container_statuses;
        let ready = statuses.iter().filter(|container| container.ready).count();
        farm_pod.status = Some(FarmPodStatus {
            phase: phase(pod),
            node: pod.spec.node_name.clone(),
            owner: owner(pod, related),
            ready: format!("{ready}/{containers}"),
            restarts: statuses.iter().map(|container| i64::from(container.restart_count)).sum(),
            last_restart: last_restart(statuses),
        });
        Some(farm_pod)
    }

    fn source_name(name: &str) -> Option<String> {
        name.strip_prefix(PREFIX).filter(|name| !name.is_empty()).map(str::to_owned)
    }

    fn cells() -> Cells<Self> {
        Cells::new().cell("Restarts", restarts)
    }
}

/// As `3 (5m ago)`.
fn restarts(farm_pod: &FarmPod, now: Timestamp) -> Option<String> {
    let status = farm_pod.status.as_ref()?;
    let last = status.last_restart.as_ref().and_then(|last| last.time.as_ref());
    Some(match last {
        Some(last) if status.restarts > 0 => {
            format!("{} ({} ago)", status.restarts, age(last.0, now))
        }
        _ => status.restarts.to_string(),
    })
}

fn phase(pod: &PodView) -> Option<String> {
    match pod.metadata.deletion_timestamp {
        Some(_) => Some("Terminating".to_owned()),
        None => pod.status.phase.clone(),
    }
}

/// The workload that a Pod belongs to. Where what is between is not known
/// (yet, or any more), that is the answer.
fn owner(pod: &PodView, (sets, jobs): &<FarmPod as Computed>::Related) -> Option<Owner> {
    let namespace = pod.metadata.namespace.as_deref();
    let direct = controller(&pod.metadata)?;
    let behind = match (direct.api_version.split('/').next(), direct.kind.as_str()) {
        (Some("apps"), "ReplicaSet") => {
            sets.get(namespace, &direct.name).and_then(|set| behind(&set.metadata, direct))
        }
        (Some("batch"), "Job") => {
            jobs.get(namespace, &direct.name).and_then(|job| behind(&job.metadata, direct))
        }
        _ => None,
    };
    let OwnerReference { api_version, kind, name, .. } = behind.unwrap_or_else(|| direct.clone());
    Some(Owner { api_version, kind, name })
}

/// The controller of an object, if it is the one that a reference means and
/// not a later one of the same name.
fn behind(metadata: &ObjectMeta, reference: &OwnerReference) -> Option<OwnerReference> {
    let is_meant = metadata.uid.as_deref() == Some(&reference.uid);
    controller(metadata).filter(|_| is_meant).cloned()
}

fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true))
}

fn last_restart(statuses: &[ContainerView]) -> Option<LastRestart> {
    let ended = statuses.iter().filter_map(|container| {
        let terminated = container.last_state.terminated.as_ref()?;
        Some((container, terminated))
    });
    let time = |terminated: &ContainerStateTerminated| -> Option<Timestamp> {
        terminated.finished_at.as_ref().map(|time| time.0)
    };
    let (container, terminated) = ended.max_by_key(|(_, terminated)| time(terminated))?;
    Some(LastRestart {
        container: container.name.clone(),
        time: terminated.finished_at.clone(),
        reason: terminated.reason.clone().filter(|reason| !reason.is_empty()),
        exit_code: terminated.exit_code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn related() -> <FarmPod as Computed>::Related {
        let owned = |name: &str, uid: &str, owner: Value| json!({"metadata": {"name": name, "namespace": "n", "uid": uid, "ownerReferences": [owner]}});
        let set = owned("web-1", "set", reference("apps/v1", "Deployment", "web", "d"));
        let job = owned("nightly-1", "job", reference("batch/v1", "CronJob", "nightly", "c"));
        let set: ReplicaSetMetadata = serde_json::from_value(set).unwrap();
        let job: JobMetadata = serde_json::from_value(job).unwrap();
        (Lookup::from_objects([set]), Lookup::from_objects([job]))
    }

    fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
    }

    fn compute(pod: Value) -> FarmPod {
        let pod: PodView = serde_json::from_value(pod).unwrap();
        FarmPod::compute(&pod, &related()).unwrap()
    }

    fn check_owner(reference: Value, expected: Option<(&str, &str)>) {
        let pod =
            json!({"metadata": {"name": "p", "namespace": "n", "ownerReferences": [reference]}});
        let owner = compute(pod).status.unwrap().owner;
        let found = owner.as_ref().map(|owner| (owner.kind.as_str(), owner.name.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_owner_is_the_workload() {
        check_owner(
            reference("apps/v1", "ReplicaSet", "web-1", "set"),
            Some(("Deployment", "web")),
        );
        check_owner(reference("batch/v1", "Job", "nightly-1", "job"), Some(("CronJob", "nightly")));
        check_owner(reference("apps/v1", "StatefulSet", "db", "s"), Some(("StatefulSet", "db")));
        // Another ReplicaSet of the same name, one that is not there, one of another group.
        check_owner(
            reference("apps/v1", "ReplicaSet", "web-1", "old"),
            Some(("ReplicaSet", "web-1")),
        );
        check_owner(
            reference("apps/v1", "ReplicaSet", "web-2", "x"),
            Some(("ReplicaSet", "web-2")),
        );
        check_owner(
            reference("other/v1", "ReplicaSet", "web-1", "set"),
            Some(("ReplicaSet", "web-1")),
        );
        let mut no_controller = reference("apps/v1", "StatefulSet", "db", "s");
        no_controller["controller"] = json!(false);
        check_owner(no_controller, None);
    }

    #[test]
    fn containers_are_counted_and_the_last_end_is_shown() {
        let ended = |time: &str, reason: &str| json!({"terminated": {"finishedAt": time, "reason": reason, "exitCode": 137}});
        let farm_pod = compute(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": "web"}, "annotations": {"a": "b"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 2, "lastState": ended("2026-01-01T00:00:00Z", "Error")},
                {"name": "b", "ready": false, "restartCount": 1, "lastState": ended("2026-01-02T00:00:00Z", "OOMKilled")},
            ]},
        }));
        assert_eq!(
            serde_json::to_value(&farm_pod).unwrap(),
            json!({
                "apiVersion": "farm.example.com/v1alpha",
                "kind": "FarmPod",
                "metadata": {"name": "farm-p", "labels": {"app": "web"}},
                "spec": {"containers": 2},
                "status": {
                    "phase": "Running", "node": "node-1", "ready": "1/2", "restarts": 3,
                    "lastRestart": {"container": "b", "time": "2026-01-02T00:00:00Z", "reason": "OOMKilled", "exitCode": 137},
                },
            })
        );
    }

    #[test]
    fn restarts_say_how_long_ago() {
        let check = |restarts_: i64, last: Option<&str>, expected: &str| {
            let mut farm_pod = FarmPod::new("farm-p", FarmPodSpec { containers: 1 });
            let time = last.map(|time| Time(time.parse().unwrap()));
            let (container, reason) = ("a".to_owned(), None);
            let last_restart = Some(LastRestart { container, time, reason, exit_code: 1 });
            let status = FarmPodStatus { restarts: restarts_, last_restart, ..Default::default() };
            farm_pod.status = Some(status);
            let now = "2026-01-01T00:05:00Z".parse().unwrap();
            assert_eq!(restarts(&farm_pod, now).as_deref(), Some(expected));
        };
        check(3, Some("2026-01-01T00:00:00Z"), "3 (5m ago)");
        check(3, None, "3");
        check(0, Some("2026-01-01T00:00:00Z"), "0");
    }

    #[test]
    fn a_pod_of_which_nothing_is_known_yet() {
        let status = compute(json!({"metadata": {"name": "p"}})).status.unwrap();
        assert_eq!(status, FarmPodStatus { ready: "0/0".to_owned(), ..FarmPodStatus::default() });
    }

    #[test]
    fn a_pod_that_is_being_deleted() {
        let metadata = json!({"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let farm_pod = compute(json!({"metadata": metadata, "status": {"phase": "Running"}}));
        assert_eq!(farm_pod.status.unwrap().phase.as_deref(), Some("Terminating"));
    }

    #[test]
    fn names() {
        assert_eq!(FarmPod::source_name("farm-web-1").as_deref(), Some("web-1"));
        assert_eq!(FarmPod::source_name("web-1"), None);
        assert_eq!(FarmPod::source_name("farm-"), None);
    }
}
