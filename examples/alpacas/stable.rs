//! Stables are computed: one for each Node, with the Pods that run on it.

use aggregated_apiserver::{Computed, FieldPermissions, Lookup};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PartialObjectMeta;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A Node and its Pods.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[kube(group = "farm.example.com", version = "v1", kind = "Stable")]
#[kube(printcolumn(name = "Pods", type_ = "string", json_path = ".spec.pods"))]
pub struct StableSpec {
    /// The Pods that are assigned to the Node, as `namespace/name`.
    #[serde(default)]
    pub pods: Vec<String>,
}

/// The Node of a Pod: the index of the lookup.
fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

impl Computed for Stable {
    /// A stable needs only the name of a Node, so only metadata is read.
    type Source = PartialObjectMeta<Node>;
    type Related = Lookup<Pod>;

    fn compute(source: &Self::Source, pods: &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let metadata = pods.find_by(node, None, name).into_iter().map(|pod| pod.metadata.clone());
        let path = metadata.map(|pod| Some(format!("{}/{}", pod.namespace?, pod.name?)));
        Some(Self::new(name, StableSpec { pods: path.flatten().collect() }))
    }

    /// Users without permission to read Pods see stables without `spec.pods`.
    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new().protects::<Pod>(["spec.pods"])
    }
}
