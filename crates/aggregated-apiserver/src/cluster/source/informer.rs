//! The informer of one type: the objects as last read from the cluster, and the followers of their changes.

use std::collections::HashSet;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::objects::{SourceObjects, StoredObject};
use super::shared_limit::{StoresKeys, TypeMemory, count};
use crate::object::Key;

/// The memory overhead of an object, in bytes: its key, its node in the map, and its metadata in [`StoredObject`].
const PER_OBJECT: usize = 256;
/// The divisor of the memory limit for the slack after an excess: objects are stored again only if a sixteenth of the
/// limit would stay free.
const SLACK: usize = 16;

/// The largest number of unreadable objects that are counted. With more of them, the cause is not a single object.
const MOST_UNREADABLE: usize = 1_000;

/// The objects of one type, as last read from the cluster.
pub struct SourceInformer<K> {
    contents: RwLock<Contents<K>>,
    followers: Mutex<Vec<Weak<ChangedKeys>>>,
    /// Hashes the JSON of objects and the decoded values. Its keys are random, so that clients cannot construct two
    /// objects with one hash.
    pub(super) hasher: RandomState,
    /// The memory limit of the objects, in bytes.
    pub(super) limit: usize,
    /// The memory that these objects use, counted towards the limit of all types.
    memory: Arc<TypeMemory>,
    /// The memory that the indexes of the objects use, in bytes.
    charged: AtomicUsize,
    /// The memory to reserve for the indexes after an excess, in bytes. Objects are stored again only if they fit
    /// beside it.
    reserved: AtomicUsize,
    /// Whether the limit of all types was the smaller limit when the last object was read.
    is_short_for_all: AtomicBool,
}

struct Contents<K> {
    objects: SourceObjects<K>,
    /// The memory that the objects use, in bytes.
    bytes: usize,
    synced: bool,
    /// The objects that exist and cannot be decoded as this type.
    unreadable: HashSet<Key>,
    /// The error that prevents reading the objects from the cluster, if there is one.
    failure: Option<ReadFailure>,
    /// The reason why no objects are stored, if they exceed a memory limit.
    excess: Option<String>,
}

/// A decoded object.
pub(super) struct Reading<K> {
    pub object: K,
    /// The memory that the object uses, in bytes.
    pub bytes: usize,
    /// The hash of the JSON of the object.
    pub hash: u64,
    /// The hash of the decoded values. Fields that the type ignores do not change it.
    pub content: u64,
}

/// The state of an informer.
#[derive(Clone, Debug)]
pub struct SourceStatus {
    /// Whether all objects have been listed, and are stored.
    pub is_synced: bool,
    /// The error that prevents reading the objects from the cluster, if there is one.
    pub failure: Option<ReadFailure>,
    /// The reason why no objects are stored, if they exceed a memory limit.
    pub excess: Option<String>,
    /// The number of objects that cannot be decoded, at most 1,000.
    pub unreadable: usize,
}

/// A consistent view of an informer for one follower.
pub struct Snapshot<K> {
    /// The objects that have changed since the previous call.
    pub keys: HashSet<Key>,
    /// All objects. Empty until all objects have been listed, and followers receive no changes until then.
    pub objects: SourceObjects<K>,
    /// The state of the informer.
    pub status: SourceStatus,
}

/// The reason why objects cannot be read from the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The request failed.
    Failure,
    /// The request was refused.
    Refusal,
    /// The cluster does not serve the API.
    Absence,
}

/// An error that prevents reading objects from the cluster.
#[derive(Clone, Debug)]
pub struct ReadFailure {
    /// The error message.
    pub why: String,
    /// The time of the first failure. The stored objects have the same age.
    pub since: Instant,
    /// The time of the first refusal or of the first response that the API is not served, if there was one.
    pub refused_since: Option<Instant>,
    /// Whether the last response was that the API is not served.
    pub is_absent: bool,
}

/// The changed objects that a follower has not processed yet. An object has at most one entry, however fast it changes.
pub struct ChangedKeys {
    keys: Mutex<HashSet<Key>>,
    notify: Arc<Notify>,
}

impl ChangedKeys {
    /// Returns the keys of the objects that have changed since the last call. [`SourceInformer::take`] also returns the
    /// objects.
    pub fn take(&self) -> HashSet<Key> {
        std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether no object has changed since the last call of [`take`](Self::take).
    pub fn is_empty(&self) -> bool {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl<K> Contents<K> {
    /// The objects, or none until all objects have been listed.
    fn shown(&self) -> SourceObjects<K> {
        if self.synced { self.objects.clone() } else { SourceObjects::default() }
    }

    fn status(&self) -> SourceStatus {
        let (is_synced, failure, excess) = (self.synced, self.failure.clone(), self.excess.clone());
        SourceStatus { is_synced, failure, excess, unreadable: self.unreadable.len() }
    }
}

impl<K> SourceInformer<K> {
    pub(super) fn new(limit: usize, memory: Arc<TypeMemory>) -> Self {
        let contents = Contents {
            objects: SourceObjects::default(),
            bytes: 0,
            synced: false,
            unreadable: HashSet::new(),
            failure: None,
            excess: None,
        };
        Self {
            contents: RwLock::new(contents),
            followers: Mutex::default(),
            hasher: RandomState::new(),
            limit,
            memory,
            charged: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            is_short_for_all: AtomicBool::new(false),
        }
    }

    /// The object with this key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        contents.objects.get(key).map(Arc::clone)
    }

    /// The object with this key, and the stored key, which shares its memory with other copies.
    pub fn get_keyed(&self, key: &Key) -> Option<(Key, Arc<K>)> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let (key, object) = contents.objects.get_keyed(key)?;
        Some((key.clone(), Arc::clone(object)))
    }

    /// All current objects. Empty until all objects have been listed.
    pub fn objects(&self) -> SourceObjects<K> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).shown()
    }

    /// Returns the unprocessed changes of a follower together with all objects. Nothing changes between the two.
    pub fn take(&self, changed: &ChangedKeys) -> Snapshot<K> {
        // A writer holds this lock until all followers are notified.
        let _followers = self.followers();
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        Snapshot { keys: changed.take(), objects: contents.shown(), status: contents.status() }
    }

    /// Counts `now` bytes for an index of the objects, in place of the `before` bytes of the last call.
    pub fn charge(&self, before: usize, now: usize) {
        self.memory.count(before, now);
        count(&self.charged, before, now);
    }

    /// Whether all objects have been listed.
    pub fn is_synced(&self) -> bool {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).synced
    }

    /// Whether all objects have been listed, and each of them is stored.
    pub fn is_complete(&self) -> bool {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        contents.synced && contents.unreadable.is_empty()
    }

    /// The state of the informer.
    pub fn status(&self) -> SourceStatus {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).status()
    }

    /// Whether no objects are stored, because they exceed a memory limit.
    pub fn is_exceeded(&self) -> bool {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).excess.is_some()
    }

    /// Records the error that prevents reading the objects from the cluster, or that they can be read again (`None`).
    pub(super) fn set_failure(&self, why: Option<(&str, Cause)>) {
        let followers = self.followers();
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let before = contents.failure.take();
        let had_any = before.is_some();
        let now = Instant::now();
        contents.failure = why.map(|(why, cause)| {
            let refused_before = before.as_ref().and_then(|before| before.refused_since);
            let is_refused = cause != Cause::Failure;
            // A refusal stays recorded if a different error follows.
            let refused_since = refused_before.or(is_refused.then_some(now));
            let since = before.map_or(now, |before| before.since);
            let is_absent = cause == Cause::Absence;
            ReadFailure { why: why.to_owned(), since, refused_since, is_absent }
        });
        let is_news = had_any || contents.failure.is_some();
        drop(contents);
        if is_news {
            notify_followers(followers, []);
        }
    }

    /// Waits until all objects have been listed, or exceed a memory limit.
    pub async fn synced(&self) {
        self.wait_until(|status| status.is_synced || status.excess.is_some()).await;
    }

    /// Waits until all objects have been listed, exceed a memory limit, or cannot be read from the cluster.
    pub async fn settled(&self) {
        let is_settled = |status: &SourceStatus| {
            status.is_synced || status.excess.is_some() || status.failure.is_some()
        };
        self.wait_until(is_settled).await;
    }

    async fn wait_until(&self, is_reached: impl Fn(&SourceStatus) -> bool) {
        if is_reached(&self.status()) {
            return;
        }
        let notify = Arc::new(Notify::new());
        let _changed = self.follow(Arc::clone(&notify));
        while !is_reached(&self.status()) {
            notify.notified().await;
        }
    }

    /// Follows the changes, starting with all current objects. `notify` is notified of every change, and once the
    /// informer is synced.
    pub fn follow(&self, notify: Arc<Notify>) -> Arc<ChangedKeys> {
        let mut followers = self.followers();
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let keys = Mutex::new(contents.objects.keys().cloned().collect());
        let changed = Arc::new(ChangedKeys { keys, notify });
        followers.push(Arc::downgrade(&changed));
        changed.notify.notify_one();
        changed
    }

    /// The number of stored objects.
    pub(super) fn len(&self) -> usize {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).objects.len()
    }

    /// The number of bytes that the object with this key may use.
    pub(super) fn free_bytes(&self, key: &Key) -> usize {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let others = contents.bytes - contents.objects.stored(key).map_or(0, |stored| stored.bytes);
        let charged = self.charged.load(Ordering::Relaxed);
        let charged = charged.max(self.reserved.load(Ordering::Relaxed));
        let known = contents.bytes - others;
        let of_all = (self.memory.all().left() + known).saturating_sub(PER_OBJECT);
        let own = self.limit.saturating_sub(others + charged + PER_OBJECT);
        self.is_short_for_all.store(of_all < own, Ordering::Relaxed);
        own.min(of_all)
    }

    /// Explains which memory limit the object that was read last exceeds.
    pub(super) fn explain_excess(&self) -> String {
        match self.is_short_for_all.load(Ordering::Relaxed) {
            true => self.memory.all().explain(),
            false => format!("they take more than {} MiB of memory", self.limit >> 20),
        }
    }

    /// Whether the stored object was read from JSON with this hash.
    pub(super) fn is_same(&self, key: &Key, hash: u64) -> bool {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        contents
            .objects
            .stored(key)
            .is_some_and(|stored| stored.hash.load(Ordering::Relaxed) == hash)
    }

    /// Replaces an object, or removes it.
    ///
    /// Followers are not notified if no decoded value has changed, for example if a status counter changes that the
    /// type does not have. Followers are also not notified until all objects have been listed, because objects may
    /// appear and disappear before that without having been visible.
    pub(super) fn replace(&self, key: Key, object: Option<Reading<K>>) {
        // Indexes refer to the stored key. It is looked up before any lock is taken.
        let stored = self.get_keyed(&key).map(|(stored, _)| stored);
        let key = stored.unwrap_or_else(|| self.memory.all().stored_key(key));
        let followers = self.followers();
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let can_be_read_again = contents.unreadable.remove(&key);
        let before = match object {
            Some(Reading { object, bytes, hash, content }) => {
                let known =
                    contents.objects.stored(&key).filter(|stored| stored.content == content);
                if let Some(known) = known {
                    known.hash.store(hash, Ordering::Relaxed);
                    drop(contents);
                    if can_be_read_again {
                        notify_followers(followers, []);
                    }
                    return;
                }
                let bytes = bytes + PER_OBJECT;
                contents.bytes += bytes;
                self.memory.count(0, bytes);
                let (object, hash) = (Arc::new(object), AtomicU64::new(hash));
                let stored = StoredObject { object, bytes, hash, content };
                contents.objects.insert(key.clone(), stored)
            }
            None => contents.objects.remove(&key),
        };
        let is_changed = before.is_some() || contents.objects.get(&key).is_some();
        let freed = before.map_or(0, |stored| stored.bytes);
        contents.bytes -= freed;
        self.memory.count(freed, 0);
        let is_visible = contents.synced && (is_changed || can_be_read_again);
        drop(contents);
        if is_visible {
            notify_followers(followers, [key]);
        }
    }

    /// Records that an object exists and cannot be decoded as this type. An older version of the object stays stored.
    pub(super) fn set_unreadable(&self, key: Key) {
        let followers = self.followers();
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        if contents.unreadable.len() < MOST_UNREADABLE {
            contents.unreadable.insert(key);
        }
        drop(contents);
        notify_followers(followers, []);
    }

    /// Records that an unreadable object is back in its last readable version.
    pub(super) fn set_readable(&self, key: &Key) {
        let followers = self.followers();
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let is_news = contents.unreadable.remove(key);
        drop(contents);
        if is_news {
            notify_followers(followers, []);
        }
    }

    /// Records that all objects have been listed. Objects that are not in `present` are removed.
    pub(crate) fn complete(&self, present: &HashSet<Key>) {
        let followers = self.followers();
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Key> =
            contents.objects.keys().filter(|key| !present.contains(key)).cloned().collect();
        for key in &gone {
            let stored = contents.objects.remove(key);
            let freed = stored.map_or(0, |stored| stored.bytes);
            contents.bytes -= freed;
            self.memory.count(freed, 0);
        }
        contents.unreadable.retain(|key| present.contains(key));
        let mut changed = gone;
        if !contents.synced {
            contents.objects = contents.objects.packed();
            changed.extend(contents.objects.keys().cloned());
        }
        contents.synced = true;
        contents.excess = None;
        contents.failure = None;
        self.reserved.store(0, Ordering::Relaxed);
        // A reader that finds the informer synced must find the keys of the first objects too.
        notify_followers(followers, changed);
        drop(contents);
    }

    /// Removes all objects, because they exceed a memory limit.
    ///
    /// Objects stay omitted until a list fits beside the indexes that existed before, with some slack. Without the
    /// slack, objects would be added and removed again in an endless loop.
    pub(crate) fn exceed(&self, why: String) {
        let slack = self.limit / SLACK;
        let reserved = self.charged.load(Ordering::Relaxed).saturating_add(slack);
        self.reserved.fetch_max(reserved, Ordering::Relaxed);
        let followers = self.followers();
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let objects = std::mem::take(&mut contents.objects);
        let was_synced = std::mem::take(&mut contents.synced);
        self.memory.count(std::mem::take(&mut contents.bytes), 0);
        contents.unreadable.clear();
        contents.failure = None;
        contents.excess = Some(why);
        drop(contents);
        // Followers must process the objects again that were visible to them. Objects that arrived before the first
        // complete list were never visible.
        let visible = objects.keys().filter(|_| was_synced);
        notify_followers(followers, visible.cloned().collect::<Vec<Key>>());
    }

    fn followers(&self) -> MutexGuard<'_, Vec<Weak<ChangedKeys>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Send + Sync> StoresKeys for SourceInformer<K> {
    /// Does not wait for a writer: without a result, the caller stores a second copy of the key.
    fn stored_key(&self, key: &Key) -> Option<Key> {
        let contents = self.contents.try_read().ok()?;
        contents.objects.get_keyed(key).map(|(stored, _)| stored.clone())
    }
}

#[cfg(test)]
impl<K> SourceInformer<K> {
    /// Creates an informer that shares its memory limit with no other type.
    pub(crate) fn alone(limit: usize) -> Self {
        let all = Arc::new(super::shared_limit::SharedLimit::within(usize::MAX));
        Self::new(limit, all.of_type("things".to_owned()))
    }

    /// Replaces an object, or removes it.
    pub(crate) fn set(&self, key: Key, object: Option<K>) {
        // A random hash, so that every call is a change.
        let content = fastrand::u64(..);
        self.replace(key, object.map(|object| Reading { object, bytes: 0, hash: 0, content }));
    }

    /// Records why the objects cannot be read from the cluster, and whether the cluster refused the request.
    pub(crate) fn set_test_failure(&self, why: Option<(&str, bool)>) {
        let cause = |is_refused| if is_refused { Cause::Refusal } else { Cause::Failure };
        self.set_failure(why.map(|(why, is_refused)| (why, cause(is_refused))));
    }
}

fn notify_followers(
    mut followers: MutexGuard<'_, Vec<Weak<ChangedKeys>>>,
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

#[cfg(test)]
mod tests;
