//! The memory budget for the recent changes of all kinds of a server. Kinds share one limit as they are added and
//! removed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::WatchCache;

/// The limit for the recent changes of all kinds, in bytes of objects, in a server with memory to spare.
pub const BYTES_LIMIT: usize = 32 << 20;
/// The limit in a small container, in bytes of objects. The largest change fits.
pub const LEAST_BYTES_LIMIT: usize = 4 << 20;

/// A limit that the windows of several caches share. When it is exceeded, the largest window drops its oldest changes.
#[derive(Debug)]
pub struct WindowBudget {
    limit: usize,
    used: AtomicUsize,
    caches: Mutex<Vec<Weak<WatchCache>>>,
}

impl WindowBudget {
    /// Creates a budget of this number of bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), caches: Mutex::default() }
    }

    /// The size of all windows, in bytes.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Updates the budget after the size of a window has changed.
    pub(super) fn replace(&self, before: usize, now: usize) {
        self.used.fetch_add(now, Ordering::Relaxed);
        self.used.fetch_sub(before, Ordering::Relaxed);
    }

    pub(super) fn add(&self, cache: &Arc<WatchCache>) {
        let mut caches = self.lock();
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Arc::downgrade(cache));
    }

    /// Removes the oldest changes from the largest windows until all windows fit. The newest change of `changed` stays.
    pub(super) fn balance(&self, changed: &WatchCache) {
        while let Some(excess) = self.used().checked_sub(self.limit).filter(|excess| *excess > 0) {
            let caches: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
            let Some(largest) = caches.iter().max_by_key(|cache| cache.window_bytes()) else {
                return;
            };
            let is_changed = std::ptr::eq(Arc::as_ptr(largest), changed);
            if largest.shed(excess, usize::from(is_changed)) == 0 {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<WatchCache>>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
