//! Stores the generations of objects that other programs have changed.

use std::sync::Arc;

use super::in_flight::InFlight;
use super::write::RecordChange;
use super::{BackendStore, Entry, SYSTEM};
use crate::backend::calls::Write;
use crate::backend::erased::BATCH;
use crate::backend::metadata_store::StoredMetadata;
use crate::backend::origin::generation_of;
use crate::backend::{BackendError, Item, WriteContext, objects};
use crate::log_throttle::{LogThrottle, shown};
use crate::object::{Key, Object, metadata};
use crate::storage::{Commit, Precondition, Revision, StoreError};
use crate::user::User;

/// Throttles the log about generations that a backend does not store.
static UNSTORED: LogThrottle = LogThrottle::at_most(5);

/// A known object, with its revision and its entry.
type Known = (Item<Arc<Object>>, Revision, Entry);

impl BackendStore {
    /// Notes whether the generation of a known object is newer than the stored one.
    pub(super) fn note_generation(&self, object: &Object, stored: &StoredMetadata) {
        let newest = generation_of(metadata::of(&object.to_tree()));
        let is_unsaved =
            generation_of(&stored.metadata).is_some_and(|stored| newest > Some(stored));
        let mut state = self.lock();
        match (is_unsaved, &self.metadata) {
            (true, Some(records)) => {
                state.unsaved.insert(object.key().clone());
                records.changed.notify_one();
            }
            _ => drop(state.unsaved.remove(object.key())),
        }
    }

    /// Notes whether the generation of an object of a backend that stores all metadata must be written to the backend,
    /// which has returned the generation `given`. `former` is the object that was known before.
    pub(super) fn note_counted(&self, object: &Object, given: Option<i64>, former: Option<&Known>) {
        if !self.backend.keeps_metadata() || !self.writes().update {
            return;
        }
        let of = |object: &Object| generation_of(metadata::of(&object.to_tree()));
        let generation = of(object);
        let mut state = self.lock();
        if generation == given {
            state.unsaved.remove(object.key());
        } else if former.is_some_and(|(former, ..)| of(&former.object) < generation) {
            state.unsaved.insert(object.key().clone());
            self.counted.notify_one();
        }
    }

    /// Writes the generation of one object to its backend, which stores all metadata. The feed is notified if others remain,
    /// so that it can take over changes in between.
    async fn write_generations(&self) {
        let keys: Vec<Key> = self.lock().unsaved.iter().cloned().collect();
        // A running write of an object has the generation.
        let lock = |key: &Key| Some((key.clone(), self.locks.try_lock(key)?));
        let Some((key, lock)) = keys.iter().find_map(lock) else { return };
        if keys.len() > 1 {
            self.counted.notify_one();
        }
        self.lock().unsaved.remove(&key);
        let in_flight = InFlight::begin(self, &key, lock);
        let Some(known) = self.known(&key) else { return };
        self.write_generation(&key, known).await;
        drop(in_flight);
    }

    async fn write_generation(&self, key: &Key, (known, revision, entry): Known) {
        let new = known.object.to_tree();
        let mut old = new.clone();
        metadata::edit(&mut old, |metadata| drop(metadata.remove("generation")));
        let old = Item { object: old, etag: entry.etag.clone() };
        let write = Write::Update(old, new, Arc::clone(&entry.kept));
        let user = User { name: SYSTEM.to_owned(), ..User::default() };
        let written = match self.backend.writer.write(WriteContext::new(&user, "", ""), write).await
        {
            Ok(written) => written.map(|item| (item, None)),
            Err(BackendError::Conflict | BackendError::NotFound) => {
                // Another program was faster. The generation is written when the object has been read again.
                self.lock().unsaved.insert(key.clone());
                return self.note_unresolved(key);
            }
            Err(error) => {
                if error.is_unknown() {
                    self.note_unresolved(key);
                }
                // The next write of the object has the generation.
                return UNSTORED.log(|suppressed| {
                    let (kind, object) = (self.kind.qualified(), shown(key));
                    tracing::error!(suppressed, kind, object, %error, "cannot store a generation");
                });
            }
        };
        let commit = Commit {
            collection: self.collection.clone(),
            key: key.clone(),
            expected: Precondition::At(revision),
            object: Some(known.object),
            marks: false,
        };
        // An object that does not belong to the kind is read again.
        let _ = self.finish(&commit, written, (RecordChange::default(), entry)).await;
    }

    /// Stores generations that are newer than the stored ones. The feed is notified if some remain.
    pub(in crate::backend) async fn save_generations(&self) {
        let Some(records) = &self.metadata else { return self.write_generations().await };
        let keys: Vec<Key> = self.lock().unsaved.iter().take(BATCH).cloned().collect();
        let mut saved = 0;
        for key in keys {
            match self.save_generation(&key).await {
                Ok(is_saved) => saved += usize::from(is_saved),
                // The next poll or the next change tries again.
                Err(error) => return self.log_metadata(&key, &error),
            }
        }
        if saved == BATCH {
            records.changed.notify_one();
        }
    }

    /// Stores the generation of an object. Returns whether it is stored now.
    async fn save_generation(&self, key: &Key) -> Result<bool, StoreError> {
        let Some(records) = &self.metadata else { return Ok(false) };
        // A write of the object stores the generation, or wakes the feed.
        let Some(_lock) = self.locks.try_lock(key) else { return Ok(false) };
        let known = self.known(key).filter(|(.., entry)| entry.record.is_some());
        let Some((known, _, entry)) = known else {
            self.lock().unsaved.remove(key);
            return Ok(false);
        };
        let Ok(record) =
            objects::record(&self.kind, &known.object.to_parts(), &entry.kept, entry.is_timeless)
        else {
            return Ok(false);
        };
        match records.save(key, Some(record), entry.record, true).await {
            Ok(saved) => {
                let mut state = self.lock();
                state.unsaved.remove(key);
                if let Some(entry) = state.entries.get_mut(key) {
                    entry.record = saved;
                }
                Ok(true)
            }
            // Another replica has changed the record, and the feed takes it over.
            Err(StoreError::Exists | StoreError::Absent | StoreError::Changed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
