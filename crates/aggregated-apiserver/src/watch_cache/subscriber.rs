//! Watchers of a cache. Each has a cursor into the window and is woken only for changes of its scope.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::{WatchCache, WatchCacheEvent};
use crate::object::Key;
use crate::storage::Revision;

/// The number of changes, and of their bytes, that a watcher reads from the window in one batch. A slow watcher holds
/// no more.
const BATCH: usize = 16;
const BATCH_BYTES: usize = 64 << 10;

/// The memory of a slow watcher for changes that it has read and that have left the window, in bytes. It consists of a
/// weak reference to each change, and of the part of a change that stays allocated as long as such a reference exists.
pub const SLOW_WATCHER: usize =
    BATCH * size_of::<(Weak<WatchCacheEvent>, [usize; 2], WatchCacheEvent)>();
const _: () = assert!(SLOW_WATCHER < 1 << 10, "an event has its content elsewhere");

/// The scope of a watch: the objects whose changes it receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every object of the kind.
    All,
    /// The objects of one namespace.
    Namespace(Arc<str>),
    /// One object.
    Object(Key),
}

impl Scope {
    /// Whether the object of this key is in the scope.
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace() == Some(namespace),
            Self::Object(object) => key == object,
        }
    }

    /// The scopes that contain a key.
    fn of(key: &Key) -> impl Iterator<Item = Self> {
        let namespace = key.namespace().map(|namespace| Self::Namespace(namespace.into()));
        [Some(Self::All), namespace, Some(Self::Object(key.clone()))].into_iter().flatten()
    }
}

/// The error of a subscription: changes of its scope have left the window before they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The revision after which all changes are still in the window.
    pub oldest: Revision,
}

/// The state of one watcher in the cache.
#[derive(Debug)]
pub(super) struct Slot {
    scope: Scope,
    changed: Notify,
    /// The index of the watcher among those of its scope.
    place: AtomicUsize,
    /// The revision of the oldest change of the scope since the last read; 0 without such a change.
    first: AtomicU64,
    /// The revision of the newest change of the scope that has left the window.
    lost: AtomicU64,
}

/// The watchers of a cache, by scope.
#[derive(Debug, Default)]
pub(super) struct Subscribers(Mutex<HashMap<Scope, Vec<Weak<Slot>>>>);

impl Subscribers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Scope, Vec<Weak<Slot>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, scope: Scope) -> Arc<Slot> {
        let mut slots = self.lock();
        let same_scope = slots.entry(scope.clone()).or_default();
        let slot = Arc::new(Slot {
            scope,
            changed: Notify::new(),
            place: AtomicUsize::new(same_scope.len()),
            first: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        same_scope.push(Arc::downgrade(&slot));
        slot
    }

    fn remove(&self, slot: &Arc<Slot>) {
        let mut slots = self.lock();
        if let Some(same_scope) = slots.get_mut(&slot.scope) {
            // The last watcher of the scope moves to this index. Indexes change only under the lock.
            let place = slot.place.load(Ordering::Relaxed);
            same_scope.swap_remove(place);
            if let Some(moved) = same_scope.get(place).and_then(Weak::upgrade) {
                moved.place.store(place, Ordering::Relaxed);
            }
            if same_scope.is_empty() {
                slots.remove(&slot.scope);
            }
        }
    }

    /// Wakes all watchers with the key in their scope, after a change of its object.
    pub(super) fn wake(&self, key: &Key, revision: Revision) {
        self.each(key, |slot| {
            let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            // If there is an older change that has not been read, its revision stays.
            let _ = slot.first.compare_exchange(0, revision.number(), acquire, relaxed);
            slot.changed.notify_one();
        });
    }

    /// Records that these changes, oldest first, have left the window. For each scope only the newest change matters.
    /// There can be thousands of changes and of scopes.
    pub(super) fn lose(&self, gone: &[Arc<WatchCacheEvent>]) {
        if gone.is_empty() {
            return;
        }
        let slots = self.lock();
        let mut told = HashSet::new();
        for change in gone.iter().rev() {
            for scope in Scope::of(change.key()) {
                let Some(same_scope) = slots.get(&scope) else { continue };
                if told.insert(scope) {
                    let revision = change.revision().number();
                    let same_scope = same_scope.iter().filter_map(Weak::upgrade);
                    same_scope.for_each(|slot| slot.lost.store(revision, Ordering::Release));
                }
            }
        }
    }

    /// Records that all changes up to this revision have left the window.
    pub(super) fn lose_all(&self, revision: Revision) {
        let slots = self.lock();
        let all = slots.values().flatten().filter_map(Weak::upgrade);
        for slot in all {
            slot.lost.store(revision.number(), Ordering::Release);
            // A watcher that waits for a change is woken, and learns that it has missed some.
            slot.changed.notify_one();
        }
    }

    fn each(&self, key: &Key, act: impl Fn(&Slot)) {
        let slots = self.lock();
        if slots.is_empty() {
            return;
        }
        for scope in Scope::of(key) {
            let same_scope = slots.get(&scope).into_iter().flatten();
            same_scope.filter_map(Weak::upgrade).for_each(|slot| act(&slot));
        }
    }
}

/// A watcher with its position in the window of a cache.
pub struct Subscription {
    cache: Arc<WatchCache>,
    slot: Arc<Slot>,
    cursor: Revision,
    /// Whether the watcher has read the window to its end once. From then on, `Slot::first` gives the position of the
    /// next change.
    caught_up: bool,
}

impl Subscription {
    pub(super) fn new(cache: Arc<WatchCache>, slot: Arc<Slot>, cursor: Revision) -> Self {
        Self { cache, slot, cursor, caught_up: false }
    }

    /// Returns the next changes of the scope, at least one. Waits until one arrives.
    /// # Errors
    /// Returns an error if a change of the scope has left the window before it was read.
    pub async fn next(&mut self) -> Result<Vec<Arc<WatchCacheEvent>>, Lost> {
        loop {
            let changes = self.take()?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            // If a change arrived after `take`, a permit is stored and this returns at once.
            self.slot.changed.notified().await;
        }
    }

    /// Returns the revision up to which all changes of the scope have been read; `None` if there are unread ones.
    pub fn progress(&mut self) -> Option<Revision> {
        // The timeline must be read first: a revision that it has counted is already published in all caches.
        let visible = self.cache.sequencer.current();
        let state = self.cache.read();
        if self.slot.lost.load(Ordering::Acquire) > self.cursor.number() {
            return None;
        }
        let mut untaken = state.window.after(self.cursor);
        if untaken.any(|change| self.slot.scope.contains(change.key())) {
            return None;
        }
        let reached = visible.max(state.revision);
        // A watch may start at a future revision, which is not reached yet.
        if self.cursor > reached {
            return None;
        }
        self.cursor = reached;
        Some(reached)
    }

    /// Goes back to this revision. The next read returns the changes after it.
    pub fn rewind(&mut self, revision: Revision) {
        self.cursor = revision;
        self.caught_up = false;
    }

    /// Returns a revision at which the objects of the scope are the same as at the cursor, and which is in the window.
    ///
    /// # Errors
    /// Returns an error if a change of the scope after the cursor has left the window.
    pub fn settle(&mut self) -> Result<Revision, Lost> {
        if let Some(reached) = self.progress() {
            return Ok(reached);
        }
        let state = self.cache.read();
        let oldest = state.window.start();
        if self.slot.lost.load(Ordering::Acquire) > self.cursor.number() {
            return Err(Lost { oldest });
        }
        self.cursor = self.cursor.max(oldest);
        Ok(self.cursor)
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<WatchCache> {
        &self.cache
    }

    /// Returns the unread changes, without waiting. The list can be empty.
    fn take(&mut self) -> Result<Vec<Arc<WatchCacheEvent>>, Lost> {
        // `first` must be reset before the window is read. A later change is then noted for the next call.
        let first = self.slot.first.swap(0, Ordering::AcqRel);
        let state = self.cache.read();
        if self.slot.lost.load(Ordering::Acquire) > self.cursor.number() {
            return Err(Lost { oldest: state.window.start() });
        }
        let mut changes = Vec::new();
        if self.caught_up {
            if first == 0 {
                return Ok(changes);
            }
            self.cursor = self.cursor.max(Revision::new(first - 1));
        }
        let mut bytes = 0;
        let mut untaken = state.window.after(self.cursor);
        self.caught_up = loop {
            let Some(change) = untaken.next() else { break true };
            let is_enough = changes.len() >= BATCH || bytes > BATCH_BYTES;
            // Changes of the same revision are returned together, because the next call continues after that revision.
            if is_enough && change.revision() > self.cursor {
                break false;
            }
            self.cursor = change.revision();
            if self.slot.scope.contains(change.key()) {
                changes.push(Arc::clone(change));
                bytes += change.size();
            }
        };
        Ok(changes)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.cache.subscribers.remove(&self.slot);
    }
}
