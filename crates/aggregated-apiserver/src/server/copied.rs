//! What a process copies from the deployed one before it takes its place.
//!
//! The garbage collector of a cluster asks the process that has the traffic for the
//! owners of objects, and deletes objects whose owners are missing. So a process that is
//! started for development must know the stored objects of the deployed one, by their
//! uids, before it serves requests. Where it cannot copy them it must not answer that
//! they are missing.

use std::collections::HashMap;
use std::sync::Arc;

use kube::core::GroupVersionKind;

use crate::cluster::Cluster;
use crate::kind::{Kind, Version};
use crate::object::Tree;

/// What was copied of a kind.
pub(super) struct CopiedObjects {
    /// The version in which they were read.
    pub version: Arc<Version>,
    /// The objects.
    pub trees: Vec<Tree>,
}

/// What was copied, by kind (`foos.example.com`), or why it could not be.
pub(super) type Copied = HashMap<String, Result<CopiedObjects, String>>;

/// Copies the objects of these kinds.
pub(super) async fn copy(cluster: &Cluster, kinds: &[Arc<Kind>]) -> Copied {
    let mut copied = Copied::new();
    for kind in kinds {
        let qualified = kind.qualified();
        let outcome = copy_one(cluster, kind).await;
        match &outcome {
            Ok(CopiedObjects { trees, .. }) => tracing::info!(
                "{qualified}: {} objects of the deployed server were copied; what is created here is gone when this process ends, and then what it owns is collected",
                trees.len()
            ),
            Err(why) => tracing::error!(
                "{qualified} are not served: the objects of the deployed server cannot be copied, and what they own must not be collected: {why}"
            ),
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
