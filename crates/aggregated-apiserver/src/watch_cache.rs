//! WatchCache: the objects of one kind now, and their recent past.
//!
//! Every read is answered from here. Objects lie in an ordered map whose
//! snapshot costs nothing, so a list holds no lock while it is sent; changes
//! lie in one window that all watchers read at their own pace.

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
use crate::storage::{FRESHNESS_WAIT, Revision, Timeline, Versioned};
use objects::Objects;
use subscriber::Subscribers;
use window::Window;

/// Pages of so many lists are read side by side without going back in time
/// for each of them. What they hold is in the window too, or in the present.
const REWOUND: usize = 8;
/// At most this many changes are undone before other requests get their turn.
const UNDO: usize = 512;

struct State {
    objects: Objects,
    window: Window,
    /// The revision of the last change.
    revision: Revision,
    /// How often an object has changed here, whatever revisions say.
    changes: u64,
    /// Whether it was said where its past begins.
    has_past: bool,
}

/// A read that cannot be answered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFresh {
    /// The revision belongs to another process: its history is unknown here.
    Foreign,
    /// The revision lies in the future and did not arrive in time.
    TooLarge {
        /// The newest revision there is.
        current: Revision,
    },
}

/// The state of a source that objects are computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// What it is: `replicasets.apps`.
    pub resource: String,
    /// Whether all of it has been in view.
    pub is_synced: bool,
    /// Why the cluster does not show it now, if it does not.
    pub watch_error: Option<String>,
    /// Since when it does not.
    pub unseen_since: Option<Instant>,
    /// Why it is not kept, if there is more of it than may be kept.
    pub excess: Option<String>,
    /// How many objects of it cannot be read as their type: they are as they were, or left out.
    pub unreadable: usize,
    /// Of what objects can be computed without, whether they are computed without it now.
    pub is_left_out: Option<bool>,
    /// Whether the cluster does not have it, as clusters may: clients are not warned of that.
    pub is_rightly_absent: bool,
}

/// How old a view may be before clients are warned.
const WARNING_AGE: Duration = Duration::from_secs(60);

impl SourceState {
    /// How long the cluster has not shown it.
    pub fn age(&self) -> Duration {
        self.unseen_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Each resource once: the worst, where some of it is in view and some is not, and what is needed
    /// rather than what is not.
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

    /// Whether nothing can be computed without it.
    pub fn is_needed(&self) -> bool {
        self.is_left_out.is_none()
    }

    /// Whether what is shown of it is how it was last, or later.
    pub fn is_in_view(&self) -> bool {
        self.is_synced && self.excess.is_none() && self.is_left_out != Some(true)
    }

    /// How bad it is.
    pub fn severity(&self) -> impl Ord + use<> {
        let (is_away, unreadable) = (self.watch_error.is_some(), self.unreadable);
        (!self.is_in_view(), !self.is_rightly_absent, is_away, self.age(), unreadable)
    }

    /// What clients are to know of it, if anything.
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
            format!("{resource} are shown as they were {seconds} seconds ago: the cluster does not show them now")
        })
    }
}

/// How much a cache holds.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Objects.
    pub objects: usize,
    /// Bytes that they take.
    pub bytes: usize,
    /// The revision up to which it shows everything.
    pub revision: Revision,
    /// Changes of the recent past.
    pub window: usize,
    /// Bytes that they take.
    pub window_bytes: usize,
    /// How old the oldest of them is.
    pub window_age: Duration,
}

/// The objects of one kind now, and their recent past.
pub struct WatchCache {
    timeline: Arc<Timeline>,
    state: RwLock<State>,
    /// The bytes of the window, as they are counted in the budget.
    window_bytes: AtomicUsize,
    budget: Arc<WindowBudget>,
    /// Moments of the past that were asked for last.
    rewound: Mutex<VecDeque<Snapshot>>,
    subscribers: Subscribers,
    /// Keys of objects that cannot be read.
    damaged: RwLock<Vec<Key>>,
    synced: watch::Sender<bool>,
    sources: RwLock<Vec<SourceState>>,
}

impl WatchCache {
    /// An empty cache that is not synced yet, and whose past takes so many bytes of objects.
    pub fn new(timeline: Arc<Timeline>, window: usize) -> Self {
        Self::with_budget(timeline, window, Arc::new(WindowBudget::new(usize::MAX)))
    }

    /// The same, whose past is also limited by a budget that other caches share.
    pub fn sharing(
        timeline: Arc<Timeline>,
        window: usize,
        budget: &Arc<WindowBudget>,
    ) -> Arc<Self> {
        let cache = Arc::new(Self::with_budget(timeline, window, Arc::clone(budget)));
        budget.add(&cache);
        cache
    }

    fn with_budget(timeline: Arc<Timeline>, window: usize, budget: Arc<WindowBudget>) -> Self {
        let revision = timeline.current();
        let window = Window::starting(revision, window);
        let objects = Objects::default();
        let state = State { objects, window, revision, changes: 0, has_past: false };
        Self {
            timeline,
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

    /// How much it holds.
    pub fn extent(&self) -> Extent {
        let visible = self.timeline.current();
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

    /// Notes the state of the sources that the objects are computed from.
    pub fn set_sources(&self, sources: Vec<SourceState>) {
        *self.sources.write().unwrap_or_else(PoisonError::into_inner) = sources;
    }

    /// The state of the sources that the objects are computed from.
    pub fn sources(&self) -> Vec<SourceState> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says that the cache holds everything there was to begin with: its past
    /// begins now, unless it is known what was before.
    pub fn mark_synced(&self) {
        if self.is_synced() {
            return;
        }
        let mut state = self.write();
        if !state.has_past {
            let start = state.revision.max(self.timeline.current());
            state.window = Window::starting(start, state.window.limit());
            self.count_window(&state);
        }
        drop(state);
        self.synced.send_replace(true);
    }

    /// Lets the past begin at a revision: what came until now was there before it. Whoever follows
    /// changes already has to begin anew.
    fn begin_past(&self, oldest: Revision) {
        let mut state = self.write();
        state.has_past = true;
        self.lose_past(state, oldest);
    }

    /// Lets go of the past: whoever follows changes has to begin anew.
    pub fn forget_past(&self) {
        let state = self.write();
        let start = state.revision.max(self.timeline.current());
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

    /// Whether the cache holds everything there was to begin with.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns when the cache is synced.
    pub async fn wait_synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// The object under the key.
    pub fn get(&self, key: &Key) -> Option<Versioned> {
        self.read().objects.get(key).cloned()
    }

    /// The objects before and behind a key.
    pub fn neighbours(&self, key: &Key) -> Vec<Versioned> {
        self.read().objects.neighbours(key).cloned().collect()
    }

    /// An object of a scope that is there and cannot be read, if there is one.
    pub fn damaged_in(&self, scope: &Scope) -> Option<Key> {
        let damaged = self.damaged.read().unwrap_or_else(PoisonError::into_inner);
        damaged.iter().find(|key| scope.contains(key)).cloned()
    }

    /// Everything there is now.
    pub fn snapshot(&self) -> Snapshot {
        // First the timeline: what it counts is published in all caches.
        let visible = self.timeline.current();
        let state = self.read();
        Snapshot::new(state.objects.clone(), visible.max(state.revision))
    }

    /// How often an object has come, changed or gone: as long as that is the same, so are the objects.
    pub fn changes(&self) -> u64 {
        self.read().changes
    }

    /// Everything there was at a revision that has arrived: what changed since
    /// is undone. `None` if the window does not reach back so far.
    pub async fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        let (mut snapshot, since) = {
            let state = self.read();
            if !self.timeline.may_have_issued(revision) || revision < state.window.start() {
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
            // The window may have moved on meanwhile.
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

    /// Leaves this revision behind, if it is the newest one: what is read from now on has a larger number, also where
    /// nothing has changed.
    pub fn pass(&self, revision: Revision) {
        let pass = |next| if next == self.timeline.after(revision) { Ok(()) } else { Err(()) };
        // Something else has done it already.
        let _ = self.timeline.publish(pass);
    }

    /// Whether the cache is at least as new as the revision.
    pub fn has_reached(&self, revision: Revision) -> bool {
        revision <= self.timeline.current()
    }

    /// Returns when the cache is at least as new as the revision.
    ///
    /// # Errors
    /// When the revision comes from another process, or not within three seconds.
    pub async fn wait_until(&self, revision: Revision) -> Result<(), NotFresh> {
        if !self.timeline.may_have_issued(revision) {
            return Err(NotFresh::Foreign);
        }
        let arrived = self.timeline.wait_until(revision);
        let in_time = tokio::time::timeout(FRESHNESS_WAIT, arrived).await;
        in_time.map_err(|_| NotFresh::TooLarge { current: self.timeline.current() })
    }

    /// Follows changes of a scope from now on; answers what there is now.
    pub fn subscribe(self: &Arc<Self>, scope: Scope) -> (Snapshot, Subscription) {
        let slot = self.subscribers.add(scope);
        let snapshot = self.snapshot();
        let cursor = snapshot.revision();
        (snapshot, Subscription::new(Arc::clone(self), slot, cursor))
    }

    /// Follows changes of a scope after a revision.
    ///
    /// # Errors
    /// When changes since then have left the window, or were never known here.
    pub fn subscribe_after(
        self: &Arc<Self>,
        scope: Scope,
        revision: Revision,
    ) -> Result<Subscription, Lost> {
        let slot = self.subscribers.add(scope);
        let subscription = Subscription::new(Arc::clone(self), slot, revision);
        let oldest = self.read().window.start();
        if revision < oldest || !self.timeline.may_have_issued(revision) {
            return Err(Lost { oldest });
        }
        Ok(subscription)
    }

    /// Notes that what is kept under a key cannot be read.
    fn mark_damaged(&self, key: Key) {
        // First this: whoever does not find it then knows why.
        let mut damaged = self.damaged.write().unwrap_or_else(PoisonError::into_inner);
        if !damaged.contains(&key) {
            damaged.push(key.clone());
        }
        drop(damaged);
        let mut state = self.write();
        state.objects.remove(&key);
        state.changes += 1;
    }

    /// Notes that what is kept under a key can be read, or is gone.
    fn mark_mended(&self, key: &Key) {
        let is_any = !self.damaged.read().unwrap_or_else(PoisonError::into_inner).is_empty();
        if is_any {
            let mut damaged = self.damaged.write().unwrap_or_else(PoisonError::into_inner);
            damaged.retain(|other| other != key);
        }
    }

    /// Takes a change: the object that is kept under the key since this
    /// revision, or `None` after a removal. Revisions must grow.
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

    /// Notes that changes have left the window.
    fn lose_changes(&self, state: &State, gone: &[Arc<WatchCacheEvent>]) {
        self.count_window(state);
        // Before anybody can read on from where they were.
        self.subscribers.lose(gone);
        if !gone.is_empty() {
            let oldest = state.window.start();
            // What has left the window is held by nobody here.
            self.rewound().retain(|snapshot| snapshot.revision() >= oldest);
        }
    }

    /// Removes about so many bytes of the oldest changes, but for the newest `kept` ones. Returns how many bytes that were.
    fn shed(&self, bytes: usize, kept: usize) -> usize {
        let mut state = self.write();
        let before = state.window.bytes();
        let gone = state.window.shed(bytes, kept);
        self.lose_changes(&state, &gone);
        let after = state.window.bytes();
        drop(state);
        before - after
    }

    /// Counts the window in the budget, as large as it is now.
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
