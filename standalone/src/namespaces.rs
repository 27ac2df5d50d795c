//! Empties namespaces that are being deleted, then lets them go: what the
//! namespace controller does in a cluster.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Discovery, ResourceExt};
use serde_json::json;

use crate::built_in::FINALIZER;

/// How often a namespace is looked at again in which something is held by
/// finalizers.
const AGAIN: Duration = Duration::from_millis(100);

/// Empties namespaces, for ever.
pub(crate) async fn keep(client: Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let changes = watcher(namespaces, watcher::Config::default()).default_backoff();
    let changes = changes.applied_objects();
    // One after the other: there are few.
    let emptied = changes.for_each(|change| async {
        let Ok(namespace) = change else { return };
        if namespace.metadata.deletion_timestamp.is_none() {
            return;
        }
        while let Err(error) = empty(&client, &namespace).await {
            tracing::debug!("namespace {}: {error}", namespace.name_any());
            tokio::time::sleep(AGAIN).await;
            let api: Api<Namespace> = Api::all(client.clone());
            if let Ok(None) = api.get_opt(&namespace.name_any()).await {
                return;
            }
        }
    });
    emptied.await;
}

/// Removes everything in a namespace, and what holds it.
async fn empty(client: &Client, namespace: &Namespace) -> Result<(), String> {
    let name = namespace.name_any();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let failed = |error: kube::Error| error.to_string();
    let parameters = PatchParams::default();
    let terminating = Patch::Merge(json!({"status": {"phase": "Terminating"}}));
    namespaces.patch_status(&name, &parameters, &terminating).await.map_err(failed)?;
    let discovered = Discovery::new(client.clone()).run().await.map_err(failed)?;
    let mut left = 0;
    for group in discovered.groups() {
        for (resource, able) in group.recommended_resources() {
            let is_kept = able.supports_operation("deletecollection");
            if !is_kept || able.scope != kube::discovery::Scope::Namespaced {
                continue;
            }
            let objects: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &name, &resource);
            let all = ListParams::default();
            objects.delete_collection(&DeleteParams::default(), &all).await.map_err(failed)?;
            left += objects.list(&all).await.map_err(failed)?.items.len();
        }
    }
    if left > 0 {
        return Err(format!("{left} objects are held by finalizers"));
    }
    let finalizers = namespace.finalizers().iter().filter(|one| *one != FINALIZER);
    let finalizers: Vec<&String> = finalizers.collect();
    let released = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    match namespaces.patch(&name, &parameters, &released).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
