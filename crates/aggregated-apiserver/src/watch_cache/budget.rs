//! The memory of the recent past of all kinds of a server: one limit, which kinds share as they come and go.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::WatchCache;

/// The recent past of all kinds together, in bytes of objects, in a server with memory to spare.
pub const BYTES_LIMIT: usize = 32 << 20;
/// The same in a small container: the largest change fits.
pub const LEAST_BYTES_LIMIT: usize = 4 << 20;

/// A limit that the windows of several caches share. Where it is exceeded the largest window gives up its oldest changes.
#[derive(Debug)]
pub struct WindowBudget {
    limit: usize,
    used: AtomicUsize,
    caches: Mutex<Vec<Weak<WatchCache>>>,
}

impl WindowBudget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), caches: Mutex::default() }
    }

    /// Bytes that all windows take.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts a window that has another size now.
    pub(super) fn replace(&self, before: usize, now: usize) {
        self.used.fetch_add(now, Ordering::Relaxed);
        self.used.fetch_sub(before, Ordering::Relaxed);
    }

    pub(super) fn add(&self, cache: &Arc<WatchCache>) {
        let mut caches = self.lock();
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Arc::downgrade(cache));
    }

    /// Lets the largest windows give up changes until all fit. The newest change of `changed` stays.
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
