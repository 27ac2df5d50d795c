//! Updates the `rules` of aggregated ClusterRoles with the rules of the roles that they select.
//!
//! Not a `kube::runtime::Controller`, because a change of one role may affect all others.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Client;
use kube::api::{Api, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

use crate::authorizer::Authorizer;
use crate::authorizer::bootstrap_policy::AGGREGATOR;

/// The pause before a failed write is retried: it doubles up to the second value.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));

/// Runs the controller.
pub(crate) async fn run(client: Client, authorizer: Arc<Authorizer>) {
    let all: Api<PartialObjectMeta<ClusterRole>> = Api::all(client.clone());
    let changes = watcher(all, watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes.ready_chunks(CHANGES));
    let mut pause = RETRY_AFTER.0;
    loop {
        let is_done = update(&client, &authorizer).await;
        pause = if is_done { RETRY_AFTER.0 } else { RETRY_AFTER.1.min(pause * 2) };
        tokio::select! {
            changed = changes.next() => if changed.is_none() { return },
            () = tokio::time::sleep(pause), if !is_done => {}
        }
    }
}

/// Maximum number of changes that are handled together.
const CHANGES: usize = 1_000;

/// Updates the roles whose rules have changed. Returns false if one of them could not be written.
async fn update(client: &Client, authorizer: &Authorizer) -> bool {
    let mut is_done = true;
    for (name, version, rules) in authorizer.stale_aggregations() {
        if let Err(error) = write(client, &name, version, rules).await {
            tracing::debug!("cannot update rules of ClusterRole {name:?}: {error}");
            is_done = false;
        }
    }
    is_done
}

async fn write(
    client: &Client,
    name: &str,
    version: u64,
    rules: Vec<PolicyRule>,
) -> kube::Result<()> {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let manager = Some(AGGREGATOR.to_owned());
    let written = PatchParams { field_manager: manager, ..PatchParams::default() };
    let metadata = json!({"resourceVersion": version.to_string()});
    let patch = Patch::Merge(json!({"metadata": metadata, "rules": rules}));
    match roles.patch_metadata(name, &written, &patch).await {
        Ok(_) => Ok(()),
        // The role has changed or was deleted; that change is handled next.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(error),
    }
}
