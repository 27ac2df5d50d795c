//! Takes over what the feed has read from the backend, and the metadata that other processes have stored.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::in_flight::InFlight;
use super::publish::Condition;
use super::{BackendStore, Entry};
use crate::backend::erased::{BATCH, Feed};
use crate::backend::metadata_store::StoredMetadata;
use crate::backend::objects;
use crate::backend::origin::{Former, Omitted, generation_of};
use crate::backend::{BackendError, Item};
use crate::log_throttle::{LogThrottle, shown};
use crate::object::{Key, Tree, metadata};
use crate::storage::StoreError;

/// Throttles the log about metadata that cannot be stored.
static UNSTORED: LogThrottle = LogThrottle::at_most(5);

/// The outcome for one object of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Taken {
    /// It is known now.
    Known,
    /// It may be older than a write, so it was ignored.
    Skipped,
    /// It does not belong to the kind. This was logged.
    Unfit,
}

impl BackendStore {
    /// The time before the next list or stream begins.
    pub(in crate::backend) fn begin_list(&self) -> u64 {
        self.lists.send_modify(|lists| lists.begun += 1);
        self.lock().written.now()
    }

    /// Ends a list that began at this time. `is_complete` is false if the backend has not returned all objects.
    pub(in crate::backend) fn end_list(&self, begun: u64, is_complete: bool) {
        if is_complete {
            self.lock().written.forget_until(begun);
        }
        self.lists.send_modify(|lists| {
            lists.ended = lists.begun;
            if is_complete {
                lists.complete = lists.begun;
            }
        });
    }

    /// Takes over an object that was read after this time, or its deletion.
    ///
    /// # Errors
    /// If the known objects exceed their memory limit.
    pub(in crate::backend) fn take(
        &self,
        key: &Key,
        item: Option<Item<Tree>>,
        read_after: u64,
    ) -> Result<Taken, StoreError> {
        self.take_if(key, item, Condition::NotWrittenSince(read_after))
    }

    fn take_if(
        &self,
        key: &Key,
        item: Option<Item<Tree>>,
        condition: Condition,
    ) -> Result<Taken, StoreError> {
        let Some(Item { object, etag }) = item else {
            let published = self.publish(key, (None, Entry::default()), condition)?;
            if let (Some(_), Some(metadata)) = (published, &self.metadata) {
                metadata.note_without_object(key);
            }
            return Ok(published.map_or(Taken::Skipped, |_| Taken::Known));
        };
        let record = self.metadata.as_ref().and_then(|metadata| metadata.get(key));
        let record_revision = record.as_ref().map(|record| record.revision);
        let hash = self.hash(etag.as_deref(), &object);
        let is_known = |entry: &Entry| entry.hash == Some(hash) && entry.record == record_revision;
        let state = self.lock();
        if state.entries.get(key).is_some_and(is_known) {
            let known = state.index.get(&self.collection, key).ok().flatten();
            let is_newest = condition.is_met(&state, key, known);
            return Ok(if is_newest { Taken::Known } else { Taken::Skipped });
        }
        drop(state);
        if self.metadata.as_ref().is_some_and(|metadata| metadata.is_damaged(key)) {
            self.log_unfit(key, "its stored metadata is damaged");
            return Ok(Taken::Unfit);
        }
        let kept = self.backend.kept_fields(&object);
        let is_timeless = metadata::text(&object, "creationTimestamp").is_empty();
        let given = generation_of(metadata::of(&object));
        let stored = record.map(|record| StoredMetadata::of(&record.object));
        let (known, now) = (self.known(key), self.now());
        let former = Former {
            omitted: stored.as_ref().map_or(Omitted::Nothing, Omitted::Stored),
            known: known.as_ref().map(|(known, ..)| &*known.object),
            now: Some(&now),
            keeps_generation: self.backend.keeps_metadata(),
        };
        match objects::to_object(&self.kind, object, former, &kept) {
            Ok(object) => {
                let object = Arc::new(object);
                let (hash, record) = (Some(hash), record_revision);
                let entry = Entry { etag, hash, record, kept, is_timeless };
                let change = (Some(Arc::clone(&object)), entry);
                let published = self.publish(key, change, condition)?;
                match (published, stored) {
                    (Some(_), Some(stored)) => self.note_generation(&object, &stored),
                    (Some(_), None) => self.note_counted(&object, given, known.as_ref()),
                    (None, _) => {}
                }
                Ok(published.map_or(Taken::Skipped, |_| Taken::Known))
            }
            Err(why) => {
                self.log_unfit(key, &why);
                Ok(self.take_etag(key, etag, condition))
            }
        }
    }

    /// Takes over the etag of an object that does not belong to the kind any more, so that a client can still replace or
    /// delete the object. The known object stays.
    fn take_etag(&self, key: &Key, etag: Option<String>, condition: Condition) -> Taken {
        let mut state = self.lock();
        let known = state.index.get(&self.collection, key).ok().flatten();
        if known.is_some() && !condition.is_met(&state, key, known) {
            return Taken::Skipped;
        }
        if let Some(entry) = state.entries.get_mut(key) {
            (entry.etag, entry.hash) = (etag, None);
        }
        Taken::Unfit
    }

    fn hash(&self, etag: Option<&str>, object: &Tree) -> u64 {
        struct Hashed<H>(H);
        impl<H: Hasher> io::Write for Hashed<H> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut hasher = Hashed(self.hasher.build_hasher());
        // The hasher returns no errors.
        let _ = serde_json::to_writer(&mut hasher, &(etag, object));
        hasher.0.finish()
    }

    /// Logs an object that does not belong to the kind.
    pub(in crate::backend) fn log_unfit(&self, key: &Key, why: &str) {
        objects::log_unfit(&self.kind, key, why);
    }

    /// Logs that the metadata of an object cannot be stored.
    pub(super) fn log_metadata(&self, key: &Key, error: &StoreError) {
        UNSTORED.log(|suppressed| {
            let (kind, object) = (self.kind.qualified(), shown(key));
            tracing::error!(suppressed, kind, object, %error, "cannot store the metadata of an object");
        });
    }

    /// Notes that an object must be read again: with the next list, or with `get` if the kind is watched.
    pub(in crate::backend) fn note_unresolved(&self, key: &Key) {
        if let Feed::Watched { .. } = self.backend.feed {
            self.lock().unresolved.insert(key.clone());
        }
        self.refresh.notify_one();
    }

    /// Reads the objects again whose events were ignored. Keys that are being written wait until the write has ended.
    ///
    /// # Errors
    /// The error of the backend. The remaining objects stay unresolved.
    pub(in crate::backend) async fn resolve_all(&self) -> Result<(), BackendError> {
        let keys: Vec<Key> = self.lock().unresolved.iter().cloned().collect();
        for key in keys {
            // The end of a write wakes the feed.
            let Some(lock) = self.locks.try_lock(&key) else { continue };
            self.read_again(InFlight::begin(self, &key, lock), &key).await?;
        }
        Ok(())
    }

    /// Reads one object of a watched kind again, after the writes of the object that are running.
    pub(super) async fn resolve(&self, key: &Key) -> Result<(), BackendError> {
        let lock = timeout(self.backend.timeout(), self.locks.lock(key)).await;
        let lock = lock.map_err(|_| BackendError::TimedOut(self.backend.timeout()))?;
        self.read_again(InFlight::begin(self, key, lock), key).await
    }

    /// Reads one object again. Events that arrive meanwhile may be newer, so they are resolved again afterwards.
    async fn read_again(&self, _in_flight: InFlight<'_>, key: &Key) -> Result<(), BackendError> {
        self.lock().unresolved.remove(key);
        let taken = self.backend.get(key).await.and_then(|item| {
            if item.as_ref().is_some_and(|item| objects::key(&item.object) != *key) {
                return Err(BackendError::internal("the backend has returned another object"));
            }
            // Older events may follow.
            self.lock().written.add(key);
            let taken = self.take_if(key, item, Condition::Locked);
            taken.map(drop).map_err(|error| BackendError::internal(error.to_string()))
        });
        if taken.is_err() {
            self.lock().unresolved.insert(key.clone());
        }
        self.changed();
        taken
    }

    /// Takes over the metadata that another process has stored for an object.
    ///
    /// # Errors
    /// If the known objects exceed their memory limit.
    pub(in crate::backend) fn take_record(&self, key: &Key) -> Result<(), StoreError> {
        let Some(records) = &self.metadata else { return Ok(()) };
        let Some((known, revision, entry)) = self.known(key) else { return Ok(()) };
        let record = records.get(key);
        if entry.record == record.as_ref().map(|record| record.revision) {
            return Ok(());
        }
        let record = record.filter(|record| record.object.uid() == known.object.uid());
        let Some(record) = record else {
            // The object was deleted, or created again: only the backend knows its content.
            self.note_unresolved(key);
            return Ok(());
        };
        let stored = StoredMetadata::of(&record.object);
        let mut tree = known.object.to_tree();
        // The metadata of the backend takes precedence.
        let is_own = |field: &String| match field.as_str() {
            "name" | "namespace" => true,
            "creationTimestamp" => !entry.is_timeless,
            _ => entry.kept.contains(field),
        };
        metadata::edit(&mut tree, |metadata| metadata.retain(|field, _| is_own(field)));
        let now = self.now();
        let former = Former {
            omitted: Omitted::Stored(&stored),
            known: Some(&known.object),
            now: Some(&now),
            keeps_generation: false,
        };
        match objects::to_object(&self.kind, tree, former, &entry.kept) {
            Ok(object) => {
                let object = Arc::new(object);
                let entry = Entry { record: Some(record.revision), hash: None, ..entry };
                let change = (Some(Arc::clone(&object)), entry);
                match self.publish(key, change, Condition::At(revision))? {
                    Some(_) => self.note_generation(&object, &stored),
                    None => records.put_changed(key.clone()),
                }
            }
            Err(why) => self.log_unfit(key, &why),
        }
        Ok(())
    }

    /// Removes the records whose objects have been missing for the grace period. A backend that returns an object again
    /// before, finds its metadata. `listed` is the time when the last complete list began, for a polled kind.
    pub(in crate::backend) async fn remove_obsolete_records(&self, listed: Option<Instant>) {
        let Some(metadata) = &self.metadata else { return };
        let Some(before) = listed.unwrap_or_else(Instant::now).checked_sub(self.grace()) else {
            return;
        };
        for (key, revision) in metadata.obsolete(before).into_iter().take(BATCH) {
            let Some(_lock) = self.locks.try_lock(&key) else { continue };
            let is_there = self.revision_of(&key).is_some()
                || listed.is_none() && !matches!(self.backend.get(&key).await, Ok(None));
            if is_there {
                metadata.forget_without_object(&key);
                continue;
            }
            match metadata.save(&key, None, Some(revision), true).await {
                // Another process has stored a new record, which may have an object.
                Ok(_)
                | Err(StoreError::Absent | StoreError::Changed { .. } | StoreError::Exists) => {
                    metadata.forget_without_object(&key);
                }
                Err(error) => return self.log_metadata(&key, &error),
            }
        }
    }

    /// The time for which the metadata of a missing object is stored.
    pub(in crate::backend) fn grace(&self) -> Duration {
        self.backend.timeout().saturating_mul(2)
    }
}
