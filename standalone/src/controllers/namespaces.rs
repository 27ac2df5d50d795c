//! Empties namespaces that are being deleted, then lets them go: what the
//! namespace controller does in a cluster.

use std::collections::HashSet;
use std::time::Duration;

use aggregated_apiserver::{KeptKind, RuntimeKinds};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often a namespace is looked at again in which something is held by
/// finalizers.
const AGAIN: Duration = Duration::from_millis(100);
/// And at most, while nothing changes.
const LATER: Duration = Duration::from_secs(2);
/// What holds a namespace until it is empty.
const FINALIZER: &str = "kubernetes";
/// How long a namespace is there after it was deleted: programs that finalize it
/// themselves, as tests do that have no controllers, look at it once more before.
const SEEN: Duration = Duration::from_millis(100);

/// Empties namespaces, for ever.
pub(crate) async fn keep(client: Client, kinds: RuntimeKinds) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let changes = watcher(namespaces, watcher::Config::default()).default_backoff();
    let mut changes = changes.applied_objects().boxed();
    let mut begun: HashSet<String> = HashSet::new();
    let mut emptying = JoinSet::new();
    while let Some(change) = changes.next().await {
        while let Some(ended) = emptying.try_join_next() {
            if let Ok(uid) = ended {
                begun.remove::<String>(&uid);
            }
        }
        let Ok(namespace) = change else { continue };
        let uid = namespace.uid().unwrap_or_default();
        // One that is held keeps no other one waiting.
        if namespace.metadata.deletion_timestamp.is_some() && begun.insert(uid.clone()) {
            let (client, kinds, name) = (client.clone(), kinds.clone(), namespace.name_any());
            emptying.spawn(async move {
                end(&client, &kinds, &name, &uid).await;
                uid
            });
        }
    }
}

/// Empties a namespace until it can go, or is gone, or is another one.
async fn end(client: &Client, kinds: &RuntimeKinds, name: &str, uid: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (mut pause, mut before) = (AGAIN, 0);
    let seen = Instant::now() + SEEN;
    loop {
        let live = match namespaces.get_opt(name).await {
            Ok(Some(live)) => live,
            Ok(None) => return,
            Err(_) => {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        if live.uid().as_deref() != Some(uid) || live.metadata.deletion_timestamp.is_none() {
            return;
        }
        match empty(client, kinds, name, uid).await {
            Ok(0) if Instant::now() < seen => {
                // What was let in before it was marked is met once more.
                tokio::time::sleep_until(seen).await;
                continue;
            }
            Ok(0) => {
                if let Err(error) = finalize(client, live).await {
                    tracing::debug!("namespace {name}: {error}");
                }
                pause = LATER.min(pause * 2);
            }
            Ok(left) => {
                tracing::debug!("namespace {name}: {left} objects are held");
                pause = if left == before { LATER.min(pause * 2) } else { AGAIN };
                before = left;
            }
            Err(error) => tracing::debug!("namespace {name}: {error}"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// Takes our finalizer from an empty namespace. It goes with the last one.
async fn finalize(client: &Client, mut live: Namespace) -> kube::Result<()> {
    let held = live.spec.as_mut().and_then(|spec| spec.finalizers.as_mut());
    let Some(held) = held.filter(|held| held.iter().any(|one| one == FINALIZER)) else {
        return Ok(());
    };
    held.retain(|one| one != FINALIZER);
    let (api, name): (Api<Namespace>, _) = (Api::all(client.clone()), live.name_any());
    api.replace_subresource("finalize", &name, &PostParams::default(), &live).await.map(drop)
}

/// Removes everything in a namespace; answers with how much is left.
async fn empty(
    client: &Client,
    kinds: &RuntimeKinds,
    name: &str,
    uid: &str,
) -> kube::Result<usize> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let terminating = json!({"metadata": {"uid": uid}, "status": {"phase": "Terminating"}});
    let terminating = Patch::Merge(terminating);
    namespaces.patch_status(name, &PatchParams::default(), &terminating).await?;
    let mut left = 0;
    for kept in kinds.kept().iter().filter(|kept| kept.is_namespaced) {
        let objects: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), name, &resource(kept));
        let all = ListParams::default();
        // Nothing runs, so nothing has to be waited for.
        objects.delete_collection(&DeleteParams::default().grace_period(0), &all).await?;
        let held = objects.list(&all).await?.items;
        left += held.len();
        for object in held.iter().filter(|object| awaits_collector(object)) {
            let metadata = json!({"finalizers": null, "uid": object.uid()});
            let freed = Patch::Merge(json!({"metadata": metadata}));
            objects.patch(&object.name_any(), &PatchParams::default(), &freed).await?;
        }
    }
    Ok(left)
}

/// Whether an object waits for the garbage collector alone: there is none, and
/// what it would look after goes too.
fn awaits_collector(object: &DynamicObject) -> bool {
    const COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];
    let finalizers = object.finalizers();
    !finalizers.is_empty() && finalizers.iter().all(|one| COLLECTOR.contains(&one.as_str()))
}

fn resource(kept: &KeptKind) -> ApiResource {
    let kind = GroupVersionKind::gvk(&kept.group, &kept.version, &kept.kind);
    ApiResource::from_gvk_with_plural(&kind, &kept.plural)
}
