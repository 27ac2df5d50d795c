//! The watch cache: the current objects of one kind, and their recent changes.
//!
//! All reads are answered from the cache. The objects are in a persistent ordered map, whose snapshots are cheap. A
//! list therefore holds no lock while it is sent. The changes are in one window, which each watcher reads at its own
//! pace.

mod budget;
mod feed;
mod objects;
mod snapshot;
mod subscriber;
mod window;

pub use budget::{
    BYTES_LIMIT as WINDOWS_LIMIT, LEAST_BYTES_LIMIT as LEAST_WINDOWS_LIMIT, WindowBudget,
};
pub use snapshot::Snapshot;
pub use subscriber::{Lost, SLOW_WATCHER, Scope, Subscription};
pub use window::{
    BYTES_LIMIT as WINDOW_LIMIT, LEAST_BYTES_LIMIT as LEAST_WINDOW_LIMIT, WatchCacheEvent,
};

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::object::{Key, Object};
use crate::storage::{FRESHNESS_WAIT, Revision, RevisionSequencer, Versioned};
use objects::Objects;
use subscriber::Subscribers;
use window::Window;

/// The number of snapshots of past revisions that are cached. This many lists can be read page by page at a time
/// without undoing changes again for each page. The objects of these snapshots are also referenced by the window or by
/// the current state.
const REWOUND: usize = 8;
/// The largest number of changes that are undone before the task yields to other requests.
const UNDO: usize = 512;

struct State {
    objects: Objects,
    window: Window,
    /// The revision of the last change.
    revision: Revision,
    /// The number of changes of objects in this cache, independent of revisions.
    changes: u64,
    /// Whether the feed has set the start of the window.
    has_past: bool,
}

/// The reason why a read cannot be answered at its revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFresh {
    /// The revision was issued by another process, whose history is unknown here.
    Foreign,
    /// The revision lies in the future and was not reached in time.
    TooLarge {
        /// The newest revision.
        current: Revision,
    },
}

/// The state of a source of computed objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The resource, such as `replicasets.apps`.
    pub resource: String,
    /// Whether all objects of the source have been listed.
    pub is_synced: bool,
    /// The error if the cluster does not serve the source now.
    pub watch_error: Option<String>,
    /// The time since when the cluster does not serve the source.
    pub unseen_since: Option<Instant>,
    /// The reason why the objects are not held in memory: there are more than the limit allows.
    pub excess: Option<String>,
    /// The number of objects that cannot be decoded as their type. Their last readable state is used, or they are
    /// omitted.
    pub unreadable: usize,
    /// Whether the source is currently omitted from computed objects; `None` if objects cannot be computed without the
    /// source.
    pub is_left_out: Option<bool>,
    /// Whether the cluster does not have the resource, and the resource is optional. Clients are then not warned.
    pub is_rightly_absent: bool,
}

/// The age of the data of a source from which on clients are warned.
const WARNING_AGE: Duration = Duration::from_secs(60);

impl SourceState {
    /// The time for which the cluster has not served the source.
    pub fn age(&self) -> Duration {
        self.unseen_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns each resource once, in its worst state, if a resource is listed several times. In case of a tie, a
    /// required source takes precedence over an optional one.
    pub fn each_once(sources: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut once: Vec<Self> = Vec::new();
        for source in sources {
            match once.iter_mut().find(|known| known.resource == source.resource) {
                Some(known)
                    if (source.severity(), source.is_needed())
                        > (known.severity(), known.is_needed()) =>
                {
                    *known = source;
                }
                Some(_) => {}
                None => once.push(source),
            }
        }
        once
    }

    /// Whether objects cannot be computed without the source.
    pub fn is_needed(&self) -> bool {
        self.is_left_out.is_none()
    }

    /// Whether the source is synced, within its limit, and not omitted from computed objects.
    pub fn is_in_view(&self) -> bool {
        self.is_synced && self.excess.is_none() && self.is_left_out != Some(true)
    }

    /// The severity of the state, for comparisons.
    pub fn severity(&self) -> impl Ord + use<> {
        let (is_away, unreadable) = (self.watch_error.is_some(), self.unreadable);
        (!self.is_in_view(), !self.is_rightly_absent, is_away, self.age(), unreadable)
    }

    /// The warning for clients about the source, if there is one.
    pub fn warning(&self) -> Option<String> {
        let resource = &self.resource;
        if self.is_rightly_absent {
            return None;
        }
        if self.is_left_out == Some(true) {
            return Some(format!("{resource} cannot be read now: what they would add is left out"));
        }
        let age = self.age();
        if age < WARNING_AGE && self.unreadable > 0 {
            let count = self.unreadable;
            return Some(format!(
                "{count} of {resource} cannot be read: they are shown as they were, or left out"
            ));
        }
        (age >= WARNING_AGE).then(|| {
            let seconds = age.as_secs();
            format!(
                "{resource} are shown as they were {seconds} seconds ago: they cannot be read now"
            )
        })
    }
}

/// The size of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The number of objects.
    pub objects: usize,
    /// The size of the objects, in bytes.
    pub bytes: usize,
    /// The revision of the cache. It contains all changes up to this revision.
    pub revision: Revision,
    /// The number of changes in the window.
    pub window: usize,
    /// The size of the changes in the window, in bytes.
    pub window_bytes: usize,
    /// The age of the oldest change in the window.
    pub window_age: Duration,
}

/// The current objects of one kind, and their recent changes.
pub struct WatchCache {
    sequencer: Arc<RevisionSequencer>,
    state: RwLock<State>,
    /// The bytes of the window that are counted in the budget.
    window_bytes: AtomicUsize,
    budget: Arc<WindowBudget>,
    /// The most recently requested snapshots of past revisions.
    rewound: Mutex<VecDeque<Snapshot>>,
    subscribers: Subscribers,
    /// The keys of objects that cannot be decoded.
    damaged: RwLock<Vec<Key>>,
    synced: watch::Sender<bool>,
    sources: RwLock<Vec<SourceState>>,
}

impl WatchCache {
    /// Creates an empty cache that is not synced. Its window is limited to this number of bytes.
    pub fn new(sequencer: Arc<RevisionSequencer>, window: usize) -> Self {
        Self::with_budget(sequencer, window, Arc::new(WindowBudget::new(usize::MAX)))
    }

    /// Creates a cache like [`new`](Self::new), whose window also counts against a budget that other caches share.
    pub fn sharing(
        sequencer: Arc<RevisionSequencer>,
        window: usize,
        budget: &Arc<WindowBudget>,
    ) -> Arc<Self> {
        let cache = Arc::new(Self::with_budget(sequencer, window, Arc::clone(budget)));
        budget.add(&cache);
        cache
    }

    /// The sequencer of the revisions.
    pub fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.sequencer)
    }

    /// A separate cache with only these objects. Its revisions come from the same sequencer. Each call issues a new
    /// revision, because an object may have changed since the last call. Objects without a revision get this one.
    pub async fn with_objects(&self, objects: Vec<(Arc<Object>, Option<Revision>)>) -> Self {
        let Ok(newest) = self.sequencer.publish(Ok::<_, std::convert::Infallible>);
        let cache = Self::new(Arc::clone(&self.sequencer), 0);
        for (index, (object, revision)) in objects.into_iter().enumerate() {
            if index % 256 == 255 {
                tokio::task::yield_now().await;
            }
            let (key, revision) = (object.key().clone(), revision.unwrap_or(newest));
            cache.write().objects.insert(&key, Versioned { revision, object });
        }
        cache.mark_synced();
        cache
    }

    fn with_budget(
        sequencer: Arc<RevisionSequencer>,
        window: usize,
        budget: Arc<WindowBudget>,
    ) -> Self {
        let revision = sequencer.current();
        let window = Window::starting(revision, window);
        let objects = Objects::default();
        let state = State { objects, window, revision, changes: 0, has_past: false };
        Self {
            sequencer,
            state: RwLock::new(state),
            window_bytes: AtomicUsize::new(0),
            budget,
            rewound: Mutex::default(),
            subscribers: Subscribers::default(),
            damaged: RwLock::default(),
            synced: watch::Sender::new(false),
            sources: RwLock::default(),
        }
    }

    /// The size of the cache.
    pub fn extent(&self) -> Extent {
        let visible = self.sequencer.current();
        let state = self.read();
        let (window, window_bytes, window_age) = state.window.extent(std::time::Instant::now());
        Extent {
            objects: state.objects.len(),
            bytes: state.objects.bytes(),
            revision: visible.max(state.revision),
            window,
            window_bytes,
            window_age,
        }
    }

    /// Sets the state of the sources of the computed objects.
    pub fn set_sources(&self, sources: Vec<SourceState>) {
        *self.sources.write().unwrap_or_else(PoisonError::into_inner) = sources;
    }

    /// The state of the sources of the computed objects.
    pub fn sources(&self) -> Vec<SourceState> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Marks the cache as synced: it contains all initial objects. The window starts now, unless the feed has set an
    /// earlier start.
    pub fn mark_synced(&self) {
        if self.is_synced() {
            return;
        }
        let mut state = self.write();
        if !state.has_past {
            let start = state.revision.max(self.sequencer.current());
            state.window = Window::starting(start, state.window.limit());
            self.count_window(&state);
        }
        drop(state);
        self.synced.send_replace(true);
    }

    /// Sets the revision at which the window starts. Changes that have arrived so far belong to the state before it.
    /// Existing watches must restart.
    fn begin_past(&self, oldest: Revision) {
        let mut state = self.write();
        state.has_past = true;
        self.lose_past(state, oldest);
    }

    /// Removes all changes from the window. Existing watches must restart.
    pub fn forget_past(&self) {
        let state = self.write();
        let start = state.revision.max(self.sequencer.current());
        self.lose_past(state, start);
    }

    fn lose_past(&self, mut state: RwLockWriteGuard<'_, State>, start: Revision) {
        let limit = state.window.limit();
        let past = std::mem::replace(&mut state.window, Window::starting(start, limit));
        self.count_window(&state);
        self.subscribers.lose_all(start);
        let rewound = std::mem::take(&mut *self.rewound());
        drop(state);
        drop((past, rewound));
    }

    /// Whether the cache contains all initial objects.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until the cache is synced.
    pub async fn wait_synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// The object with this key.
    pub fn get(&self, key: &Key) -> Option<Versioned> {
        self.read().objects.get(key).cloned()
    }

    /// The objects directly before and after a key.
    pub fn neighbours(&self, key: &Key) -> Vec<Versioned> {
        self.read().objects.neighbours(key).cloned().collect()
    }

    /// The key of an object in the scope that exists and cannot be decoded, if there is one.
    pub fn damaged_in(&self, scope: &Scope) -> Option<Key> {
        let damaged = self.damaged.read().unwrap_or_else(PoisonError::into_inner);
        damaged.iter().find(|key| scope.contains(key)).cloned()
    }

    /// A snapshot of all current objects.
    pub fn snapshot(&self) -> Snapshot {
        // The timeline must be read first: a revision that it has counted is already published in all caches.
        let visible = self.sequencer.current();
        let state = self.read();
        Snapshot::new(state.objects.clone(), visible.max(state.revision))
    }

    /// The number of changes of objects in this cache. As long as the number is the same, the objects are the same.
    pub fn changes(&self) -> u64 {
        self.read().changes
    }

    /// A snapshot at a past revision, for which later changes are undone. `None` if the revision is older than the
    /// window or was not issued by this timeline.
    pub async fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        let (mut snapshot, since) = {
            let state = self.read();
            if !self.sequencer.may_have_issued(revision) || revision < state.window.start() {
                return None;
            }
            let rewound = self.rewound();
            if let Some(known) = rewound.iter().find(|snapshot| snapshot.revision() == revision) {
                return Some(known.clone());
            }
            let since: Vec<Arc<WatchCacheEvent>> = state.window.after(revision).cloned().collect();
            (Snapshot::new(state.objects.clone(), revision), since)
        };
        for changes in since.rchunks(UNDO) {
            changes.iter().rev().for_each(|change| snapshot.undo(change));
            tokio::task::yield_now().await;
        }
        if !since.is_empty() {
            let state = self.read();
            let mut rewound = self.rewound();
            // The window may have moved on in between.
            if revision >= state.window.start() {
                rewound.truncate(REWOUND - 1);
                rewound.push_front(snapshot.clone());
            }
        }
        Some(snapshot)
    }

    fn rewound(&self) -> MutexGuard<'_, VecDeque<Snapshot>> {
        self.rewound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes an empty revision after this one, if this one is the newest. Later reads then have a larger revision,
    /// even if no object has changed.
    pub fn pass(&self, revision: Revision) {
        let pass = |next| if next == self.sequencer.after(revision) { Ok(()) } else { Err(()) };
        // An error means that another task has already published a later revision.
        let _ = self.sequencer.publish(pass);
    }

    /// Whether the cache has reached the revision.
    pub fn has_reached(&self, revision: Revision) -> bool {
        revision <= self.sequencer.current()
    }

    /// Waits until the cache has reached the revision.
    /// # Errors
    /// Returns an error if the revision was issued by another process, or is not reached within three seconds.
    pub async fn wait_until(&self, revision: Revision) -> Result<(), NotFresh> {
        if !self.sequencer.may_have_issued(revision) {
            return Err(NotFresh::Foreign);
        }
        let arrived = self.sequencer.wait_until(revision);
        let in_time = tokio::time::timeout(FRESHNESS_WAIT, arrived).await;
        in_time.map_err(|_| NotFresh::TooLarge { current: self.sequencer.current() })
    }

    /// Subscribes to changes of a scope from now on. Returns a snapshot of the current objects with the subscription.
    pub fn subscribe(self: &Arc<Self>, scope: Scope) -> (Snapshot, Subscription) {
        let slot = self.subscribers.add(scope);
        let snapshot = self.snapshot();
        let cursor = snapshot.revision();
        (snapshot, Subscription::new(Arc::clone(self), slot, cursor))
    }

    /// Subscribes to changes of a scope after a revision.
    /// # Errors
    /// Returns an error if later changes have left the window, or were never known here.
    pub fn subscribe_after(
        self: &Arc<Self>,
        scope: Scope,
        revision: Revision,
    ) -> Result<Subscription, Lost> {
        let slot = self.subscribers.add(scope);
        let subscription = Subscription::new(Arc::clone(self), slot, revision);
        let oldest = self.read().window.start();
        if revision < oldest || !self.sequencer.may_have_issued(revision) {
            return Err(Lost { oldest });
        }
        Ok(subscription)
    }

    /// Marks the stored object of a key as unreadable.
    fn mark_damaged(&self, key: Key) {
        // The key is added before the object is removed. A reader that does not find the object can then see the
        // reason.
        let mut damaged = self.damaged.write().unwrap_or_else(PoisonError::into_inner);
        if !damaged.contains(&key) {
            damaged.push(key.clone());
        }
        drop(damaged);
        let mut state = self.write();
        state.objects.remove(&key);
        state.changes += 1;
    }

    /// Removes the mark of a key whose object is readable again or deleted.
    fn mark_mended(&self, key: &Key) {
        let is_any = !self.damaged.read().unwrap_or_else(PoisonError::into_inner).is_empty();
        if is_any {
            let mut damaged = self.damaged.write().unwrap_or_else(PoisonError::into_inner);
            damaged.retain(|other| other != key);
        }
    }

    /// Applies a change: the object of the key since this revision, or `None` after a deletion. Revisions must
    /// increase.
    pub(crate) fn apply(&self, revision: Revision, key: &Key, object: Option<Arc<Object>>) {
        let mut guard = self.write();
        let state = &mut *guard;
        let after = object.map(|object| Versioned { revision, object });
        let before = match &after {
            Some(after) => state.objects.insert(key, after.clone()),
            None => state.objects.remove(key),
        };
        if before.is_none() && after.is_none() {
            return;
        }
        state.revision = state.revision.max(revision);
        state.changes += 1;
        let change = WatchCacheEvent::new(revision, key.clone(), before, after);
        let gone = state.window.push(Arc::new(change), std::time::Instant::now());
        self.lose_changes(state, &gone);
        drop(guard);
        drop(gone);
        self.subscribers.wake(key, revision);
        self.budget.balance(self);
    }

    /// Updates the budget, the watchers and the cached snapshots after changes have left the window.
    fn lose_changes(&self, state: &State, gone: &[Arc<WatchCacheEvent>]) {
        self.count_window(state);
        // Watchers must be notified before they can read on from their position.
        self.subscribers.lose(gone);
        if !gone.is_empty() {
            let oldest = state.window.start();
            // Objects of changes that have left the window must not be referenced by cached snapshots.
            self.rewound().retain(|snapshot| snapshot.revision() >= oldest);
        }
    }

    /// Removes about this number of bytes of the oldest changes, but keeps the newest `kept` changes. Returns the
    /// number of removed bytes.
    fn shed(&self, bytes: usize, kept: usize) -> usize {
        let mut state = self.write();
        let before = state.window.bytes();
        let gone = state.window.shed(bytes, kept);
        self.lose_changes(&state, &gone);
        let after = state.window.bytes();
        drop(state);
        before - after
    }

    /// Updates the budget with the current size of the window.
    fn count_window(&self, state: &State) {
        let now = state.window.bytes();
        self.budget.replace(self.window_bytes.swap(now, Ordering::Relaxed), now);
    }

    fn window_bytes(&self) -> usize {
        self.window_bytes.load(Ordering::Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatchCache {
    fn drop(&mut self) {
        self.budget.replace(self.window_bytes(), 0);
    }
}

impl fmt::Debug for WatchCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchCache").field("extent", &self.extent()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
