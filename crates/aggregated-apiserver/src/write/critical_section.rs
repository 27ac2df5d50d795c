//! The critical section of a write: from its commit until the commit is published.
//!
//! A write that is cancelled there would release its quota reservation, its commit gate and its permits while the
//! store still commits. A request that ends early therefore leaves its write to a task, until the write leaves the
//! critical section (`request/detached`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::guards::Outcome;
use crate::quota::MemoryScale;

/// The limit of the commits that hold no other permit, in bytes of objects, and the same limit in a small container.
const LIMIT: usize = 16 << 20;
const LEAST: usize = LIMIT / 8;
/// The limit of the number of these commits.
const COUNT: usize = 256;
/// The unit of the semaphore.
const UNIT: usize = 1 << 10;

/// Limits the commits of clients that hold no permit: members of `system:masters`.
#[derive(Clone, Debug)]
pub struct CommitLimit {
    semaphore: Arc<Semaphore>,
    bytes: usize,
}

/// The limit of the commits of members of `system:masters`, in bytes of objects.
pub fn commit_limit(portion: MemoryScale) -> usize {
    portion.between(LEAST, LIMIT)
}

impl CommitLimit {
    /// A limit of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(bytes.div_ceil(UNIT))), bytes }
    }

    /// Waits until an object of this size may be committed.
    async fn acquire(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = bytes.clamp(self.bytes / COUNT, self.bytes);
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.semaphore.acquire_many(units).await.ok()
    }
}

/// The critical section of one write. Clones refer to the same section.
#[derive(Clone, Debug, Default)]
pub struct CriticalSection(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_entered: AtomicBool,
    has_committed: AtomicBool,
    has_created: AtomicBool,
    /// Receives the outcome of the first commit whose outcome was unknown.
    unknown: Mutex<Option<oneshot::Receiver<Outcome>>>,
    limit: Option<CommitLimit>,
}

/// The critical section is entered until this is dropped.
#[derive(Debug)]
pub struct Entered<'a> {
    state: &'a State,
    _permit: Option<SemaphorePermit<'a>>,
}

impl CriticalSection {
    /// The critical section of a client whose commits are limited by `limit` alone.
    pub fn limited(limit: CommitLimit) -> Self {
        Self(Arc::new(State { limit: Some(limit), ..State::default() }))
    }

    /// Enters the critical section to commit an object of this size. The wait for a permit can be cancelled.
    pub async fn enter(&self, bytes: usize) -> Entered<'_> {
        let permit = match &self.0.limit {
            Some(limit) => limit.acquire(bytes).await,
            None => None,
        };
        self.0.is_entered.store(true, Ordering::Relaxed);
        Entered { state: &self.0, _permit: permit }
    }

    /// Whether the write is in its critical section now.
    pub fn is_entered(&self) -> bool {
        self.0.is_entered.load(Ordering::Relaxed)
    }

    /// Whether the write has committed anything.
    pub fn has_committed(&self) -> bool {
        self.0.has_committed.load(Ordering::Relaxed)
    }

    /// Whether the write has created an object.
    pub fn has_created(&self) -> bool {
        self.0.has_created.load(Ordering::Relaxed)
    }

    /// Takes the receiver of the outcome, if the outcome was unknown when the store responded.
    pub fn take_unknown(&self) -> Option<oneshot::Receiver<Outcome>> {
        self.0.unknown.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Entered<'_> {
    /// Records that the store has committed, and whether the commit has created an object.
    pub fn committed(&self, has_created: bool) {
        self.state.has_committed.store(true, Ordering::Relaxed);
        self.state.has_created.fetch_or(has_created, Ordering::Relaxed);
    }

    /// Records that the outcome of a commit is unknown. The receiver gets the outcome later.
    pub fn is_unknown(&self, outcome: oneshot::Receiver<Outcome>) {
        self.state.unknown.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.state.is_entered.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_critical_section_is_entered_until_its_guard_is_dropped() {
        let section = CriticalSection::default();
        let entered = section.enter(1).now_or_never().unwrap();
        assert!(section.is_entered() && !section.has_committed());
        entered.committed(true);
        drop(entered);
        assert!(!section.is_entered() && section.has_committed() && section.has_created());
    }

    #[test]
    fn commits_without_permits_are_limited_in_number_and_in_bytes() {
        let limit = CommitLimit::new(LIMIT);
        for (bytes, count) in [(0, COUNT), (1 << 20, 16), (usize::MAX, 1)] {
            let sections = vec![CriticalSection::limited(limit.clone()); 300];
            let entered = sections.iter().map_while(|one| one.enter(bytes).now_or_never());
            assert_eq!(entered.collect::<Vec<_>>().len(), count, "{bytes}");
        }
        let waiting = CriticalSection::limited(limit.clone());
        let held = CriticalSection::limited(limit);
        let held = held.enter(usize::MAX).now_or_never();
        assert!(held.is_some() && waiting.enter(0).now_or_never().is_none());
        assert!(!waiting.is_entered(), "waiting can be cancelled");
    }
}
