//! What kinds are computed from: one watch per type, shared by all kinds.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::object::Key;

/// A failing watch is reported at most so often.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// A failed watch is retried sooner than this: one without an error for so long works.
const TROUBLE: Duration = Duration::from_secs(90);

/// Objects of one type, as the cluster last showed them.
pub struct SourceInformer<K> {
    shelf: RwLock<Shelf<K>>,
    followers: Mutex<Vec<Weak<Changed>>>,
}

struct Shelf<K> {
    objects: HashMap<Key, Arc<K>>,
    synced: bool,
    /// Why the cluster does not show them now.
    watch_error: Option<String>,
}

/// Which objects changed since they were last asked for. At most one entry
/// per object, however fast they change.
pub struct Changed {
    keys: Mutex<HashSet<Key>>,
    notify: Arc<Notify>,
}

impl Changed {
    /// The keys, once.
    pub fn take(&self) -> HashSet<Key> {
        std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K> Default for SourceInformer<K> {
    fn default() -> Self {
        let shelf = Shelf { objects: HashMap::new(), synced: false, watch_error: None };
        Self { shelf: RwLock::new(shelf), followers: Mutex::default() }
    }
}

impl<K> SourceInformer<K> {
    /// The object under the key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).objects.get(key).cloned()
    }

    /// Whether everything there was to begin with has arrived.
    pub fn is_synced(&self) -> bool {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).synced
    }

    /// Why the cluster does not show the objects now, if it does not.
    pub fn watch_error(&self) -> Option<String> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).watch_error.clone()
    }

    /// Says why the cluster does not show the objects now, or that it does again.
    fn set_watch_error(&self, watch_error: Option<String>) {
        if self.watch_error() == watch_error {
            return;
        }
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        shelf.watch_error = watch_error;
        drop(shelf);
        tell(followers, []);
    }

    /// Returns when everything there was to begin with has arrived.
    pub async fn synced(&self) {
        if self.is_synced() {
            return;
        }
        let notify = Arc::new(Notify::new());
        let _changed = self.follow(Arc::clone(&notify));
        while !self.is_synced() {
            notify.notified().await;
        }
    }

    /// Returns when everything there was to begin with has arrived, or the cluster does not show it.
    pub async fn settled(&self) {
        let notify = Arc::new(Notify::new());
        let _changed = self.follow(Arc::clone(&notify));
        while !self.is_synced() && self.watch_error().is_none() {
            notify.notified().await;
        }
    }

    /// Follows changes, beginning with everything there is; `notify` is told
    /// of each of them, and when the informer is synced.
    pub fn follow(&self, notify: Arc<Notify>) -> Arc<Changed> {
        let mut followers = self.followers();
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let keys = Mutex::new(shelf.objects.keys().cloned().collect());
        let changed = Arc::new(Changed { keys, notify });
        followers.push(Arc::downgrade(&changed));
        changed.notify.notify_one();
        changed
    }

    /// Replaces one object, or removes it.
    pub(crate) fn set(&self, key: Key, object: Option<K>) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        match object {
            Some(object) => shelf.objects.insert(key.clone(), Arc::new(object)),
            None => shelf.objects.remove(&key),
        };
        drop(shelf);
        tell(followers, [key]);
    }

    /// Says that everything there is has arrived: what is not among `present` is gone.
    pub(crate) fn complete(&self, present: &HashSet<Key>) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Key> =
            shelf.objects.keys().filter(|key| !present.contains(key)).cloned().collect();
        for key in &gone {
            shelf.objects.remove(key);
        }
        shelf.synced = true;
        drop(shelf);
        tell(followers, gone);
    }

    fn followers(&self) -> MutexGuard<'_, Vec<Weak<Changed>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(
    mut followers: MutexGuard<'_, Vec<Weak<Changed>>>,
    keys: impl IntoIterator<Item = Key> + Clone,
) {
    followers.retain(|follower| match follower.upgrade() {
        Some(changed) => {
            let mut set = changed.keys.lock().unwrap_or_else(PoisonError::into_inner);
            set.extend(keys.clone());
            drop(set);
            changed.notify.notify_one();
            true
        }
        None => false,
    });
}

/// The informers of all types in use. Dropping it ends their watches.
pub struct Sources {
    client: Client,
    informers: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    watches: Mutex<Vec<JoinHandle<()>>>,
}

impl Sources {
    pub(super) fn new(client: Client) -> Self {
        Self { client, informers: Mutex::default(), watches: Mutex::default() }
    }

    /// The informer of a type; its watch begins when it is opened first.
    pub fn open<K>(&self) -> Arc<SourceInformer<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        self.open_or("what is computed from them is not served yet")
    }

    /// The same. The log says what is `missing` as long as they cannot be watched.
    pub fn open_or<K>(&self, missing: &'static str) -> Arc<SourceInformer<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let mut informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = informers.get(&TypeId::of::<K>()).map(Arc::clone);
        if let Some(Ok(informer)) = known.map(Arc::downcast) {
            return informer;
        }
        let informer = Arc::new(SourceInformer::<K>::default());
        informers.insert(TypeId::of::<K>(), informer.clone());
        let api = Api::all(self.client.clone());
        let watch = tokio::spawn(keep(Arc::clone(&informer), api, missing));
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
        informer
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.iter().for_each(JoinHandle::abort);
    }
}

/// Keeps the objects of an informer as the cluster shows them. While the cluster is away they stay
/// as they were last.
async fn keep<K>(informer: Arc<SourceInformer<K>>, api: Api<K>, missing: &str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let name = resource_name::<K>();
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut present = HashSet::new();
    let mut reported: Option<Instant> = None;
    loop {
        let next = tokio::time::timeout(TROUBLE, events.next()).await;
        // The watcher resumes without an event when a watch works again.
        if !matches!(next, Ok(Some(Err(_)))) {
            informer.set_watch_error(None);
        }
        let Ok(event) = next else { continue };
        let Some(event) = event else { return };
        match event {
            Ok(watcher::Event::Init) => present.clear(),
            Ok(watcher::Event::InitApply(mut object)) => {
                slim(&mut object);
                if let Some(key) = key(&object) {
                    present.insert(key.clone());
                    informer.set(key, Some(object));
                }
            }
            Ok(watcher::Event::InitDone) => {
                informer.complete(&present);
                present = HashSet::new();
                tracing::info!("{name} are in view");
                reported = None;
            }
            Ok(watcher::Event::Apply(mut object)) => {
                slim(&mut object);
                if let Some(key) = key(&object) {
                    informer.set(key, Some(object));
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                if let Some(key) = key(&object) {
                    informer.set(key, None);
                }
            }
            Err(error) => {
                if reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                    let meanwhile = match informer.is_synced() {
                        true => "the last view of them stays",
                        false => missing,
                    };
                    tracing::warn!("cannot list or watch {name}, {meanwhile}: {error}");
                    reported = Some(Instant::now());
                }
                informer.set_watch_error(Some(error.to_string()));
            }
        }
    }
}

/// What a type is called in the API: `replicasets.apps`, `pods`.
pub fn resource_name<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

/// Drops managedFields and kubectl's last-applied annotation: they are often most of an object,
/// and no computation needs them.
fn slim<K: Resource>(object: &mut K) {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

fn key<K: Resource>(object: &K) -> Option<Key> {
    let metadata = object.meta();
    metadata.name.as_deref().map(|name| Key::new(metadata.namespace.as_deref(), name))
}
