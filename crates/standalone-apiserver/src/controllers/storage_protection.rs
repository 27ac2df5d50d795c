//! Removes the finalizers of PersistentVolumeClaims, PersistentVolumes and VolumeAttributesClasses that are being deleted
//! and are not used any more: claims that no Pod on a node uses, volumes that no claim uses, and classes that neither a
//! claim nor a volume uses.
//!
//! Not a `kube::runtime::Controller`, because that stores a copy of each object that it watches. Here it is enough to
//! store the objects that wait for the removal of their finalizer, and the uids of the Pods that use them.

mod classes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::ready;
use futures::stream::select_all;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::built_in::storage_protection::{CLAIM_FINALIZER, CLASS_FINALIZER, VOLUME_FINALIZER};

/// The pause before a failed attempt is repeated: it doubles up to the second value.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// Maximum number of changes that are handled together.
const CHANGES: usize = 1_000;
/// The number of Pods in a page of a list.
const PAGE: u32 = 500;

type Claim = PartialObjectMeta<PersistentVolumeClaim>;
type Class = PartialObjectMeta<VolumeAttributesClass>;
type PodMeta = PartialObjectMeta<Pod>;

/// A change of a watched object.
enum Change {
    Claim(watcher::Event<Claim>),
    Volume(Box<watcher::Event<PersistentVolume>>),
    Pod(watcher::Event<PodMeta>),
    Class(watcher::Event<Class>),
}

/// Runs the controller.
pub(crate) async fn run(client: Client) {
    let changes = select_all([
        changes(&client, Change::Claim).boxed(),
        changes(&client, |change| Change::Volume(Box::new(change))).boxed(),
        changes(&client, Change::Pod).boxed(),
        changes(&client, Change::Class).boxed(),
    ]);
    let mut changes = changes.ready_chunks(CHANGES);
    let (mut claims, mut volumes) = (WaitingClaims::default(), Waiting::new());
    let mut classes = Waiting::new();
    let (mut failed, mut pause) = (Failed::new(), RETRY_AFTER.0);
    loop {
        // A Pod uses no class.
        let mut frees_classes = false;
        tokio::select! {
            changed = changes.next() => {
                let Some(changed) = changed else { return };
                for change in changed {
                    frees_classes |= !matches!(change, Change::Pod(_));
                    match change {
                        Change::Claim(change) => claims.observe(change),
                        Change::Volume(change) => observe(&mut volumes, *change, VOLUME_FINALIZER),
                        Change::Pod(change) => claims.observe_pod(change),
                        Change::Class(change) => observe(&mut classes, change, CLASS_FINALIZER),
                    }
                }
            }
            () = tokio::time::sleep(pause), if !failed.is_empty() => {
                pause = RETRY_AFTER.1.min(pause * 2);
                frees_classes = true;
                failed.clear();
            }
        }
        release_claims(&client, &mut claims, &mut failed).await;
        release_volumes(&client, &mut volumes, &mut failed).await;
        if frees_classes {
            classes::release_unused(&client, &mut classes, &mut failed).await;
        }
        if failed.is_empty() {
            pause = RETRY_AFTER.0;
        }
    }
}

/// The changes of all objects of a type. The watcher retries failures.
fn changes<K>(
    client: &Client,
    change: fn(watcher::Event<K>) -> Change,
) -> impl Stream<Item = Change> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let all: Api<K> = Api::all(client.clone());
    let events = watcher(all, watcher::Config::default()).default_backoff();
    events.filter_map(move |event| ready(event.ok().map(change)))
}

/// The uids of objects that are not retried before the pause is over.
type Failed = BTreeSet<String>;

/// Objects that wait for the removal of their finalizer, by uid.
type Waiting<K> = BTreeMap<String, K>;

/// Adds an object that waits, and removes an object that does not.
fn observe<K: ResourceExt>(waiting: &mut Waiting<K>, change: watcher::Event<K>, finalizer: &str) {
    match change {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
            let uid = object.uid().unwrap_or_default();
            match waits(&object, finalizer) {
                true => drop(waiting.insert(uid, object)),
                false => drop(waiting.remove(&uid)),
            }
        }
        watcher::Event::Delete(object) => drop(waiting.remove(&object.uid().unwrap_or_default())),
        watcher::Event::Init => waiting.clear(),
        watcher::Event::InitDone => {}
    }
}

fn waits<K: ResourceExt>(object: &K, finalizer: &str) -> bool {
    let is_deleted = object.meta().deletion_timestamp.is_some();
    is_deleted && object.finalizers().iter().any(|one| one == finalizer)
}

/// Claims that wait for the removal of their finalizer.
#[derive(Default)]
struct WaitingClaims {
    claims: Waiting<Claim>,
    /// The uids of the Pods that use a claim, by the uid of the claim. A claim without an entry is checked next.
    users: BTreeMap<String, BTreeSet<String>>,
}

impl WaitingClaims {
    fn observe(&mut self, change: watcher::Event<Claim>) {
        observe(&mut self.claims, change, CLAIM_FINALIZER);
        let Self { claims, users } = self;
        users.retain(|claim, _| claims.contains_key(claim));
    }

    /// Schedules a check of the claims that a Pod does not use any more.
    fn observe_pod(&mut self, change: watcher::Event<PodMeta>) {
        match change {
            watcher::Event::Delete(pod) => self.leave(&pod.uid().unwrap_or_default()),
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) if is_shut_down(&pod) => {
                self.leave(&pod.uid().unwrap_or_default());
            }
            watcher::Event::Apply(_) | watcher::Event::InitApply(_) | watcher::Event::Init => {}
            // The watch may have missed deletions.
            watcher::Event::InitDone => self.users.clear(),
        }
    }

    fn leave(&mut self, pod: &str) {
        self.users.retain(|_, pods| !pods.remove(pod) || !pods.is_empty());
    }

    /// The claims that must be checked, by namespace and name.
    fn due(&self, failed: &Failed) -> BTreeMap<String, Claims> {
        let mut due: BTreeMap<String, Claims> = BTreeMap::new();
        for (uid, claim) in &self.claims {
            if !self.users.contains_key(uid) && !failed.contains(uid) {
                let of_namespace = due.entry(claim.namespace().unwrap_or_default()).or_default();
                of_namespace.insert(claim.name_any(), claim.clone());
            }
        }
        due
    }
}

/// The claims of a namespace, by name.
type Claims = BTreeMap<String, Claim>;

/// Releases the claims that no Pod uses.
async fn release_claims(client: &Client, waiting: &mut WaitingClaims, failed: &mut Failed) {
    for (namespace, claims) in waiting.due(failed) {
        let uids = |claims: Claims| claims.into_values().filter_map(|claim| claim.uid());
        let mut users = match users(client, &namespace, &claims).await {
            Ok(users) => users,
            Err(error) => {
                tracing::debug!("pods of {namespace}: {error}");
                failed.extend(uids(claims));
                continue;
            }
        };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        for (name, claim) in claims {
            let uid = claim.uid().unwrap_or_default();
            if let Some(users) = users.remove(&name) {
                waiting.users.insert(uid, users);
            } else if release(&api, &claim, CLAIM_FINALIZER).await {
                waiting.claims.remove(&uid);
            } else {
                failed.insert(uid);
            }
        }
    }
}

/// For each of these PersistentVolumeClaims of a namespace, the uids of the Pods that use it. Claims that no Pod uses are omitted.
///
/// # Errors
/// The reason, if Pods cannot be listed.
async fn users(
    client: &Client,
    namespace: &str,
    claims: &Claims,
) -> kube::Result<BTreeMap<String, BTreeSet<String>>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = pods.list(&page).await?;
        for pod in &found.items {
            for name in used(pod, claims) {
                users.entry(name).or_default().insert(pod.uid().unwrap_or_default());
            }
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(users),
        }
    }
}

/// The names of the claims that a Pod uses. A Pod uses its claims from its scheduling to a node until its deletion,
/// even after its containers have terminated.
fn used(pod: &Pod, claims: &Claims) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    if spec.node_name.as_ref().is_none_or(String::is_empty) {
        return Vec::new();
    }
    let names = spec.volumes.iter().flatten().filter_map(|volume| {
        if let Some(source) = &volume.persistent_volume_claim {
            return claims.contains_key(&source.claim_name).then(|| source.claim_name.clone());
        }
        volume.ephemeral.as_ref()?;
        let name = format!("{}-{}", pod.name_any(), volume.name);
        let is_own = claims.get(&name).is_some_and(|claim| is_controlled_by(claim, pod));
        (is_own && !is_shut_down(pod)).then_some(name)
    });
    names.collect()
}

/// Whether no kubelet needs the volumes of the Pod any more, or the Pod was deleted by force. The Pod may still wait
/// for finalizers, which may wait for its claims.
fn is_shut_down(pod: &impl ResourceExt) -> bool {
    let metadata = pod.meta();
    metadata.deletion_timestamp.is_some() && metadata.deletion_grace_period_seconds == Some(0)
}

fn is_controlled_by(claim: &Claim, pod: &Pod) -> bool {
    let mut owners = claim.owner_references().iter();
    owners
        .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.meta().uid.as_ref())
}

/// Releases the volumes that are bound to no claim.
async fn release_volumes(
    client: &Client,
    waiting: &mut Waiting<PersistentVolume>,
    failed: &mut Failed,
) {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let mut released = BTreeSet::new();
    for (uid, volume) in &*waiting {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Bound") || failed.contains(uid) {
            continue;
        }
        match release(&api, volume, VOLUME_FINALIZER).await {
            true => released.insert(uid.clone()),
            false => failed.insert(uid.clone()),
        };
    }
    waiting.retain(|uid, _| !released.contains(uid));
}

/// Removes the finalizer of an object in the observed version. Returns whether nothing is left to do for the object.
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
        // The object was deleted or has changed; the watch reports that.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => true,
        Err(error) => {
            tracing::debug!("finalizer of {name}: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Request, Response, StatusCode};
    use k8s_openapi::api::core::v1::Namespace;
    use kube::api::{DeleteParams, PostParams};
    use kube::client::Body;
    use kube::runtime::wait::{await_condition, conditions::is_deleted};
    use serde_json::Value;

    use super::*;
    use crate::testing::{Member, shared_store};

    /// The requests of a controller.
    #[derive(Default)]
    struct Requests {
        lists_of_pods: AtomicUsize,
        /// The number of patches that fail before one succeeds.
        failing_patches: AtomicUsize,
    }

    /// A client that counts requests.
    fn observed(client: Client, requests: &Arc<Requests>) -> Client {
        let requests = Arc::clone(requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, requests) = (client.clone(), Arc::clone(&requests));
            async move {
                if request.uri().path() == "/api/v1/namespaces/default/pods" {
                    requests.lists_of_pods.fetch_add(1, Ordering::Relaxed);
                }
                let less = |left: usize| left.checked_sub(1);
                let failing = &requests.failing_patches;
                if request.method() == Method::PATCH
                    && failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
                {
                    let mut failed = Response::new(Body::empty());
                    *failed.status_mut() = StatusCode::INSUFFICIENT_STORAGE;
                    return Ok(failed);
                }
                client.send(request).await
            }
        });
        Client::new(service, "default")
    }

    /// A server with one namespace, and without this controller.
    async fn server_with_namespace() -> Member {
        let server = Member::start(&shared_store()).await;
        let namespaces: Api<Namespace> = Api::all(server.client.clone());
        create(&namespaces, json!({"metadata": {"name": "default"}})).await;
        server
    }

    async fn create<K>(api: &Api<K>, object: Value)
    where
        K: Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
    {
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    fn claim(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "finalizers": [CLAIM_FINALIZER]},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        })
    }

    fn pod(name: &str, claim: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {
            "nodeName": "n", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        }})
    }

    async fn delete_claim(
        claims: &Api<PersistentVolumeClaim>,
        name: &str,
    ) -> impl Future<Output = ()> + use<> {
        let uid = claims.get_metadata(name).await.unwrap().uid().unwrap();
        claims.delete(name, &DeleteParams::default()).await.unwrap();
        let (claims, name) = (claims.clone(), name.to_owned());
        async move { drop(await_condition(claims, &name, is_deleted(&uid)).await.unwrap()) }
    }

    #[tokio::test]
    async fn pods_are_listed_when_a_claim_may_have_become_free() {
        let server = server_with_namespace().await;
        let client = server.client.clone();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "default");
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        for name in ["data", "marker"] {
            create(&claims, claim(name)).await;
        }
        create(&pods, pod("user", "data")).await;
        let others: Vec<String> = (0..50).map(|number| format!("other-{number}")).collect();
        for name in &others {
            create(&pods, pod(name, "another-claim")).await;
        }
        let requests = Arc::<Requests>::default();
        let controller = tokio::spawn(run(observed(client, &requests)));
        let data = delete_claim(&claims, "data").await;
        delete_claim(&claims, "marker").await.await;
        let at_once = DeleteParams::default().grace_period(0);
        for name in &others {
            pods.delete(name, &at_once).await.unwrap();
        }
        assert!(claims.get_opt("data").await.unwrap().is_some());
        pods.delete("user", &at_once).await.unwrap();
        data.await;
        // Pods are listed when each claim was deleted, when the watches were synced, and when the Pod was deleted.
        let lists = requests.lists_of_pods.load(Ordering::Relaxed);
        assert!((2..=6).contains(&lists), "{lists}");
        controller.abort();
    }

    #[tokio::test]
    async fn failed_removals_of_a_protection_finalizer_are_retried() {
        let server = server_with_namespace().await;
        let client = server.client.clone();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "default");
        create(&claims, claim("data")).await;
        let requests = Arc::<Requests>::default();
        requests.failing_patches.store(1, Ordering::Relaxed);
        let controller = tokio::spawn(run(observed(client, &requests)));
        delete_claim(&claims, "data").await.await;
        assert_eq!(requests.failing_patches.load(Ordering::Relaxed), 0);
        controller.abort();
    }
}
