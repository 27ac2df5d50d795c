//! The PersistentVolumeClaims that a Pod mounts.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::amounts::Written;
use super::object_view::ObjectView;
use super::view::{PodView, RequirementsView, VolumeView, Word, owned};

/// The fields that are read of a PersistentVolumeClaim.
pub type ClaimedView = ObjectView<PersistentVolumeClaim, ClaimedSpecView, ClaimedStatusView>;

/// The spec of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimedSpecView {
    /// The StorageClass of the volume.
    pub storage_class_name: Option<Word>,
    /// The requested size of the volume.
    pub resources: RequirementsView,
}

/// The status of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimedStatusView {
    /// Pending, Bound or Lost.
    pub phase: Option<Word>,
    /// The size of the volume.
    pub capacity: Written,
}

/// A PersistentVolumeClaim that a Pod mounts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The name of the claim.
    pub name: String,
    /// Pending, Bound or Lost. Not set if the claim does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The size of the volume, or the requested size as long as there is no volume, for example `10Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The StorageClass of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

impl Claim {
    /// Describes the claim of this name; only the name is known if `claim` is `None`.
    pub fn of(name: String, claim: Option<&ClaimedView>) -> Self {
        let Some(ClaimedView { spec, status, .. }) = claim else {
            return Self { name, ..Self::default() };
        };
        let size = status.capacity.get("storage");
        let size = size.or_else(|| spec.resources.requests.get("storage"));
        Self {
            name,
            phase: owned(status.phase.as_ref()),
            size: size.map(|size| size.to_string()),
            storage_class: owned(spec.storage_class_name.as_ref()),
        }
    }
}

/// The names of the claims that a Pod mounts. The claim of an ephemeral volume is named after the Pod and the volume.
pub fn names(pod: &PodView, pod_name: &str) -> Vec<String> {
    let claim = |volume: &VolumeView| match volume {
        VolumeView::Claim(name) => Some((**name).to_owned()),
        VolumeView::Ephemeral(volume) => Some(format!("{pod_name}-{volume}")),
        VolumeView::HostPath => None,
    };
    pod.spec.volumes.iter().filter_map(claim).collect()
}
