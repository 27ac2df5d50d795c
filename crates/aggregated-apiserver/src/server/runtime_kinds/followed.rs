//! The readers of the collection of a kind that was added at run time: its cache, and the counter of its quotas.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::BackendStore;
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
    /// The backend of a kind whose objects are not in the store of the server.
    backend: Option<RunningBackend>,
}

/// A backend that serves a kind.
pub(super) struct RunningBackend {
    /// The store of a virtual kind.
    pub store: Option<Arc<BackendStore>>,
    /// Ends the reads of a direct kind.
    pub ended: CancellationToken,
    /// The feed. The tasks are aborted when this value is dropped.
    pub tasks: JoinSet<()>,
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
    /// Follows a collection, for a cache and for the counter of quotas.
    pub(super) async fn new(
        store: &dyn Store,
        collection: &Collection,
        (cache, counter): (Arc<WatchCache>, Option<Arc<dyn LogReader>>),
    ) -> Result<Self, StoreError> {
        let mut readers = Vec::new();
        for reader in [Some(cache.clone() as Arc<dyn LogReader>), counter.clone()] {
            let Some(reader) = reader else { continue };
            let reader = Arc::new(Detachable(Mutex::new(Some(reader))));
            store.follow(collection, Arc::clone(&reader) as Arc<dyn LogReader>).await?;
            readers.push(reader);
        }
        Ok(Self { counter, readers, ..Self::of_cache(cache) })
    }

    /// A cache that follows no collection.
    pub(super) fn of_cache(cache: Arc<WatchCache>) -> Self {
        Self { cache, counter: None, readers: Vec::new(), backend: None }
    }

    pub(super) fn with_backend(self, backend: RunningBackend) -> Self {
        Self { backend: Some(backend), ..self }
    }

    /// Whether the objects are in a backend.
    pub(super) fn has_backend(&self) -> bool {
        self.backend.is_some()
    }

    /// Ends the reads of the backend and its feed. Returns the store of a virtual kind.
    pub(super) async fn end_backend(&mut self) -> Option<Arc<BackendStore>> {
        let mut backend = self.backend.take()?;
        backend.ended.cancel();
        backend.tasks.shutdown().await;
        if let Some(store) = &backend.store {
            store.leave_metadata();
        }
        backend.store
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
