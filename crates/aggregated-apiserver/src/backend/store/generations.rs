//! Stores the generations of objects that other programs have changed.

use crate::backend::erased::BATCH;
use crate::backend::metadata_store::StoredMetadata;
use crate::backend::objects;
use crate::backend::origin::generation_of;
use crate::object::{Key, Object, metadata};
use crate::storage::StoreError;

use super::BackendStore;

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

    /// Stores generations that are newer than the stored ones. The feed is notified if some remain.
    pub(in crate::backend) async fn save_generations(&self) {
        let Some(records) = &self.metadata else { return };
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
