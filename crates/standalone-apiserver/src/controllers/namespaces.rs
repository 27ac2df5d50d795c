//! Empties namespaces that are being deleted, then removes their finalizer, same as the namespace controller of a
//! cluster.
//!
//! Not a `kube::runtime::Controller`, because the pause before the next attempt depends on the result of the last one,
//! which would have to be stored separately for each namespace.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::content_deletion::{ContentDeletion, ObjectMeta, resource};

/// The pause before a failure is retried, and before a namespace whose objects have finalizers is checked again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The longest pause between two attempts, while the number of objects stays the same.
const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(2);
/// The finalizer in the spec of a namespace, which this controller removes.
pub(crate) const FINALIZER: &str = "kubernetes";
/// The shortest time for which a deleted namespace remains. Tests that finalize a namespace themselves, because they
/// expect no controllers, read it once more before.
const STAYS_AT_LEAST: Duration = Duration::from_millis(100);

/// Runs the controller.
pub(crate) async fn run(client: Client, kinds: RuntimeKinds) {
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let changes = watcher(namespaces, watcher::Config::default()).default_backoff();
    let mut changes = changes.applied_objects().boxed();
    let mut ending: HashSet<String> = HashSet::new();
    let mut emptying = JoinSet::new();
    while let Some(change) = changes.next().await {
        while let Some(ended) = emptying.try_join_next() {
            if let Ok(uid) = ended {
                ending.remove::<String>(&uid);
            }
        }
        let Ok(namespace) = change else { continue };
        let uid = namespace.uid().unwrap_or_default();
        // Each namespace has its own task, so that they do not wait for each other.
        if namespace.metadata.deletion_timestamp.is_some() && ending.insert(uid.clone()) {
            let (client, kinds, name) = (client.clone(), kinds.clone(), namespace.name_any());
            emptying.spawn(async move {
                finish(&client, &kinds, &name, &uid).await;
                uid
            });
        }
    }
}

/// Empties a namespace and removes its finalizer. Retries until the namespace is removed, or a new namespace has its
/// name.
async fn finish(client: &Client, kinds: &RuntimeKinds, name: &str, uid: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (mut pause, mut before) = (RETRY_AFTER, 0);
    let may_go = Instant::now() + STAYS_AT_LEAST;
    loop {
        let live = match namespaces.get_opt(name).await {
            Ok(Some(live)) => live,
            Ok(None) => return,
            Err(_) => {
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
        };
        if live.uid().as_deref() != Some(uid) || live.metadata.deletion_timestamp.is_none() {
            return;
        }
        match empty(client, kinds, name, uid).await {
            // The namespace was removed, or another one has its name.
            Ok(None) => return,
            Ok(Some(0)) if Instant::now() < may_go => {
                // Objects that were created just before the deletion are deleted next time.
                tokio::time::sleep_until(may_go).await;
                continue;
            }
            Ok(Some(0)) => {
                if let Err(error) = finalize(client, live).await {
                    tracing::debug!("namespace {name}: {error}");
                }
                pause = RETRY_AT_LEAST_EVERY.min(pause * 2);
            }
            Ok(Some(left)) => {
                tracing::debug!("namespace {name}: {left} objects have finalizers");
                pause =
                    if left == before { RETRY_AT_LEAST_EVERY.min(pause * 2) } else { RETRY_AFTER };
                before = left;
            }
            Err(error) => tracing::debug!("namespace {name}: {error}"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// Removes the finalizer of this controller. A namespace is removed with its last finalizer.
async fn finalize(client: &Client, mut live: Namespace) -> kube::Result<()> {
    let finalizers = live.spec.as_mut().and_then(|spec| spec.finalizers.as_mut());
    let Some(finalizers) = finalizers.filter(|all| all.iter().any(|one| one == FINALIZER)) else {
        return Ok(());
    };
    finalizers.retain(|one| one != FINALIZER);
    let (api, name): (Api<Namespace>, _) = (Api::all(client.clone()), live.name_any());
    api.replace_subresource("finalize", &name, &PostParams::default(), &live).await.map(drop)
}

/// Deletes all objects of a namespace. Returns the number of remaining objects, or `None` if the namespace was removed.
async fn empty(
    client: &Client,
    kinds: &RuntimeKinds,
    name: &str,
    uid: &str,
) -> kube::Result<Option<usize>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let terminating = json!({"metadata": {"uid": uid}, "status": {"phase": "Terminating"}});
    let terminating = Patch::Merge(terminating);
    namespaces.patch_status(name, &PatchParams::default(), &terminating).await?;
    let is_there = || {
        let live = namespaces.get_metadata_opt(name);
        live.map_ok(|live| live.is_some_and(|live| live.uid().as_deref() == Some(uid))).boxed()
    };
    // No kubelet runs the Pods, so they need no grace period.
    let at_once = DeleteParams::default().grace_period(0);
    let mut left = 0;
    for kind in kinds.stored_kinds().iter().filter(|kind| kind.is_namespaced) {
        let resource = resource(kind);
        let objects = ContentDeletion { client, resource: &resource, namespace: Some(name) };
        if !objects.delete(&at_once, is_there).await? {
            return Ok(None);
        }
        let mut remaining = pin!(objects.pages());
        while let Some(page) = remaining.try_next().await? {
            left += page.len();
            for object in page.iter().filter(|object| awaits_collector(object)) {
                let metadata = json!({"finalizers": null, "uid": object.uid()});
                let freed = Patch::Merge(json!({"metadata": metadata}));
                let api = objects.api(Some(name));
                api.patch(&object.name_any(), &PatchParams::default(), &freed).await?;
            }
        }
    }
    Ok(Some(left))
}

/// Whether only the finalizers of the garbage collector hold an object. There is no garbage collector here, and the
/// dependents are deleted with the namespace.
fn awaits_collector(object: &ObjectMeta) -> bool {
    const COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];
    let finalizers = object.finalizers();
    !finalizers.is_empty() && finalizers.iter().all(|one| COLLECTOR.contains(&one.as_str()))
}
