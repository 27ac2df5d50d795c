//! FarmNode: a Node, with the sums over its Pods.

mod capacity;

use aggregated_apiserver::{Computed, FieldPermissions, Lookup, PrinterColumns};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use capacity::Capacity;
use capacity::Requested;

use crate::farm_pod::node::{NodeView, facts};
use crate::farm_pod::view::{ConditionView, PodView, Text, given, owned};
use crate::farm_pod::{NodeFacts, NodeMetricsView, PREFIX, Polled, resources};

/// The identity of a farm node: its Node.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "farm.example.com",
    version = "v1alpha",
    kind = "FarmNode",
    status = "FarmNodeStatus",
    shortname = "fn",
    category = "farm",
    selectable = ".spec.node",
    selectable = ".status.cpu.percentRequested",
    selectable = ".status.cpu.percentUsed",
    selectable = ".status.memory.percentRequested",
    selectable = ".status.memory.percentUsed",
    selectable = ".status.node.architecture",
    selectable = ".status.node.cordoned",
    selectable = ".status.node.instanceType",
    selectable = ".status.node.operatingSystem",
    selectable = ".status.node.pool",
    selectable = ".status.node.ready",
    selectable = ".status.node.region",
    selectable = ".status.node.spot",
    selectable = ".status.node.zone",
    selectable = ".status.pods",
    selectable = ".status.state",
    selectable = ".status.versions.containerRuntime",
    selectable = ".status.versions.kernel",
    selectable = ".status.versions.kubelet",
    selectable = ".status.versions.operatingSystem",
    selectable = ".status.why.code",
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.state",
        description = "How it is, as `kubectl get nodes` says it"
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".status.node.zone",
        description = "The zone that it is in"
    ),
    printcolumn(
        name = "Pods",
        type_ = "string",
        json_path = ".status.pods",
        description = "How many Pods are on it, and how many may be"
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.cpu.allocatable",
        description = "The processors that Pods may take, and how much of that is requested and used"
    ),
    printcolumn(
        name = "Mem",
        type_ = "string",
        json_path = ".status.memory.allocatable",
        description = "The memory that Pods may take, and how much of that is requested and used"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "How long ago it was created"
    ),
    printcolumn(
        name = "Instance",
        type_ = "string",
        json_path = ".status.node.instanceType",
        priority = 1,
        description = "What the cloud calls a machine like it"
    ),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".status.node.pool",
        priority = 1,
        description = "The pool that it belongs to"
    ),
    printcolumn(
        name = "Arch",
        type_ = "string",
        json_path = ".status.node.architecture",
        priority = 1,
        description = "Its processors"
    ),
    printcolumn(
        name = "Spot",
        type_ = "boolean",
        json_path = ".status.node.spot",
        priority = 1,
        description = "Whether the cloud may take it back at any time"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.versions.kubelet",
        priority = 1,
        description = "The version of its kubelet"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.why.message",
        priority = 1,
        description = "Why it is not ready"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FarmNodeSpec {
    /// The name of the Node.
    pub node: String,
}

/// The observed state of a Node, and the sums over its Pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FarmNodeStatus {
    /// The state, same as in `kubectl get nodes`: `Ready`, `NotReady` or `Unknown`, with `,SchedulingDisabled` if the
    /// node accepts no further Pods.
    pub state: String,
    /// The cause why the node is not ready. Not set if it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<NotReady>,
    /// The location and the machine type of the node.
    pub node: NodeFacts,
    /// The number of Pods on the node that have not ended.
    pub pods: i64,
    /// The maximum number of Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_pods: Option<String>,
    /// Processors.
    pub cpu: Capacity,
    /// Memory in bytes.
    pub memory: Capacity,
    /// The software versions of the node.
    pub versions: Versions,
}

/// The cause why a node is not ready.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotReady {
    /// The cause in one word, for example `NodeStatusUnknown`.
    pub code: String,
    /// The message.
    pub message: String,
    /// The time since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The software versions of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// The version of the kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<String>,
    /// The operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
    /// The version of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The name and version of the container runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<String>,
}

impl Computed for FarmNode {
    type Source = NodeView;
    type Related = (Lookup<PodView>, Lookup<NodeMetricsView, Polled>);

    fn compute(node: &NodeView, (pods, metrics): &Self::Related) -> Option<Self> {
        let name = node.metadata.name.as_deref()?;
        let mut farm_node =
            Self::new(&format!("{PREFIX}{name}"), FarmNodeSpec { node: name.to_owned() });
        farm_node.metadata.labels = node.metadata.labels.map();
        let requested = pods.sum_by(node_name, Requested::of, None, name);
        let used = metrics.get(None, name);
        let room = |resource: &str, requested| {
            let used = used.as_ref().and_then(|metrics| metrics.usage.get(resource));
            Capacity::of(resource, &node.status.allocatable, requested, used)
        };
        let info = &node.status.node_info;
        farm_node.status = Some(FarmNodeStatus {
            state: state(node),
            why: not_ready(node),
            node: facts(name, Some(node)),
            pods: requested.pods,
            most_pods: node.status.allocatable.get("pods").map(|most| most.to_string()),
            cpu: room("cpu", requested.cpu()),
            memory: room("memory", requested.memory()),
            versions: Versions {
                kubelet: owned(info.kubelet_version.as_ref()),
                operating_system: owned(info.os_image.as_ref()),
                kernel: owned(info.kernel_version.as_ref()),
                container_runtime: owned(info.container_runtime_version.as_ref()),
            },
        });
        Some(farm_node)
    }

    fn is_worth_publishing(shown: &Self, computed: &Self) -> bool {
        let (Some(shown), Some(computed)) = (&shown.status, &computed.status) else { return true };
        computed.cpu.has_moved(&shown.cpu) || computed.memory.has_moved(&shown.memory)
    }

    fn source_name(name: &str) -> Option<String> {
        name.strip_prefix(PREFIX).filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// The field permissions of farm nodes. Permission to read Nodes is enough to see the number of Pods and the sum of
    /// their requests, whatever the names of the Pods. The usage is visible only with permission to read the metrics of
    /// nodes.
    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new()
            .shows::<PodView>(["status.pods", "status.cpu", "status.memory"])
            .protects::<NodeMetricsView>([
            "status.cpu.percentUsed",
            "status.cpu.used",
            "status.memory.percentUsed",
            "status.memory.used",
        ])
    }

    fn printer_columns() -> PrinterColumns<Self> {
        let of = |cell: fn(&FarmNodeStatus) -> Option<String>| {
            move |node: &Self, _| node.status.as_ref().and_then(cell)
        };
        PrinterColumns::new()
            .cell(
                "Pods",
                of(|status| {
                    Some(match &status.most_pods {
                        Some(most) => format!("{}/{most}", status.pods),
                        None => status.pods.to_string(),
                    })
                }),
            )
            .cell("CPU", of(|status| status.cpu.cell(resources::cpu_cell)))
            .cell("Mem", of(|status| status.memory.cell(resources::memory_cell)))
    }
}

/// Indexes Pods by their node.
fn node_name(pod: &PodView) -> Option<Text> {
    pod.spec.node_name.as_deref().map(Text::from)
}

/// The state, same as in `kubectl get nodes`.
fn state(node: &NodeView) -> String {
    let ready = match node.condition("Ready") {
        Some(ready) if ready.is_true() => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let disabled = if node.spec.unschedulable { ",SchedulingDisabled" } else { "" };
    format!("{ready}{disabled}")
}

fn not_ready(node: &NodeView) -> Option<NotReady> {
    let ready = node.condition("Ready").filter(|ready| !ready.is_true())?;
    let ConditionView { reason, message, last_transition_time, .. } = ready;
    Some(NotReady {
        code: given(reason).unwrap_or("NotReady").to_owned(),
        message: given(message).unwrap_or_default().to_owned(),
        since: last_transition_time.time(),
    })
}

#[cfg(test)]
mod tests;
