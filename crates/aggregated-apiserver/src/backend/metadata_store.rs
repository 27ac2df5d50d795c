//! Stores the metadata of objects whose backend does not store it: uid, labels, annotations, finalizers, managedFields
//! and all other fields. Each record is an object of the kind with metadata alone, in the store of the server.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::objects::metadata_only;
use crate::object::{Key, Object, Tree};
use crate::storage::{Collection, Commit, LogEntry, LogReader, Precondition, Store, StoreError};

/// The largest number of attempts to store a record while other replicas store it, too.
const ATTEMPTS: usize = 8;

/// The metadata of the objects of one virtual kind.
pub(crate) struct MetadataStore {
    store: Arc<dyn Store>,
    collection: Collection,
    records: Mutex<Records>,
    /// Notified when another process has changed a record, or a record is obsolete.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<Key, Arc<Object>>,
    /// The keys whose records have changed since [`MetadataStore::take_changed`].
    changed: HashSet<Key>,
    /// The keys whose objects were deleted.
    obsolete: HashSet<Key>,
}

impl LogReader for MetadataStore {
    fn append(&self, entry: LogEntry) {
        let mut records = self.lock();
        match entry.object {
            Some(object) => drop(records.by_key.insert(entry.key.clone(), object)),
            None => drop(records.by_key.remove(&entry.key)),
        }
        records.changed.insert(entry.key);
        self.changed.notify_one();
    }
}

impl MetadataStore {
    /// Follows the records of a collection.
    ///
    /// # Errors
    /// If the store cannot be followed.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        collection: Collection,
    ) -> Result<Arc<Self>, StoreError> {
        let metadata = Arc::new(Self {
            store: Arc::clone(&store),
            collection: collection.clone(),
            records: Mutex::default(),
            changed: Notify::new(),
        });
        store.follow(&collection, metadata.clone()).await?;
        Ok(metadata)
    }

    /// Waits until all records have been read.
    pub(super) async fn known(&self) {
        self.store.known().await;
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stored metadata of an object.
    pub(super) fn get(&self, key: &Key) -> Option<Tree> {
        let record = self.lock().by_key.get(key).cloned()?;
        let mut tree = record.to_tree();
        match tree.remove("metadata") {
            Some(serde_json::Value::Object(metadata)) => Some(metadata),
            _ => None,
        }
    }

    /// Stores the metadata of an object, or removes its record.
    ///
    /// # Errors
    /// The reason why the record cannot be stored.
    pub(super) async fn save(&self, key: &Key, object: Option<&Object>) -> Result<(), String> {
        let record = object.map(metadata_only).transpose()?;
        for _ in 0..ATTEMPTS {
            match self.save_once(key, record.clone()).await {
                Err(StoreError::Changed { .. } | StoreError::Exists | StoreError::Absent) => {}
                outcome => return outcome.map_err(|error| error.to_string()),
            }
        }
        Err("other writers change its metadata all the time".to_owned())
    }

    async fn save_once(&self, key: &Key, record: Option<Arc<Object>>) -> Result<(), StoreError> {
        let known = self.store.get(&self.collection, key).await?;
        let is_same = match (&known, &record) {
            (Some(known), Some(record)) => known.object.same_content(record),
            (known, record) => known.is_none() && record.is_none(),
        };
        if is_same {
            return Ok(());
        }
        let expected = known.map_or(Precondition::Absent, |known| Precondition::At(known.revision));
        let commit = Commit {
            collection: self.collection.clone(),
            key: key.clone(),
            expected,
            marks: record.is_none(),
            object: record,
        };
        self.store.commit(commit).await.map(drop)
    }

    /// Notes that the object of a record was deleted.
    pub(super) fn note_deleted(&self, key: &Key) {
        let mut records = self.lock();
        if records.by_key.contains_key(key) {
            records.obsolete.insert(key.clone());
            self.changed.notify_one();
        }
    }

    /// The keys of all records.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().by_key.keys().cloned().collect()
    }

    /// Takes the keys whose records have changed.
    pub(super) fn take_changed(&self) -> HashSet<Key> {
        std::mem::take(&mut self.lock().changed)
    }

    /// Takes the keys whose objects were deleted.
    pub(super) fn take_obsolete(&self) -> HashSet<Key> {
        std::mem::take(&mut self.lock().obsolete)
    }
}
