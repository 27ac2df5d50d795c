//! FarmPod: a Pod joined with related objects: its owners, its node, Services, budgets, claims, Events and usage.

pub(crate) mod amounts;
mod budgets;
mod cells;
mod claims;
pub(crate) mod compact;
mod conditions;
mod events;
pub(crate) mod field_permissions;
mod findings;
mod images;
mod log;
pub(crate) mod metadata;
pub(crate) mod node;
pub(crate) mod object_view;
mod owner;
pub(crate) mod release;
pub(crate) mod resources;
pub(crate) mod restarts;
mod services;
pub(crate) mod status;
pub(crate) mod usage;
pub(crate) mod view;
pub(crate) mod why;

use std::sync::Arc;

use aggregated_apiserver::computed::{LookupOptions, MetadataLookup, SourceOptions};
use aggregated_apiserver::{Computed, FieldPermissions, Lookup, PrinterColumns};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use budgets::{Budget, BudgetView, Counted, CountedView};
pub use claims::{Claim, ClaimedView};
pub use events::{EventView, WarningsOfPods};
pub use findings::Finding;
pub use images::Image;
pub(crate) use log::log;
pub use node::{NodeFacts, NodeView};
pub use object_view::{AnyOwnerView, ObjectView, OwnerView};
pub use owner::Owner;
pub use release::Release;
pub use resources::{Amount, Resources};
pub use restarts::LastEnd;
pub use services::ServiceView;
pub use usage::{NodeMetricsView, PodMetricsView, Polled};
pub use view::PodView;
pub use why::Why;

use budgets::{Budgets, Covering};
use metadata::OwnerLink;
use owner::{Chain, Owned};
use status::Summary;
use view::{given, owned};

/// The prefix of a farm pod's name; the name of its Pod follows.
pub(crate) const PREFIX: &str = "farm-";

/// The identity of a farm pod: its Pod.
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
    selectable = ".spec.pod",
    selectable = ".status.disruptionsAllowed",
    selectable = ".status.ip",
    selectable = ".status.lastEnd.container",
    selectable = ".status.lastEnd.exitCode",
    selectable = ".status.lastEnd.reason",
    selectable = ".status.lastEnd.time",
    selectable = ".status.lastRestartTime",
    selectable = ".status.node.architecture",
    selectable = ".status.node.cordoned",
    selectable = ".status.node.instanceType",
    selectable = ".status.node.name",
    selectable = ".status.node.operatingSystem",
    selectable = ".status.node.pool",
    selectable = ".status.node.ready",
    selectable = ".status.node.region",
    selectable = ".status.node.spot",
    selectable = ".status.node.zone",
    selectable = ".status.owner.apiVersion",
    selectable = ".status.owner.kind",
    selectable = ".status.owner.name",
    selectable = ".status.phase",
    selectable = ".status.priority",
    selectable = ".status.priorityClass",
    selectable = ".status.qosClass",
    selectable = ".status.ready",
    selectable = ".status.release.chart",
    selectable = ".status.release.name",
    selectable = ".status.release.namespace",
    selectable = ".status.release.tool",
    selectable = ".status.resources.cpu.limit",
    selectable = ".status.resources.cpu.percentOfLimit",
    selectable = ".status.resources.cpu.percentOfRequest",
    selectable = ".status.resources.cpu.request",
    selectable = ".status.resources.cpu.usage",
    selectable = ".status.resources.ephemeralStorage.limit",
    selectable = ".status.resources.ephemeralStorage.request",
    selectable = ".status.resources.memory.limit",
    selectable = ".status.resources.memory.percentOfLimit",
    selectable = ".status.resources.memory.percentOfRequest",
    selectable = ".status.resources.memory.request",
    selectable = ".status.resources.memory.usage",
    selectable = ".status.restarts",
    selectable = ".status.serviceAccount",
    selectable = ".status.state",
    selectable = ".status.why.code",
    selectable = ".status.why.container",
    selectable = ".status.why.message",
    selectable = ".status.why.since",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.ready",
        description = "How many of its containers are ready"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.state",
        description = "How it is, as `kubectl get pods` says it"
    ),
    printcolumn(
        name = "Restarts",
        type_ = "string",
        json_path = ".status.restarts",
        description = "How often its containers were restarted, all together, and how long ago last"
    ),
    printcolumn(
        name = "Owner",
        type_ = "string",
        json_path = ".status.owner.name",
        description = "The workload that it belongs to"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.node.name",
        description = "The node that it runs on"
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".status.node.zone",
        description = "The zone that the node is in"
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.resources.cpu.request",
        description = "What it uses of the processors that it requests; where that is not measured, how much it requests"
    ),
    printcolumn(
        name = "Mem",
        type_ = "string",
        json_path = ".status.resources.memory.request",
        description = "What it uses of the memory that it is limited to; where that is not measured, how much it requests"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "How long ago it was created"
    ),
    printcolumn(
        name = "Kind",
        type_ = "string",
        json_path = ".status.owner.kind",
        priority = 1,
        description = "The kind of its owner"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.lastEnd.reason",
        priority = 1,
        description = "Why one of its containers ended last"
    ),
    printcolumn(
        name = "Images",
        type_ = "string",
        json_path = ".status.images[*].repository",
        priority = 1,
        description = "What its containers run, without the registries"
    ),
    printcolumn(
        name = "CPU Used",
        type_ = "string",
        json_path = ".status.resources.cpu.usage",
        priority = 1,
        description = "The processors that it uses, and how much that is of the request and of the limit"
    ),
    printcolumn(
        name = "Mem Used",
        type_ = "string",
        json_path = ".status.resources.memory.usage",
        priority = 1,
        description = "The memory that it uses, and how much that is of the request and of the limit"
    ),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".status.node.pool",
        priority = 1,
        description = "The pool that its node belongs to"
    ),
    printcolumn(
        name = "IP",
        type_ = "string",
        json_path = ".status.ip",
        priority = 1,
        description = "Its address"
    ),
    printcolumn(
        name = "Services",
        type_ = "string",
        json_path = ".status.services[*]",
        priority = 1,
        description = "The Services that send requests to it"
    ),
    printcolumn(
        name = "Budgets",
        type_ = "string",
        json_path = ".status.budgets[*].name",
        priority = 1,
        description = "The PodDisruptionBudgets that cover it, and how many of their Pods may be evicted now"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.why.code",
        priority = 1,
        description = "Why it does not run well, and for how long"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FarmPodSpec {
    /// The name of the Pod, which is in the same namespace.
    pub pod: String,
    /// The number of containers, without init containers.
    pub containers: i64,
}

/// The observed state of a Pod, joined with its related objects.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FarmPodStatus {
    /// The state, same as in `kubectl get pods`: `Running`, or the reason why not, for example `CrashLoopBackOff`,
    /// `Init:1/2`, `ImagePullBackOff` or `Terminating`.
    pub state: String,
    /// The phase: Pending, Running, Succeeded, Failed or Unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The number of ready containers, for example `1/2`. Sidecars count.
    pub ready: String,
    /// The number of restarts of all containers together.
    pub restarts: i64,
    /// The time at which the last restarted container had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restart_time: Option<Time>,
    /// The last end of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<LastEnd>,
    /// The cause why the Pod does not run well. Not set if it runs well or has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// The top-level workload of the Pod: the Deployment behind the ReplicaSet, the CronJob behind the Job, and the
    /// owners behind those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// All owners, nearest first, for example `ReplicaSet/web-1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// The release that installed the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// The node that the Pod runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeFacts>,
    /// Requests and limits, summed with the rules of the scheduler, and usage.
    #[serde(default)]
    pub resources: Resources,
    /// The images of the containers, init containers first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The Services that send requests to the Pod once it is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// The PersistentVolumeClaims that the Pod mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    /// The PodDisruptionBudgets that cover the Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// The number of Pods of the budget that may be evicted now; 0 if several budgets cover the Pod. Not set if no
    /// budget prevents the eviction: no budget covers the Pod, the Pod has ended, has not started or is being deleted,
    /// or it is not ready and its budget allows the eviction of such Pods. A change from or to 0 is published after 15
    /// seconds, other changes after five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<i64>,
    /// Possible improvements, as codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The quality of service class: Guaranteed, Burstable or BestEffort. BestEffort Pods are evicted first when memory
    /// is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos_class: Option<String>,
    /// The priority for the scheduler: Pods with a higher priority are scheduled first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The name of the PriorityClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// The service account whose permissions the Pod has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// The IP address of the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// Looks up owners of one kind. Only their metadata is read.
type Above<K> = Lookup<OwnerView<K>>;
/// The owners that most Pods have.
type Usual = (Above<ReplicaSet>, Above<Job>, Above<Deployment>, Above<CronJob>);
/// The owners of Pods, of any kind.
type Owners = (Usual, MetadataLookup<AnyOwnerView>);
/// The measured usage of Pods.
type Metrics = Lookup<PodMetricsView, Polled>;
/// The watch options of an API that a cluster may lack, for example a test server.
pub struct IfServed;

impl LookupOptions for IfServed {
    const OPTIONS: SourceOptions = SourceOptions::ALL.if_served();
}

/// The PodDisruptionBudgets of Pods, and the claims that Pods mount.
type Held = (Budgets, Lookup<ClaimedView, IfServed>);
/// The warning Events about Pods.
type Warnings = Lookup<EventView, WarningsOfPods>;

impl Computed for FarmPod {
    type Source = PodView;
    type Related = (Owners, Lookup<NodeView>, Lookup<ServiceView>, Warnings, Metrics, Held);

    fn compute(pod: &PodView, related: &Self::Related) -> Option<Self> {
        let (owners, nodes, services, events, metrics, (budgets, claims)) = related;
        let name = pod.metadata.name.as_deref()?;
        let containers = i64::try_from(pod.spec.containers.len()).ok()?;
        let spec = FarmPodSpec { pod: name.to_owned(), containers };
        let mut farm_pod = Self::new(&format!("{PREFIX}{name}"), spec);
        farm_pod.metadata.labels = pod.metadata.labels.map();
        let namespace = pod.metadata.namespace.as_deref();
        let chain = Chain::follow(&pod.metadata, |owner| look(owners, namespace, owner));
        let node_name = given(pod.spec.node_name.as_ref());
        let node = node_name.and_then(|name| nodes.get(None, name));
        let node = node.as_deref();
        let budgets = Covering::of(&pod.metadata.labels, namespace, budgets);
        let summary = Summary::of(pod);
        let mut resources = resources::resources(pod);
        if let Some(metrics) = metrics.get(namespace, name) {
            usage::add(&mut resources, &metrics);
            resources::drop_partial_limits(pod, &mut resources);
        }
        farm_pod.status = Some(FarmPodStatus {
            ready: summary.readiness(),
            state: summary.state,
            phase: owned(pod.status.phase.as_ref()),
            restarts: summary.restarts.count,
            last_restart_time: summary.restarts.last,
            last_end: restarts::last_end(pod),
            why: why::why(pod, node).map(|why| {
                let was_killed = why::was_killed(pod, why.container.as_deref());
                events::told(why, was_killed, &warnings(pod, events))
            }),
            owner: chain.top().cloned(),
            owners: chain.texts(),
            release: release::release(std::iter::once(&pod.metadata).chain(chain.metadata())),
            node: node_name.map(|name| node::facts(name, node)),
            resources,
            images: images::images(pod),
            services: selecting(pod, services),
            claims: mounted(pod, namespace, claims),
            disruptions_allowed: budgets.allowed(pod),
            budgets: budgets.shown(),
            findings: findings::findings(pod),
            qos_class: owned(pod.status.qos_class.as_ref()),
            priority: pod.spec.priority,
            priority_class: owned(pod.spec.priority_class_name.as_ref()),
            service_account: owned(pod.spec.service_account_name.as_ref()),
            ip: pod.status.pod_ip.text(),
        });
        Some(farm_pod)
    }

    fn is_worth_publishing(shown: &Self, computed: &Self) -> bool {
        let (Some(shown), Some(computed)) = (&shown.status, &computed.status) else { return true };
        usage::has_moved(&shown.resources, &computed.resources)
            || budgets::has_moved(shown, computed)
    }

    fn source_name(name: &str) -> Option<String> {
        name.strip_prefix(PREFIX).filter(|name| !name.is_empty()).map(str::to_owned)
    }

    fn printer_columns() -> PrinterColumns<Self> {
        cells::printer_columns()
    }

    fn field_permissions() -> FieldPermissions {
        field_permissions::field_permissions()
    }
}

/// Looks up the object that a reference to an owner names.
fn look(
    ((sets, jobs, deployments, cron_jobs), others): &Owners,
    namespace: Option<&str>,
    owner: &OwnerLink,
) -> Option<Arc<dyn Owned>> {
    let (api_version, kind, name) = (&*owner.api_version, &*owner.kind, &*owner.name);
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, kind) {
        ("apps", "ReplicaSet") => sets.get(namespace, name).map(|found| found as Arc<dyn Owned>),
        ("apps", "Deployment") => {
            deployments.get(namespace, name).map(|found| found as Arc<dyn Owned>)
        }
        ("batch", "Job") => jobs.get(namespace, name).map(|found| found as Arc<dyn Owned>),
        ("batch", "CronJob") => cron_jobs.get(namespace, name).map(|found| found as Arc<dyn Owned>),
        // A mirror Pod belongs to its Node. The Node's metadata adds nothing.
        ("", "Node") => None,
        _ => {
            let found = others.get(api_version, kind, namespace, name);
            found.map(|found| found as Arc<dyn Owned>)
        }
    }
}

/// Returns the warning Events about a Pod. Called only for a Pod in trouble.
fn warnings(pod: &PodView, events: &Warnings) -> Vec<Arc<EventView>> {
    let namespace = pod.metadata.namespace.as_deref();
    let uid = events::uid(pod);
    uid.map(|uid| events.find_by(events::pod_uid, namespace, &uid)).unwrap_or_default()
}

/// Returns the names of the Services that select a Pod.
fn selecting(pod: &PodView, services: &Lookup<ServiceView>) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref();
    let Some(labels) = pod.metadata.labels.map() else { return Vec::new() };
    let found = services.find_selecting(services::selector, namespace, &labels);
    found.iter().filter_map(|service| owned(service.metadata.name.as_ref())).collect()
}

/// Returns the claims that a Pod mounts.
fn mounted(
    pod: &PodView,
    namespace: Option<&str>,
    claims: &Lookup<ClaimedView, IfServed>,
) -> Vec<Claim> {
    let names = claims::names(pod, pod.metadata.name.as_deref().unwrap_or_default());
    let claim = |name: String| {
        let found = claims.get(namespace, &name);
        Claim::of(name, found.as_deref())
    };
    names.into_iter().map(claim).collect()
}

#[cfg(test)]
mod tests;
