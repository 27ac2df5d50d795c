//! The node that a Pod runs on: its location, its machine type and its condition.

use k8s_openapi::api::core::v1::Node;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::amounts::Written;
use super::object_view::ObjectView;
use super::view::{ConditionView, Conditions, Word};

/// The fields that are read of a Node.
pub type NodeView = ObjectView<Node, NodeSpecView, NodeStatusView>;

/// The spec of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpecView {
    /// Whether no further Pods are scheduled on the node.
    pub unschedulable: bool,
}

/// The status of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatusView {
    /// The conditions of the node.
    pub conditions: Conditions,
    /// The resources that Pods can use.
    pub allocatable: Written,
    /// The software versions of the node.
    pub node_info: NodeInfoView,
}

/// The software versions of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfoView {
    /// The version of the kubelet.
    pub kubelet_version: Option<Word>,
    /// The operating system.
    pub os_image: Option<Word>,
    /// The version of the kernel.
    pub kernel_version: Option<Word>,
    /// The name and version of the container runtime.
    pub container_runtime_version: Option<Word>,
}

/// The node that a Pod runs on, from its labels and conditions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// The name of the node.
    pub name: String,
    /// The zone, for example `eu-1a`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The region, for example `eu-1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The machine type of the cloud, for example `m5.large`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The pool or group of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The processor architecture, for example `amd64` or `arm64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The operating system, for example `linux`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
    /// Whether the cloud can reclaim the node at any time. Not set if the node is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot: Option<bool>,
    /// Whether the node is ready. Not set if the node is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether the node accepts no further Pods. Not set if the node is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<bool>,
    /// The pressure conditions that are true: `MemoryPressure`, `DiskPressure`, `PIDPressure` or `NetworkUnavailable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<String>,
}

const ZONE: &[&str] = &["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const REGION: &[&str] =
    &["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];
const INSTANCE_TYPE: &[&str] =
    &["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];
const ARCHITECTURE: &[&str] = &["kubernetes.io/arch", "beta.kubernetes.io/arch"];
const OPERATING_SYSTEM: &[&str] = &["kubernetes.io/os", "beta.kubernetes.io/os"];

/// The labels that contain the pool of a node; every cloud and every autoscaler has its own. The label of a tool that
/// manages nodes of several pools (Karpenter) precedes those of the clouds.
const POOL: &[&str] = &[
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "doks.digitalocean.com/node-pool",
    "k8s.scaleway.com/pool-name",
    "lke.linode.com/pool-id",
    "node-pool.ovh.net/name",
    "nodepool",
    "kops.k8s.io/instancegroup",
];

/// Labels of nodes that the cloud can reclaim, with the value that means so.
const SPOT: &[(&str, &str)] = &[
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
    ("node.kubernetes.io/lifecycle", "spot"),
];

const PRESSURE: &[&str] = &["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

impl NodeView {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<ConditionView<'_>> {
        self.status.conditions.get(kind)
    }

    fn label(&self, keys: &[&str]) -> Option<String> {
        let mut values = keys.iter().filter_map(|key| self.metadata.labels.get(key));
        values.find(|value| !value.is_empty()).map(str::to_owned)
    }

    fn is_spot(&self) -> bool {
        SPOT.iter().any(|(key, value)| self.label(&[key]).as_deref() == Some(value))
    }
}

/// Describes the node of this name; only the name is known if `node` is `None`.
pub fn facts(name: &str, node: Option<&NodeView>) -> NodeFacts {
    let name = name.to_owned();
    let Some(node) = node else { return NodeFacts { name, ..NodeFacts::default() } };
    let is_true = |kind: &str| node.condition(kind).is_some_and(ConditionView::is_true);
    let pressure = PRESSURE.iter().filter(|kind| is_true(kind));
    NodeFacts {
        name,
        zone: node.label(ZONE),
        region: node.label(REGION),
        instance_type: node.label(INSTANCE_TYPE),
        pool: node.label(POOL),
        architecture: node.label(ARCHITECTURE),
        operating_system: node.label(OPERATING_SYSTEM),
        spot: Some(node.is_spot()),
        ready: Some(is_true("Ready")),
        cordoned: Some(node.spec.unschedulable),
        pressure: pressure.map(|kind| (*kind).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(node: Value) -> NodeFacts {
        facts("meadow", Some(&serde_json::from_value(node).unwrap()))
    }

    fn of_labels(labels: Value) -> NodeFacts {
        of(json!({"metadata": {"name": "meadow", "labels": labels}}))
    }

    #[test]
    fn node_facts_come_from_labels_spec_and_conditions() {
        let facts = of(json!({
            "metadata": {"name": "meadow", "labels": {
                "topology.kubernetes.io/zone": "eu-1a", "topology.kubernetes.io/region": "eu-1",
                "node.kubernetes.io/instance-type": "m5.large", "kubernetes.io/arch": "arm64",
                "kubernetes.io/os": "linux", "karpenter.sh/nodepool": "general",
                "karpenter.sh/capacity-type": "spot",
            }},
            "spec": {"unschedulable": true},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"},
                {"type": "MemoryPressure", "status": "False"},
            ]},
        }));
        let expected = json!({
            "name": "meadow", "zone": "eu-1a", "region": "eu-1", "instanceType": "m5.large",
            "pool": "general", "architecture": "arm64", "operatingSystem": "linux",
            "spot": true, "ready": true, "cordoned": true, "pressure": ["DiskPressure"],
        });
        assert_eq!(serde_json::to_value(facts).unwrap(), expected);
    }

    #[test]
    fn older_labels_are_understood() {
        let facts = of_labels(json!({
            "failure-domain.beta.kubernetes.io/zone": "a", "topology.kubernetes.io/zone": "",
            "beta.kubernetes.io/instance-type": "small",
        }));
        assert_eq!(
            (facts.zone.as_deref(), facts.instance_type.as_deref()),
            (Some("a"), Some("small"))
        );
    }

    #[test]
    fn clouds_have_pools_and_spot_nodes() {
        for (labels, pool, spot) in [
            (
                json!({"eks.amazonaws.com/nodegroup": "a", "eks.amazonaws.com/capacityType": "SPOT"}),
                Some("a"),
                true,
            ),
            (json!({"eks.amazonaws.com/capacityType": "ON_DEMAND"}), None, false),
            (
                json!({"cloud.google.com/gke-nodepool": "b", "cloud.google.com/gke-spot": "true"}),
                Some("b"),
                true,
            ),
            (
                json!({"kubernetes.azure.com/agentpool": "c", "kubernetes.azure.com/scalesetpriority": "spot"}),
                Some("c"),
                true,
            ),
            (
                json!({"karpenter.sh/nodepool": "d", "karpenter.sh/capacity-type": "on-demand", "alpha.eksctl.io/nodegroup-name": "x"}),
                Some("d"),
                false,
            ),
        ] {
            let facts = of_labels(labels.clone());
            assert_eq!((facts.pool.as_deref(), facts.spot), (pool, Some(spot)), "{labels}");
        }
    }

    #[test]
    fn facts_of_an_unknown_node_contain_only_the_name() {
        let expected = json!({"name": "gone"});
        assert_eq!(serde_json::to_value(facts("gone", None)).unwrap(), expected);
        assert_eq!(of(json!({"metadata": {"name": "meadow"}})).ready, Some(false));
    }
}
