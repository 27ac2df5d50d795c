//! The marks of keys whose objects are being written or read.

use tokio::sync::OwnedMutexGuard;

use super::BackendStore;
use crate::object::Key;

/// Holds the lock of a key. Events of the feed for this key are ignored as long as this value exists. If one was ignored,
/// the feed reads the object again afterwards, also if the write was cancelled.
pub(super) struct InFlight<'a> {
    store: &'a BackendStore,
    key: Key,
    lock: Option<OwnedMutexGuard<()>>,
}

impl<'a> InFlight<'a> {
    pub(super) fn begin(store: &'a BackendStore, key: &Key, lock: OwnedMutexGuard<()>) -> Self {
        store.lock().in_flight.insert(key.clone());
        Self { store, key: key.clone(), lock: Some(lock) }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.store.lock().in_flight.remove(&self.key);
        // First, because the feed needs the lock as soon as it is notified.
        drop(self.lock.take());
        let state = self.store.lock();
        if state.unresolved.contains(&self.key) {
            self.store.refresh.notify_one();
        }
        match &self.store.metadata {
            Some(metadata) => metadata.changed.notify_one(),
            None if state.unsaved.contains(&self.key) => self.store.counted.notify_one(),
            None => {}
        }
    }
}
