//! The readers of the collection of a kind that was added at run time: its cache, and the counter of its quotas.

use std::sync::{Arc, Mutex, PoisonError};

use super::Parts;
use crate::kind::Kind;
use crate::object::Key;
use crate::storage::{Collection, LogEntry, LogReader, Revision, Store, StoreError, Versioned};
use crate::watch_cache::{Scope, WatchCache};

/// The readers of the collection of a kind.
pub(super) struct Followed {
    pub cache: Arc<WatchCache>,
    /// Counts the objects against quotas.
    counter: Option<Arc<dyn LogReader>>,
    /// The readers that are registered with the store.
    readers: Vec<Arc<Detachable>>,
}

/// A reader that can be detached from its store. A store may hold its readers until it is dropped (`Store::unfollow`).
/// A counter that still followed the collection would count objects of the next definition twice.
struct Detachable(Mutex<Option<Arc<dyn LogReader>>>);

impl Detachable {
    fn reader(&self) -> Option<Arc<dyn LogReader>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn detach(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl LogReader for Detachable {
    fn begin(&self, oldest: Revision) {
        if let Some(reader) = self.reader() {
            reader.begin(oldest);
        }
    }

    fn damage(&self, key: Key) {
        if let Some(reader) = self.reader() {
            reader.damage(key);
        }
    }

    fn append(&self, entry: LogEntry) {
        if let Some(reader) = self.reader() {
            reader.append(entry);
        }
    }
}

impl Followed {
    /// Follows the collection of a kind, for its cache and for quotas.
    pub(super) async fn new(parts: &Parts, kind: &Kind) -> Result<Self, StoreError> {
        let (window, windows) = &parts.window;
        let cache = WatchCache::sharing(parts.store.sequencer(), *window, windows);
        let counter = parts.usages.as_ref().map(|usages| usages.counter(kind));
        let collection = Collection::new(&kind.qualified());
        let mut readers = Vec::new();
        for reader in [Some(cache.clone() as Arc<dyn LogReader>), counter.clone()] {
            let Some(reader) = reader else { continue };
            let reader = Arc::new(Detachable(Mutex::new(Some(reader))));
            parts.store.follow(&collection, Arc::clone(&reader) as Arc<dyn LogReader>).await?;
            readers.push(reader);
        }
        cache.mark_synced();
        Ok(Self { cache, counter, readers })
    }

    /// Stops following the collection, and subtracts the remaining objects from the quota counts.
    pub(super) fn end(self, store: &dyn Store, qualified: &str) {
        let collection = Collection::new(qualified);
        for reader in self.readers {
            reader.detach();
            store.unfollow(&collection, &(reader as Arc<dyn LogReader>));
        }
        let Some(counter) = self.counter else { return };
        for Versioned { revision, object } in self.cache.snapshot().from(&Scope::All, None) {
            let (revision, key, before) = (*revision, object.key().clone(), Some(object.clone()));
            counter.append(LogEntry { revision, key, before, object: None });
        }
    }
}
