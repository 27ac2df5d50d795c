//! Watchers: cursors into the window, woken only for their scope.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::{WatchCache, WatchCacheEvent};
use crate::object::Key;
use crate::storage::Revision;

/// How many changes, and bytes of them, a watcher takes from the window at a
/// time: a slow one holds no more.
const BATCH: usize = 16;
const BATCH_BYTES: usize = 64 << 10;

/// Bytes of memory that a slow watcher takes for changes that it has taken and that have left the window: a reference to
/// each, and what stays of a change as long as somebody has one.
pub const SLOW_WATCHER: usize =
    BATCH * size_of::<(Weak<WatchCacheEvent>, [usize; 2], WatchCacheEvent)>();
const _: () = assert!(SLOW_WATCHER < 1 << 10, "an event has its content elsewhere");

/// What a watcher can be interested in.
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

    /// The scopes that a key is in.
    fn of(key: &Key) -> impl Iterator<Item = Self> {
        let namespace = key.namespace().map(|namespace| Self::Namespace(namespace.into()));
        [Some(Self::All), namespace, Some(Self::Object(key.clone()))].into_iter().flatten()
    }
}

/// Changes of the scope have left the window before they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The revision from which on every change is still there.
    pub oldest: Revision,
}

/// What the cache knows of one watcher.
#[derive(Debug)]
pub(super) struct Slot {
    scope: Scope,
    changed: Notify,
    /// Where it stands among the watchers of its scope.
    place: AtomicUsize,
    /// The oldest change of the scope that came since it last looked; 0 if
    /// there is none.
    first: AtomicU64,
    /// The newest change of the scope that has left the window.
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
            // The last one takes its place. Places change under the lock alone.
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

    /// Wakes everybody who is interested in the key, for a change of it.
    pub(super) fn wake(&self, key: &Key, revision: Revision) {
        self.each(key, |slot| {
            let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            // The older one stays, if it has not been looked at.
            let _ = slot.first.compare_exchange(0, revision.number(), acquire, relaxed);
            slot.changed.notify_one();
        });
    }

    /// Notes that these changes have left the window, the oldest first. Of a scope only the newest
    /// one counts, and there may be thousands of both.
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

    /// Notes that all changes up to this revision have left the window.
    pub(super) fn lose_all(&self, revision: Revision) {
        let slots = self.lock();
        let all = slots.values().flatten().filter_map(Weak::upgrade);
        for slot in all {
            slot.lost.store(revision.number(), Ordering::Release);
            // Who waits for a change is told that it has missed some.
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

/// A watcher: a position in the window of a cache.
pub struct Subscription {
    cache: Arc<WatchCache>,
    slot: Arc<Slot>,
    cursor: Revision,
    /// Whether it has seen all there was once: from then on it is told where
    /// to look.
    caught_up: bool,
}

impl Subscription {
    pub(super) fn new(cache: Arc<WatchCache>, slot: Arc<Slot>, cursor: Revision) -> Self {
        Self { cache, slot, cursor, caught_up: false }
    }

    /// The next changes of the scope, at least one; waits for it.
    ///
    /// # Errors
    /// When a change of the scope left the window before it was read.
    pub async fn next(&mut self) -> Result<Vec<Arc<WatchCacheEvent>>, Lost> {
        loop {
            let changes = self.take()?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            // A change after `take` has left a permit behind.
            self.slot.changed.notified().await;
        }
    }

    /// The revision up to which there is no change of the scope that was not
    /// taken; `None` if there is one.
    pub fn progress(&mut self) -> Option<Revision> {
        // First the timeline: what it counts is published in all caches.
        let visible = self.cache.timeline.current();
        let state = self.cache.read();
        if self.slot.lost.load(Ordering::Acquire) > self.cursor.number() {
            return None;
        }
        let mut untaken = state.window.after(self.cursor);
        if untaken.any(|change| self.slot.scope.contains(change.key())) {
            return None;
        }
        let reached = visible.max(state.revision);
        // A watch may begin in the future: that is not reached yet.
        if self.cursor > reached {
            return None;
        }
        self.cursor = reached;
        Some(reached)
    }

    /// What is there now, without waiting; may be nothing.
    fn take(&mut self) -> Result<Vec<Arc<WatchCacheEvent>>, Lost> {
        // First this: what is noted after it is for the next time.
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
            // Changes of one revision are taken together: the next time those behind it are.
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
