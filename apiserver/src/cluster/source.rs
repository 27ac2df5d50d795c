//! What kinds are computed from: one watch per type, shared by all kinds.

mod counted;
mod list_watch;

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::bounded_client::ANSWER_BYTES;
use crate::object::Key;
use crate::occasionally::Occasionally;
use list_watch::{Change, Excess, Interruption, Keeper, ListWatch};

/// How much memory the objects of one type may take, if nobody says otherwise: four types of them,
/// and what is computed from them, fit into a gigabyte. Views of 20,000 Pods take so much.
pub const SOURCE_MEMORY: usize = 64 << 20;
/// The same in a small container: one page of them, as it is listed.
pub const LEAST_SOURCE_MEMORY: usize = 4 << 20;

/// What an object takes besides itself: its key, twice, and its places in maps.
const PER_OBJECT: usize = 256;

/// How soon objects that there was no room for are listed again, to see whether there is now.
const AGAIN: Duration = Duration::from_secs(60);

/// Objects of one type, as the cluster last showed them.
pub struct SourceInformer<K> {
    shelf: RwLock<Shelf<K>>,
    followers: Mutex<Vec<Weak<Changed>>>,
    /// How many bytes the objects may take.
    bound: usize,
    /// How many of them what finds the objects takes.
    charged: AtomicUsize,
}

struct Shelf<K> {
    objects: HashMap<Key, Kept<K>>,
    /// What the objects take.
    bytes: usize,
    synced: bool,
    /// Why the cluster does not show them now.
    watch_error: Option<String>,
    /// Why they are not kept, if there is more than may be kept.
    excess: Option<String>,
}

struct Kept<K> {
    object: Arc<K>,
    bytes: usize,
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

impl<K> SourceInformer<K> {
    fn new(bound: usize) -> Self {
        let shelf = Shelf {
            objects: HashMap::new(),
            bytes: 0,
            synced: false,
            watch_error: None,
            excess: None,
        };
        Self {
            shelf: RwLock::new(shelf),
            followers: Mutex::default(),
            bound,
            charged: AtomicUsize::new(0),
        }
    }

    /// The object under the key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        shelf.objects.get(key).map(|kept| Arc::clone(&kept.object))
    }

    /// All objects there are now.
    pub fn objects(&self) -> Vec<(Key, Arc<K>)> {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let objects = shelf.objects.iter();
        objects.map(|(key, kept)| (key.clone(), Arc::clone(&kept.object))).collect()
    }

    /// Counts bytes that an index of the objects takes as theirs, instead of those `before`.
    pub fn charge(&self, before: usize, now: usize) {
        if now > before {
            self.charged.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.charged.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// Whether everything there is has arrived.
    pub fn is_synced(&self) -> bool {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).synced
    }

    /// Why the cluster does not show the objects now, if it does not.
    pub fn watch_error(&self) -> Option<String> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).watch_error.clone()
    }

    /// Why no objects are kept, if there is more of them than may be kept.
    pub fn excess(&self) -> Option<String> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).excess.clone()
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

    /// Returns when everything there is has arrived, or was found to be too much.
    pub async fn synced(&self) {
        let is_known = || self.is_synced() || self.excess().is_some();
        if is_known() {
            return;
        }
        let notify = Arc::new(Notify::new());
        let _changed = self.follow(Arc::clone(&notify));
        while !is_known() {
            notify.notified().await;
        }
    }

    /// Returns when everything there is has arrived or was found to be too much, or the cluster does
    /// not show it.
    pub async fn settled(&self) {
        let notify = Arc::new(Notify::new());
        let _changed = self.follow(Arc::clone(&notify));
        while !self.is_synced() && self.excess().is_none() && self.watch_error().is_none() {
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

    /// How many objects are kept.
    fn len(&self) -> usize {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).objects.len()
    }

    /// How many bytes the object under this key may take.
    fn room(&self, key: &Key) -> usize {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let others = shelf.bytes - shelf.objects.get(key).map_or(0, |kept| kept.bytes);
        let charged = self.charged.load(Ordering::Relaxed);
        self.bound.saturating_sub(others + charged + PER_OBJECT)
    }

    /// Replaces one object, which takes so many bytes, or removes it. While not everything has
    /// arrived nobody is told: objects come and go then, of which nobody has heard.
    fn replace(&self, key: Key, object: Option<(K, usize)>) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let before = match object {
            Some((object, bytes)) => {
                let bytes = bytes + PER_OBJECT;
                shelf.bytes += bytes;
                shelf.objects.insert(key.clone(), Kept { object: Arc::new(object), bytes })
            }
            None => shelf.objects.remove(&key),
        };
        let is_changed = before.is_some() || shelf.objects.contains_key(&key);
        shelf.bytes -= before.map_or(0, |kept| kept.bytes);
        let is_told = shelf.synced && is_changed;
        drop(shelf);
        if is_told {
            tell(followers, [key]);
        }
    }

    /// Says that everything there is has arrived: what is not among `present` is gone.
    pub(crate) fn complete(&self, present: &HashSet<Key>) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Key> =
            shelf.objects.keys().filter(|key| !present.contains(key)).cloned().collect();
        for key in &gone {
            let kept = shelf.objects.remove(key);
            shelf.bytes -= kept.map_or(0, |kept| kept.bytes);
        }
        let mut told = gone;
        if !shelf.synced {
            told.extend(shelf.objects.keys().cloned());
        }
        shelf.synced = true;
        shelf.excess = None;
        shelf.watch_error = None;
        drop(shelf);
        tell(followers, told);
    }

    /// Says that there is more than may be kept: nothing is kept, until everything there is has
    /// arrived again.
    pub(crate) fn exceed(&self, why: String) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let objects = std::mem::take(&mut shelf.objects);
        let was_synced = std::mem::take(&mut shelf.synced);
        shelf.bytes = 0;
        shelf.watch_error = None;
        shelf.excess = Some(why);
        drop(shelf);
        // What was shown must be looked at again. What came since nobody has heard of.
        let told = objects.into_keys().filter(|_| was_synced);
        tell(followers, told.collect::<Vec<Key>>());
    }

    fn followers(&self) -> MutexGuard<'_, Vec<Weak<Changed>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl<K> SourceInformer<K> {
    /// Replaces one object, or removes it.
    pub(crate) fn set(&self, key: Key, object: Option<K>) {
        self.replace(key, object.map(|object| (object, 0)));
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
    /// How many bytes the objects of each type may take.
    bound: usize,
    informers: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    watches: Mutex<Vec<JoinHandle<()>>>,
}

impl Sources {
    pub(super) fn new(client: Client, bound: usize) -> Self {
        Self { client, bound, informers: Mutex::default(), watches: Mutex::default() }
    }

    /// The informer of a type; its watch begins when it is opened first.
    pub fn open<K>(&self) -> Arc<SourceInformer<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        self.open_or("what is computed from them is not served")
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
        let informer = Arc::new(SourceInformer::<K>::new(self.bound));
        informers.insert(TypeId::of::<K>(), informer.clone());
        let follower = Follower {
            informer: Arc::clone(&informer),
            missing,
            present: None,
            reports: Occasionally::default(),
            backoff: DefaultBackoff::default(),
        };
        let watch = tokio::spawn(follower.run(ListWatch::new(self.client.clone())));
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
struct Follower<K> {
    informer: Arc<SourceInformer<K>>,
    /// What is missing as long as they are.
    missing: &'static str,
    /// What the list in progress has shown.
    present: Option<HashSet<Key>>,
    reports: Occasionally,
    backoff: DefaultBackoff,
}

impl<K> Keeper<K> for Follower<K> {
    fn room(&self, key: &Key) -> usize {
        self.informer.room(key)
    }

    fn keep(&mut self, change: Change<K>) {
        match change {
            Change::Kept(key, object, bytes) => {
                if let Some(present) = &mut self.present {
                    present.insert(key.clone());
                }
                self.informer.replace(key, Some((object, bytes)));
            }
            Change::Gone(key) => self.informer.replace(key, None),
        }
    }
}

impl<K> Follower<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    async fn run(mut self, mut objects: ListWatch<K>) {
        loop {
            self.present = Some(HashSet::new());
            let listed = objects.list(&mut self).await;
            let present = self.present.take().unwrap_or_default();
            match listed {
                Ok(revision) => {
                    self.informer.complete(&present);
                    drop(present);
                    tracing::info!("{} are in view", resource_name::<K>());
                    self.watch(&objects, revision).await;
                }
                Err(Interruption::TooLarge(excess @ Excess::Memory))
                    if self.informer.len() > present.len() =>
                {
                    // What is gone was kept meanwhile. What is there may fit without it.
                    self.informer.exceed(self.explain(excess));
                }
                Err(interruption) => self.wait(interruption).await,
            }
        }
    }

    /// Watches from a revision on, until the objects must be listed again.
    async fn watch(&mut self, objects: &ListWatch<K>, mut revision: String) {
        loop {
            let informer = Arc::clone(&self.informer);
            let is_watching = || informer.set_watch_error(None);
            match objects.watch(&mut revision, self, is_watching).await {
                Ok(true) => self.backoff.reset(),
                // One that shows nothing is not asked for at once again.
                Ok(false) => self.pause().await,
                Err(interruption) => {
                    let must_list = !matches!(interruption, Interruption::Failed(_));
                    self.wait(interruption).await;
                    if must_list {
                        return;
                    }
                }
            }
        }
    }

    /// Says why the objects are not in view, and waits before they are asked for again.
    async fn wait(&mut self, interruption: Interruption) {
        let name = resource_name::<K>();
        match interruption {
            Interruption::Expired => self.pause().await,
            Interruption::TooLarge(excess) => {
                let why = self.explain(excess);
                self.reports.log(|_| {
                    tracing::error!(
                        "{name} are not kept, {}: {why}; they are listed again every minute (--source-memory-mib)",
                        self.missing
                    );
                });
                self.informer.exceed(why);
                tokio::time::sleep(AGAIN).await;
            }
            Interruption::Failed(error) => {
                self.reports.log(|_| {
                    let meanwhile = match self.informer.is_synced() {
                        true => "the last view of them stays",
                        false => self.missing,
                    };
                    tracing::warn!("cannot list or watch {name}, {meanwhile}: {error}");
                });
                self.informer.set_watch_error(Some(error));
                self.pause().await;
            }
        }
    }

    fn explain(&self, excess: Excess) -> String {
        match excess {
            Excess::Memory => {
                format!("they take more than {} MiB of memory", self.informer.bound >> 20)
            }
            Excess::Answer => format!("one of them is longer than {} MiB", ANSWER_BYTES >> 20),
        }
    }

    async fn pause(&mut self) {
        if let Some(pause) = self.backoff.next() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// What a type is called in the API: `replicasets.apps`, `pods`.
pub fn resource_name<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use tokio::time::Instant;

    use super::*;

    /// What the cluster shows is listed twice, with other names, and the bound is for one list.
    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_not_in_the_way_of_what_is_there() {
        let lists = Arc::new(Mutex::new(0));
        let cluster = {
            let lists = Arc::clone(&lists);
            tower::service_fn(move |request: Request<Body>| {
                let answer = if request.uri().query().unwrap_or_default().contains("watch") {
                    r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#.to_owned() + "\n"
                } else {
                    let mut lists = lists.lock().unwrap();
                    *lists += 1;
                    // The first one has the others' names.
                    let names = if *lists == 1 { "old" } else { "new" };
                    let text = "x".repeat(1_000);
                    let items = (0..10).map(|number| {
                        format!(r#"{{"metadata":{{"name":"{names}-{number}"}},"data":{{"a":"{text}"}}}}"#)
                    });
                    let items = items.collect::<Vec<_>>().join(",");
                    format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#)
                };
                async move { Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes()))) }
            })
        };
        let sources = Sources::new(Client::new(cluster, "default"), 30_000);
        let began = Instant::now();
        let informer = sources.open::<ConfigMap>();
        let changed = Arc::new(Notify::new());
        let _followed = informer.follow(Arc::clone(&changed));
        while informer.get(&Key::new(None, "new-9")).is_none() || !informer.is_synced() {
            changed.notified().await;
        }
        assert_eq!((informer.len(), informer.get(&Key::new(None, "old-0")).is_none()), (10, true));
        assert!(began.elapsed() < AGAIN, "it waited before it listed again");
    }
}
