//! Removes the finalizers of PersistentVolumeClaims and PersistentVolumes that are being deleted and
//! are not used any more: a claim by no Pod on a node, a volume by no claim.
//!
//! Not a `kube::runtime::Controller`, because the deletion of any Pod can release claims, and only
//! Pods of namespaces with claims that wait are read.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use crate::built_in::storage_protection::{CLAIM_FINALIZER, VOLUME_FINALIZER};

/// The pause between two attempts to release what waits.
const RETRY: Duration = Duration::from_secs(1);

/// Objects that wait for their finalizer to be removed, by their uids.
type Waiting<K> = BTreeMap<String, K>;

type Claim = PartialObjectMeta<PersistentVolumeClaim>;

/// Runs the controller.
pub(crate) async fn run(client: Client) {
    let claims: Api<Claim> = Api::all(client.clone());
    let mut claims = watcher(claims, watcher::Config::default()).default_backoff().boxed();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut volumes = watcher(volumes, watcher::Config::default()).default_backoff().boxed();
    let pods: Api<PartialObjectMeta<Pod>> = Api::all(client.clone());
    let mut pods = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    let (mut waiting_claims, mut waiting_volumes) = (Waiting::new(), Waiting::new());
    let mut retry = tokio::time::interval(RETRY);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_due = tokio::select! {
            Some(change) = claims.next() => observe(&mut waiting_claims, change, CLAIM_FINALIZER),
            Some(change) = volumes.next() => {
                observe(&mut waiting_volumes, change, VOLUME_FINALIZER)
            }
            Some(change) = pods.next() => matches!(change, Ok(watcher::Event::Delete(_))),
            _ = retry.tick() => true,
            else => return,
        };
        if is_due {
            release_claims(&client, &mut waiting_claims).await;
            release_volumes(&client, &mut waiting_volumes).await;
        }
    }
}

/// Notes an object that waits, and forgets one that does not. Returns whether one waits.
fn observe<K: ResourceExt>(
    waiting: &mut Waiting<K>,
    change: Result<watcher::Event<K>, watcher::Error>,
    finalizer: &str,
) -> bool {
    match change {
        Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
            let uid = object.uid().unwrap_or_default();
            let waits = object.meta().deletion_timestamp.is_some()
                && object.finalizers().iter().any(|one| one == finalizer);
            match waits {
                true => drop(waiting.insert(uid, object)),
                false => drop(waiting.remove(&uid)),
            }
            return waits;
        }
        Ok(watcher::Event::Delete(object)) => {
            waiting.remove(&object.uid().unwrap_or_default());
        }
        Ok(watcher::Event::Init) => waiting.clear(),
        Ok(watcher::Event::InitDone) | Err(_) => {}
    }
    false
}

/// Releases the claims that no Pod uses. The next attempt tries again what fails.
async fn release_claims(client: &Client, waiting: &mut Waiting<Claim>) {
    let mut pods: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    let mut released = Vec::new();
    for (uid, claim) in waiting.iter() {
        let namespace = claim.namespace().unwrap_or_default();
        if !pods.contains_key(&namespace) {
            let of_namespace: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            match of_namespace.list(&ListParams::default()).await {
                Ok(found) => drop(pods.insert(namespace.clone(), found.items)),
                Err(error) => {
                    tracing::debug!("pods of {namespace}: {error}");
                    continue;
                }
            }
        }
        let is_used = pods[&namespace].iter().any(|pod| uses(pod, &claim.name_any()));
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        if !is_used && release(&api, claim, CLAIM_FINALIZER).await {
            released.push(uid.clone());
        }
    }
    waiting.retain(|uid, _| !released.contains(uid));
}

/// Releases the volumes that are bound to no claim.
async fn release_volumes(client: &Client, waiting: &mut Waiting<PersistentVolume>) {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let mut released = Vec::new();
    for (uid, volume) in waiting.iter() {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase != Some("Bound") && release(&api, volume, VOLUME_FINALIZER).await {
            released.push(uid.clone());
        }
    }
    waiting.retain(|uid, _| !released.contains(uid));
}

/// Whether a Pod that is on a node uses a claim.
fn uses(pod: &Pod, claim: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is_on_node = spec.node_name.as_ref().is_some_and(|node| !node.is_empty());
    let names = spec.volumes.iter().flatten().filter_map(|volume| {
        let own = format!("{}-{}", pod.name_any(), volume.name);
        match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(own),
            (None, None) => None,
        }
    });
    is_on_node && names.into_iter().any(|name| name == claim)
}

/// Removes the finalizer of an object as it was seen. Returns whether nothing is left to do for it.
async fn release<K, L>(api: &Api<K>, object: &L, finalizer: &str) -> bool
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    L: ResourceExt,
{
    let others: Vec<&String> = object.finalizers().iter().filter(|one| *one != finalizer).collect();
    let change = json!({"metadata": {
        "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": others,
    }});
    let name = object.name_any();
    match api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(change)).await {
        Ok(_) => true,
        // It is gone, or has changed: then its watch says so.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => true,
        Err(error) => {
            tracing::debug!("finalizer of {name}: {error}");
            false
        }
    }
}
