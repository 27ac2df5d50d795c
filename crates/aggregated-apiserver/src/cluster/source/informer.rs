//! The objects of one type, as the cluster last showed them, and who follows their changes.

use std::collections::HashSet;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::objects::{Kept, SourceObjects};
use super::together::{KeepsKeys, Share};
use crate::object::Key;

/// What an object takes besides itself: its key, its place in a map, and what is remembered of it.
const PER_OBJECT: usize = 256;
/// What was too much is kept again when so much of the bound would be left, a sixteenth of it.
const SLACK: usize = 16;

/// So many are counted of the objects that cannot be read: then something else is wrong than an object.
const MOST_UNREADABLE: usize = 1_000;

/// Objects of one type, as the cluster last showed them.
pub struct SourceInformer<K> {
    shelf: RwLock<Shelf<K>>,
    followers: Mutex<Vec<Weak<Changed>>>,
    /// Hashes the texts of objects, and what is read of them. Its keys are random, so that no client can make two of one hash.
    pub(super) hasher: RandomState,
    /// How many bytes the objects may take.
    pub(super) bound: usize,
    /// What they take of the memory of all types.
    share: Arc<Share>,
    /// How many bytes what finds the objects takes.
    charged: AtomicUsize,
    /// How many must be left for that before objects are kept again that were too much.
    reserved: AtomicUsize,
    /// Whether what all types take together has left the least room for what was read last.
    is_short_for_all: AtomicBool,
}

struct Shelf<K> {
    objects: SourceObjects<K>,
    /// What the objects take.
    bytes: usize,
    synced: bool,
    /// What is there and cannot be read as its type.
    unreadable: HashSet<Key>,
    /// Since when the cluster does not show them, if it does not.
    away: Option<Away>,
    /// Why they are not kept, if there is more than may be kept.
    excess: Option<String>,
}

/// An object as it was read.
pub(super) struct Reading<K> {
    pub object: K,
    /// How many bytes it takes.
    pub bytes: usize,
    /// Of the text that it was read from.
    pub hash: u64,
    /// Of what was read of that: what the type ignores is not in it.
    pub content: u64,
}

/// How the objects are in view.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Whether everything there is has arrived, and is kept.
    pub is_synced: bool,
    /// Since when the cluster does not show them, if it does not.
    pub away: Option<Away>,
    /// Why they are not kept, if there is more than may be kept.
    pub excess: Option<String>,
    /// How many objects cannot be read, of a thousand at most.
    pub unreadable: usize,
}

/// What a follower sees at once.
pub struct Taken<K> {
    /// What has changed since the last time.
    pub keys: HashSet<Key>,
    /// All objects. None as long as not everything has arrived: then followers are not told of what comes.
    pub objects: SourceObjects<K>,
    /// How they are in view.
    pub standing: Standing,
}

/// Why the cluster does not show objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It did not work.
    Failure,
    /// It does not let them be read.
    Refusal,
    /// It has no such API.
    Absence,
}

/// What the cluster does not show now.
#[derive(Clone, Debug)]
pub struct Away {
    /// Why.
    pub why: String,
    /// Since when; what is kept is as old.
    pub since: Instant,
    /// Since when it refuses to show them or does not have them, if so.
    pub refused_since: Option<Instant>,
    /// Whether it has said last that it has no such API.
    pub is_absent: bool,
}

/// Which objects changed since they were last asked for. At most one entry
/// per object, however fast they change.
pub struct Changed {
    keys: Mutex<HashSet<Key>>,
    notify: Arc<Notify>,
}

impl Changed {
    /// The keys of what has changed since the last call. [`SourceInformer::take`] answers the objects with them.
    pub fn take(&self) -> HashSet<Key> {
        std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl<K> Shelf<K> {
    /// The objects, once everything has arrived.
    fn shown(&self) -> SourceObjects<K> {
        if self.synced { self.objects.clone() } else { SourceObjects::default() }
    }

    fn standing(&self) -> Standing {
        let (is_synced, away, excess) = (self.synced, self.away.clone(), self.excess.clone());
        Standing { is_synced, away, excess, unreadable: self.unreadable.len() }
    }
}

impl<K> SourceInformer<K> {
    pub(super) fn new(bound: usize, share: Arc<Share>) -> Self {
        let shelf = Shelf {
            objects: SourceObjects::default(),
            bytes: 0,
            synced: false,
            unreadable: HashSet::new(),
            away: None,
            excess: None,
        };
        Self {
            shelf: RwLock::new(shelf),
            followers: Mutex::default(),
            hasher: RandomState::new(),
            bound,
            share,
            charged: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            is_short_for_all: AtomicBool::new(false),
        }
    }

    /// The object under the key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        shelf.objects.get(key).map(Arc::clone)
    }

    /// The same with the key as it is kept.
    pub fn get_keyed(&self, key: &Key) -> Option<(Key, Arc<K>)> {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let (key, object) = shelf.objects.get_keyed(key)?;
        Some((key.clone(), Arc::clone(object)))
    }

    /// A key as it is kept.
    fn known_key(&self, key: &Key) -> Option<Key> {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        shelf.objects.get_keyed(key).map(|(kept, _)| kept.clone())
    }

    /// All objects there are now. None as long as not everything has arrived.
    pub fn objects(&self) -> SourceObjects<K> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).shown()
    }

    /// What a follower has not been told of yet, and how all objects are since then: between the two nothing changes.
    pub fn take(&self, changed: &Changed) -> Taken<K> {
        // A writer holds this lock until all followers are told.
        let _followers = self.followers();
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        Taken { keys: changed.take(), objects: shelf.shown(), standing: shelf.standing() }
    }

    /// Counts bytes that an index of the objects takes as theirs, instead of those `before`.
    pub fn charge(&self, before: usize, now: usize) {
        self.share.count(before, now);
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

    /// How the objects are in view.
    pub fn standing(&self) -> Standing {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).standing()
    }

    /// Whether no objects are kept, because there is more of them than may be kept.
    pub fn is_exceeded(&self) -> bool {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).excess.is_some()
    }

    /// Why no objects are kept, if there is more of them than may be kept.
    fn excess(&self) -> Option<String> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).excess.clone()
    }

    /// Says why the cluster does not show the objects now, or that it does again.
    pub(super) fn set_away(&self, why: Option<(&str, Cause)>) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let before = shelf.away.take();
        let had_any = before.is_some();
        let now = Instant::now();
        shelf.away = why.map(|(why, cause)| {
            let refused_before = before.as_ref().and_then(|before| before.refused_since);
            let is_refused = cause != Cause::Failure;
            // What it refuses is not allowed because something else is wrong, too.
            let refused_since = refused_before.or(is_refused.then_some(now));
            let since = before.map_or(now, |before| before.since);
            let is_absent = cause == Cause::Absence;
            Away { why: why.to_owned(), since, refused_since, is_absent }
        });
        let is_news = had_any || shelf.away.is_some();
        drop(shelf);
        if is_news {
            tell(followers, []);
        }
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
        while !self.is_synced() && self.excess().is_none() && self.standing().away.is_none() {
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
    pub(super) fn len(&self) -> usize {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).objects.len()
    }

    /// How many bytes the object under this key may take.
    pub(super) fn room(&self, key: &Key) -> usize {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let others = shelf.bytes - shelf.objects.kept(key).map_or(0, |kept| kept.bytes);
        let charged = self.charged.load(Ordering::Relaxed);
        let charged = charged.max(self.reserved.load(Ordering::Relaxed));
        let known = shelf.bytes - others;
        let of_all = (self.share.all().left() + known).saturating_sub(PER_OBJECT);
        let own = self.bound.saturating_sub(others + charged + PER_OBJECT);
        self.is_short_for_all.store(of_all < own, Ordering::Relaxed);
        own.min(of_all)
    }

    /// Says why there was no room for what was read last.
    pub(super) fn explain_excess(&self) -> String {
        match self.is_short_for_all.load(Ordering::Relaxed) {
            true => self.share.all().explain(),
            false => format!("they take more than {} MiB of memory", self.bound >> 20),
        }
    }

    /// Whether an object is kept that was read from a text with this number.
    pub(super) fn is_same(&self, key: &Key, hash: u64) -> bool {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        shelf.objects.kept(key).is_some_and(|kept| kept.hash.load(Ordering::Relaxed) == hash)
    }

    /// Replaces one object, or removes it. No follower is told if nothing has changed that is read of it: a
    /// counter of a status, to a type that does not know it. While not everything has
    /// arrived none is told at all: objects may come and go then that were never shown.
    pub(super) fn replace(&self, key: Key, object: Option<Reading<K>>) {
        // What remembers an object has this one. It is asked for before anything is locked.
        let key = self.known_key(&key).unwrap_or_else(|| self.share.all().kept_key(key));
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let can_be_read_again = shelf.unreadable.remove(&key);
        let before = match object {
            Some(Reading { object, bytes, hash, content }) => {
                let known = shelf.objects.kept(&key).filter(|kept| kept.content == content);
                if let Some(known) = known {
                    known.hash.store(hash, Ordering::Relaxed);
                    drop(shelf);
                    if can_be_read_again {
                        tell(followers, []);
                    }
                    return;
                }
                let bytes = bytes + PER_OBJECT;
                shelf.bytes += bytes;
                self.share.count(0, bytes);
                let (object, hash) = (Arc::new(object), AtomicU64::new(hash));
                let kept = Kept { object, bytes, hash, content };
                shelf.objects.insert(key.clone(), kept)
            }
            None => shelf.objects.remove(&key),
        };
        let is_changed = before.is_some() || shelf.objects.get(&key).is_some();
        let freed = before.map_or(0, |kept| kept.bytes);
        shelf.bytes -= freed;
        self.share.count(freed, 0);
        let is_told = shelf.synced && (is_changed || can_be_read_again);
        drop(shelf);
        if is_told {
            tell(followers, [key]);
        }
    }

    /// Notes that an object is there and cannot be read as its type. If it could be, it stays as it was.
    pub(super) fn set_unreadable(&self, key: Key) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        if shelf.unreadable.len() < MOST_UNREADABLE {
            shelf.unreadable.insert(key);
        }
        drop(shelf);
        tell(followers, []);
    }

    /// Notes that an object is again as it was before it could not be read.
    pub(super) fn set_readable(&self, key: &Key) {
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let is_news = shelf.unreadable.remove(key);
        drop(shelf);
        if is_news {
            tell(followers, []);
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
            let freed = kept.map_or(0, |kept| kept.bytes);
            shelf.bytes -= freed;
            self.share.count(freed, 0);
        }
        shelf.unreadable.retain(|key| present.contains(key));
        let mut told = gone;
        if !shelf.synced {
            shelf.objects = shelf.objects.packed();
            told.extend(shelf.objects.keys().cloned());
        }
        shelf.synced = true;
        shelf.excess = None;
        shelf.away = None;
        drop(shelf);
        self.reserved.store(0, Ordering::Relaxed);
        tell(followers, told);
    }

    /// Says that there is more than may be kept: nothing is kept, until everything there is has
    /// arrived again, and fits beside the indexes of before and a little more. Otherwise it would come
    /// and go for ever.
    pub(crate) fn exceed(&self, why: String) {
        let slack = self.bound / SLACK;
        let reserved = self.charged.load(Ordering::Relaxed).saturating_add(slack);
        self.reserved.fetch_max(reserved, Ordering::Relaxed);
        let followers = self.followers();
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let objects = std::mem::take(&mut shelf.objects);
        let was_synced = std::mem::take(&mut shelf.synced);
        self.share.count(std::mem::take(&mut shelf.bytes), 0);
        shelf.unreadable.clear();
        shelf.away = None;
        shelf.excess = Some(why);
        drop(shelf);
        // What was shown must be looked at again. Followers were not told of what came since.
        let told = objects.keys().filter(|_| was_synced);
        tell(followers, told.cloned().collect::<Vec<Key>>());
    }

    fn followers(&self) -> MutexGuard<'_, Vec<Weak<Changed>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Send + Sync> KeepsKeys for SourceInformer<K> {
    /// It does not wait for a writer: without an answer the caller keeps a second copy of the text.
    fn kept_key(&self, key: &Key) -> Option<Key> {
        let shelf = self.shelf.try_read().ok()?;
        shelf.objects.get_keyed(key).map(|(kept, _)| kept.clone())
    }
}

#[cfg(test)]
impl<K> SourceInformer<K> {
    /// One whose objects have room to themselves.
    pub(crate) fn alone(bound: usize) -> Self {
        let all = Arc::new(super::together::Together::within(usize::MAX));
        Self::new(bound, all.share("things".to_owned()))
    }

    /// Replaces one object, or removes it.
    pub(crate) fn set(&self, key: Key, object: Option<K>) {
        // Each of them is another one.
        let content = fastrand::u64(..);
        self.replace(key, object.map(|object| Reading { object, bytes: 0, hash: 0, content }));
    }

    /// Says why the cluster does not show them, and whether it refuses to.
    pub(crate) fn go_away(&self, why: Option<(&str, bool)>) {
        let cause = |is_refused| if is_refused { Cause::Refusal } else { Cause::Failure };
        self.set_away(why.map(|(why, is_refused)| (why, cause(is_refused))));
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

#[cfg(test)]
mod tests;
