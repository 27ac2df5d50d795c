//! The copy of the objects of the deployed server, for a process that takes its place.
//!
//! The garbage collector of a cluster asks the process that receives the traffic for the owners of objects, and deletes
//! objects without owners. So a process that is started for development must have the stored objects of the deployed
//! server, with their uids, before it serves requests. If the objects cannot be copied, the process must not respond
//! that they are missing.

use std::collections::HashMap;
use std::sync::Arc;

use kube::core::GroupVersionKind;

use crate::cluster::Cluster;
use crate::kind::{Kind, Version};
use crate::object::Tree;

/// The copied objects of a kind.
pub(super) struct CopiedObjects {
    /// The version in which the objects were read.
    pub version: Arc<Version>,
    /// The objects.
    pub trees: Vec<Tree>,
}

/// The copied objects by kind (`foos.example.com`), or the reason why they cannot be copied.
pub(super) type Copied = HashMap<String, Result<CopiedObjects, String>>;

/// Copies the objects of these kinds.
pub(super) async fn copy(cluster: &Cluster, kinds: &[Arc<Kind>]) -> Copied {
    let mut copied = Copied::new();
    for kind in kinds {
        let qualified = kind.qualified();
        let outcome = copy_one(cluster, kind).await;
        match &outcome {
            Ok(CopiedObjects { trees, .. }) => {
                tracing::info!(
                    kind = %qualified,
                    objects = trees.len(),
                    "copied the objects of the deployed server; objects that are created here \
                     are lost when this process ends, and their dependents are garbage \
                     collected"
                );
            }
            Err(why) => {
                tracing::error!(
                    kind = %qualified,
                    error = %why,
                    "cannot copy the objects of the deployed server; the kind is not served, so \
                     that their dependents are not garbage collected"
                );
            }
        }
        copied.insert(qualified, outcome);
    }
    copied
}

async fn copy_one(cluster: &Cluster, kind: &Kind) -> Result<CopiedObjects, String> {
    let stored = kind.version(&kind.storage.name);
    let version = stored.or_else(|| kind.versions.first()).ok_or("no version is served")?;
    let named = GroupVersionKind::gvk(&kind.group, &version.name, &kind.names.kind);
    let listed = cluster.stored_objects(&named, &kind.names.plural).await;
    let trees = listed.map_err(|error| format!("{error}: {}", error.why()))?;
    Ok(CopiedObjects { version: Arc::clone(version), trees })
}
