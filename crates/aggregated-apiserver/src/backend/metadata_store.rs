//! Stores the metadata of objects whose backend does not store it: uid, labels, annotations, finalizers, managedFields
//! and all other fields. Each record is an object with metadata alone, in a collection of its own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::kind::Kind;
use crate::object::{Key, Object, Tree};
use crate::storage::{
    Collection, Commit, LogEntry, LogReader, Precondition, Revision, Store, StoreError, Versioned,
};

/// The field of a record with the [hash](StoredMetadata::content_hash) of the object.
pub(super) const CONTENT_HASH: &str = "contentHash";

/// The field of a record whose creation time [is not that of the backend](StoredMetadata::is_first_seen).
pub(super) const FIRST_SEEN: &str = "firstSeen";

/// The metadata of the objects of one virtual kind.
pub(crate) struct MetadataStore {
    store: Arc<dyn Store>,
    collection: Collection,
    records: Mutex<Records>,
    /// Notified when a record has changed.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<Key, Versioned>,
    /// The records that cannot be read.
    damaged: HashSet<Key>,
    /// The keys whose records have changed since [`MetadataStore::take_changed`].
    changed: HashSet<Key>,
    /// The records without an object, with the time when that was noticed.
    without_object: HashMap<Key, (Revision, Instant)>,
}

impl LogReader for MetadataStore {
    fn damage(&self, key: Key) {
        self.lock().damaged.insert(key);
    }

    fn append(&self, entry: LogEntry) {
        let LogEntry { revision, key, object, .. } = entry;
        let mut records = self.lock();
        records.damaged.remove(&key);
        match object {
            Some(object) => {
                records.by_key.insert(key.clone(), Versioned { revision, object });
            }
            None => {
                records.by_key.remove(&key);
                records.without_object.remove(&key);
            }
        }
        records.changed.insert(key);
        self.changed.notify_one();
    }
}

impl MetadataStore {
    /// Follows the records of a kind.
    ///
    /// # Errors
    /// If the store cannot be followed.
    pub(crate) async fn open(store: Arc<dyn Store>, kind: &Kind) -> Result<Arc<Self>, StoreError> {
        // A stored kind of this name has another collection, so neither reads the objects of the other.
        let collection = Collection::new(&format!("{}:metadata", kind.collection()));
        let metadata = Arc::new(Self {
            store: Arc::clone(&store),
            collection: collection.clone(),
            records: Mutex::default(),
            changed: Notify::new(),
        });
        store.follow(&collection, metadata.clone()).await?;
        Ok(metadata)
    }

    /// Stops following the records.
    pub(super) fn leave(self: &Arc<Self>) {
        let reader: Arc<dyn LogReader> = self.clone();
        self.store.unfollow(&self.collection, &reader);
    }

    /// Waits until all records have been read.
    pub(super) async fn known(&self) {
        self.store.known().await;
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of an object.
    pub(super) fn get(&self, key: &Key) -> Option<Versioned> {
        self.lock().by_key.get(key).cloned()
    }

    /// Whether the record of an object cannot be read.
    pub(super) fn is_damaged(&self, key: &Key) -> bool {
        self.lock().damaged.contains(key)
    }

    /// The record of an object, as it is in the store now. [`get`](Self::get) returns this record, too, from now on.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) async fn read(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.store.get(&self.collection, key).await
    }

    /// Stores a record, or removes it, if the stored record has the expected revision. `marks` is as in
    /// [`Commit::marks`]: a full store accepts the record. Returns the new revision.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Absent`] or [`StoreError::Changed`] if another process has changed the record.
    pub(super) async fn save(
        &self,
        key: &Key,
        record: Option<Arc<Object>>,
        expected: Option<Revision>,
        marks: bool,
    ) -> Result<Option<Revision>, StoreError> {
        if record.is_none() && expected.is_none() {
            return Ok(None);
        }
        let commit = Commit {
            collection: self.collection.clone(),
            key: key.clone(),
            expected: expected.map_or(Precondition::Absent, Precondition::At),
            marks,
            object: record.clone(),
        };
        let revision = self.store.commit(commit).await?;
        Ok(record.map(|_| revision))
    }

    /// Notes that the record of a key has no object.
    pub(super) fn note_without_object(&self, key: &Key) {
        let mut records = self.lock();
        let Some(revision) = records.by_key.get(key).map(|record| record.revision) else { return };
        let noted = records.without_object.entry(key.clone());
        let noted = noted.or_insert_with(|| (revision, Instant::now()));
        if noted.0 != revision {
            *noted = (revision, Instant::now());
        }
    }

    /// Whether it was noted that the present record of a key has no object.
    pub(super) fn is_without_object(&self, key: &Key) -> bool {
        let records = self.lock();
        let noted = records.without_object.get(key).map(|(revision, _)| *revision);
        noted.is_some() && noted == records.by_key.get(key).map(|record| record.revision)
    }

    /// The records without an object for which this was noted before this time.
    pub(super) fn obsolete(&self, before: Instant) -> Vec<(Key, Revision)> {
        let records = self.lock();
        let obsolete = records.without_object.iter().filter(|(_, (_, noted))| *noted <= before);
        obsolete.map(|(key, (revision, _))| (key.clone(), *revision)).collect()
    }

    /// Forgets that the record of a key has no object.
    pub(super) fn forget_without_object(&self, key: &Key) {
        self.lock().without_object.remove(key);
    }

    /// The keys of all records.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().by_key.keys().cloned().collect()
    }

    /// Takes the keys whose records have changed.
    pub(super) fn take_changed(&self) -> HashSet<Key> {
        std::mem::take(&mut self.lock().changed)
    }

    /// Reports a record as changed again.
    pub(super) fn put_changed(&self, key: Key) {
        self.lock().changed.insert(key);
    }
}

/// The metadata in a record.
#[derive(Debug)]
pub(super) struct StoredMetadata {
    pub metadata: Tree,
    /// The hash of the object for which the generation holds.
    pub content_hash: Option<String>,
    /// Whether the creation time is the time when the library first saw the object. A backend that begins to return
    /// creation times has another one for the same object.
    pub is_first_seen: bool,
}

impl StoredMetadata {
    pub(super) fn of(record: &Object) -> Self {
        let mut tree = record.to_tree();
        let metadata = match tree.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Tree::new(),
        };
        let content_hash = tree.get(CONTENT_HASH).and_then(Value::as_str).map(str::to_owned);
        let is_first_seen = tree.get(FIRST_SEEN).is_some_and(|value| value == true);
        Self { metadata, content_hash, is_first_seen }
    }
}
