//! Writes of clients: the record of the metadata and the call of the backend.
//!
//! The record is stored before the backend is called, so no process ever sees the new object without its uid and its
//! finalizers. If the backend refuses the write, the former record is restored. Until then, other replicas see the new
//! metadata already.

use std::sync::Arc;

use tokio::time::timeout;

use super::in_flight::InFlight;
use super::publish::Condition;
use super::{BackendStore, Entry};
use crate::backend::calls::Write;
use crate::backend::erased::Feed;
use crate::backend::objects::{self, Parts};
use crate::backend::origin::{Former, Omitted};
use crate::backend::write_error::WriteError;
use crate::backend::{BackendError, Item, Reason, WriteContext};
use crate::error::ApiError;
use crate::object::{Key, Object, Tree, metadata};
use crate::storage::{Commit, Precondition, Revision, Store, StoreError, Versioned};

/// The object that a write has left.
pub(crate) struct WrittenObject {
    pub revision: Revision,
    /// `None` after a deletion.
    pub object: Option<Arc<Object>>,
}

/// The reason why an attempt has failed.
enum Failed {
    /// The write cannot succeed.
    Write(WriteError),
    /// The error of the backend, and the etag of the known object.
    Backend(BackendError, Option<String>),
    /// Another process has changed the record of the object.
    Record,
    /// A new object has a record already.
    RecordExists,
}

impl<E: Into<WriteError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Write(error.into())
    }
}

/// The change of a record, and the record before it.
#[derive(Default)]
pub(super) struct RecordChange {
    before: Option<Versioned>,
    /// The revision of the stored record; `None` if no record is stored.
    now: Option<Revision>,
}

impl BackendStore {
    /// Writes an object, or deletes it. Returns the object as the backend has stored it.
    ///
    /// # Errors
    /// The error of the precondition, of the backend or of the store.
    pub(crate) async fn write(
        &self,
        commit: Commit,
        context: WriteContext,
    ) -> Result<WrittenObject, WriteError> {
        if !self.is_known() {
            return Err(StoreError::Unavailable.into());
        }
        let key = &commit.key;
        let attempt = match self.attempt(&commit, &context, false).await {
            Err(Failed::RecordExists) => {
                // The object may exist, and be unknown here. Otherwise the record is left from an earlier object.
                let metadata = self.metadata.as_deref();
                let is_noted = metadata.is_some_and(|metadata| metadata.is_without_object(key));
                if !is_noted && !self.read_newest(key).await {
                    return Err(StoreError::Unavailable.into());
                }
                self.attempt(&commit, &context, true).await
            }
            attempt => attempt,
        };
        match attempt {
            Ok(written) => Ok(written),
            Err(Failed::Write(error)) => Err(error),
            Err(Failed::Backend(error, etag)) => Err(self.failure(&commit, error, etag).await),
            Err(Failed::Record | Failed::RecordExists) => Err(self.record_changed(&commit).await),
        }
    }

    /// Lets the backend validate a dry run, if it does so. Returns the object as the backend would store it. Nothing is
    /// published, and no record is stored.
    ///
    /// # Errors
    /// Same as [`write`](Self::write).
    pub(crate) async fn validate(
        &self,
        commit: Commit,
        context: WriteContext,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        if !self.backend.writer.validates_dry_run {
            return Ok(None);
        }
        if !self.is_known() {
            return Err(StoreError::Unavailable.into());
        }
        let (old, entry) = self.current(&commit).map_err(|failed| match failed {
            Failed::Write(error) => error,
            _ => StoreError::Unavailable.into(),
        })?;
        let write = write_of(&commit, old, &entry)?;
        match (self.backend.writer.write(context.for_dry_run(), write).await, &commit.object) {
            (Ok(Some(Item { object, .. })), Some(sent)) => {
                let parts = self.metadata.is_some().then(|| sent.to_parts());
                let written = self.as_written((&commit.key, sent), (object, parts), &entry.kept);
                written.map(Some).map_err(|why| self.unusable(&commit.key, &why))
            }
            (Ok(_), _) => Ok(None),
            (Err(error), _) => Err(self.failure(&commit, error, entry.etag).await.of_read()),
        }
    }

    /// Tries to write once.
    async fn attempt(
        &self,
        commit: &Commit,
        context: &WriteContext,
        replaces_record: bool,
    ) -> Result<WrittenObject, Failed> {
        let lock = timeout(self.backend.timeout(), self.locks.lock(&commit.key)).await;
        let lock = lock.map_err(|_| StoreError::Unavailable)?;
        let _in_flight = InFlight::begin(self, &commit.key, lock);
        let (old, entry) = self.current(commit)?;
        let write = write_of(commit, old, &entry)?;
        let sent = commit.object.as_ref().filter(|_| self.metadata.is_some());
        let sent = sent.map(|object| object.to_parts());
        let record = self.begin_record(commit, &entry, (sent.as_ref(), replaces_record)).await?;
        match self.backend.writer.write(context.clone(), write).await {
            Ok(written) => {
                let written = written.map(|written| (written, sent));
                Ok(self.finish(commit, written, (record, entry)).await?)
            }
            Err(error) => {
                self.fail_record(&commit.key, &error, record).await;
                Err(Failed::Backend(error, entry.etag))
            }
        }
    }

    /// The known object that a write replaces, and its entry.
    ///
    /// # Errors
    /// If the precondition of the write does not hold, there is no memory for the object, or the backend does not
    /// support the write.
    fn current(&self, commit: &Commit) -> Result<(Option<Item<Tree>>, Entry), Failed> {
        let state = self.lock();
        let known = state.index.get(&self.collection, &commit.key)?;
        commit.expected.check(known)?;
        self.check_memory(commit, known)?;
        if commit.marks && commit.object.is_some() && !self.writes().update {
            let why = "its finalizers cannot be removed, because the kind does not support update";
            return Err(WriteError::Refused(ApiError::new(Reason::MethodNotAllowed, why)).into());
        }
        let entry = state.entries.get(&commit.key).cloned();
        let declared =
            || Entry { kept: self.backend.writer.kept_metadata.clone(), ..Entry::default() };
        let entry = entry.unwrap_or_else(declared);
        let old = known.map(|known| known.object.to_tree());
        Ok((old.map(|object| Item { object, etag: entry.etag.clone() }), entry))
    }

    /// Stores the record of the new metadata. The record of an object that is deleted is only checked, because the
    /// object needs it until the backend has deleted the object.
    async fn begin_record(
        &self,
        commit: &Commit,
        entry: &Entry,
        (sent, replaces_record): (Option<&Parts>, bool),
    ) -> Result<RecordChange, Failed> {
        let Some(metadata) = &self.metadata else { return Ok(RecordChange::default()) };
        let before = metadata.read(&commit.key).await?;
        let is_create = commit.expected == Precondition::Absent;
        let found = before.as_ref().map(|record| record.revision);
        if is_create && found.is_some() && !replaces_record {
            return Err(Failed::RecordExists);
        }
        if !is_create && found != entry.record {
            return Err(Failed::Record);
        }
        let Some(sent) = sent else { return Ok(RecordChange { before, now: found }) };
        let record = objects::record(&self.kind, sent, &entry.kept, entry.is_timeless);
        let record = record.map_err(|why| self.unusable(&commit.key, &why))?;
        if before.as_ref().is_some_and(|before| before.object.same_content(&record)) {
            return Ok(RecordChange { before, now: found });
        }
        match metadata.save(&commit.key, Some(record), found, commit.marks).await {
            Ok(now) => Ok(RecordChange { before, now }),
            Err(StoreError::Exists | StoreError::Absent | StoreError::Changed { .. }) => {
                Err(Failed::Record)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Publishes the object that the backend has returned.
    pub(super) async fn finish(
        &self,
        commit: &Commit,
        written: Option<(Item<Tree>, Option<Parts>)>,
        (record, former): (RecordChange, Entry),
    ) -> Result<WrittenObject, WriteError> {
        let key = &commit.key;
        let (Some((Item { object, etag }, parts)), Some(sent)) = (written, &commit.object) else {
            let revision = self.publish_write(key, None, Entry::default())?;
            self.restore_record(key, None, record.now).await;
            return Ok(WrittenObject { revision, object: None });
        };
        let returned = self.as_written((key, sent), (object, parts), &former.kept);
        let object = returned.map_err(|why| {
            self.note_unresolved(key);
            self.unusable(key, &why)
        })?;
        let record = match Arc::ptr_eq(&object, sent) {
            true => record.now,
            // The backend may have set metadata, such as the uid.
            false => self.update_record(key, (&object, &former), record.now).await,
        };
        let entry = Entry { etag, hash: None, record, ..former };
        let revision = self.publish_write(key, Some(Arc::clone(&object)), entry)?;
        Ok(WrittenObject { revision, object: Some(object) })
    }

    fn publish_write(
        &self,
        key: &Key,
        object: Option<Arc<Object>>,
        entry: Entry,
    ) -> Result<Revision, StoreError> {
        let mut state = self.lock();
        state.written.add(key);
        // The record of the write has the generation.
        state.unsaved.remove(key);
        drop(state);
        let published = self.publish(key, (object, entry), Condition::Locked)?;
        Ok(published.unwrap_or_else(|| self.sequencer.current()))
    }

    /// Checks the object that the backend has returned for a write of an object. Returns the object as it is now. `sent`
    /// are the parts of the sent object if the library stores its metadata.
    fn as_written(
        &self,
        (key, sent): (&Key, &Arc<Object>),
        (mut returned, parts): (Tree, Option<Parts>),
        kept: &[String],
    ) -> Result<Arc<Object>, String> {
        objects::fill_key(&mut returned, key);
        let (known, now) = (self.known(key), self.now());
        let known = known.as_ref().map(|(known, ..)| &*known.object);
        let sent_parts = (&**sent, parts.as_ref());
        if objects::is_as_sent(&self.kind, sent_parts, &returned, (known, kept)) {
            return Ok(Arc::clone(sent));
        }
        let sent = parts.map(|_| sent.to_tree());
        let omitted =
            sent.as_ref().map_or(Omitted::Nothing, |tree| Omitted::Sent(metadata::of(tree)));
        let keeps_generation = self.backend.keeps_metadata();
        let former = Former { omitted, known, now: Some(&now), keeps_generation };
        let object = objects::to_object(&self.kind, returned, former, kept)?;
        match object.key() == key {
            true => Ok(Arc::new(object)),
            false => Err(format!("the backend has returned the object {}", object.key())),
        }
    }

    /// Stores the metadata with what the backend has added. Returns the revision of the record.
    async fn update_record(
        &self,
        key: &Key,
        (object, entry): (&Object, &Entry),
        now: Option<Revision>,
    ) -> Option<Revision> {
        let metadata = self.metadata.as_ref()?;
        let stored = metadata.get(key).filter(|record| Some(record.revision) == now);
        let parts = object.to_parts();
        let record = objects::record(&self.kind, &parts, &entry.kept, entry.is_timeless).ok()?;
        if stored.is_some_and(|stored| stored.object.same_content(&record)) {
            return now;
        }
        match metadata.save(key, Some(record), now, true).await {
            Ok(saved) => saved,
            Err(error) => {
                self.log_metadata(key, &error);
                now
            }
        }
    }

    /// Restores the record after a write that has failed. If the outcome is unknown, the record stays, because the object
    /// may exist.
    async fn fail_record(&self, key: &Key, error: &BackendError, record: RecordChange) {
        let Some(metadata) = &self.metadata else { return };
        if error.is_unknown() {
            if self.revision_of(key).is_none() {
                metadata.note_without_object(key);
            }
            return;
        }
        let RecordChange { before, now } = record;
        if before.as_ref().map(|before| before.revision) != now {
            self.restore_record(key, before.map(|before| before.object), now).await;
        }
    }

    /// Replaces a record by a former one, or removes it. If that fails, it is removed later.
    async fn restore_record(&self, key: &Key, former: Option<Arc<Object>>, now: Option<Revision>) {
        let Some(metadata) = &self.metadata else { return };
        if let Err(error) = metadata.save(key, former, now, true).await {
            self.log_metadata(key, &error);
            metadata.note_without_object(key);
        }
    }

    /// Takes over the record that another process has changed. Returns the error of the write.
    async fn record_changed(&self, commit: &Commit) -> WriteError {
        let key = &commit.key;
        let Precondition::At(at) = commit.expected else {
            // The object appears as soon as the backend lists it.
            return StoreError::Exists.into();
        };
        let before = self.known(key).map(|(.., entry)| entry.record);
        if self.take_record(key).is_err() {
            return StoreError::Unavailable.into();
        }
        if self.known(key).map(|(.., entry)| entry.record) == before {
            // Another process has deleted the object, or has created it again.
            self.read_newest(key).await;
        }
        match self.known(key) {
            None => StoreError::Absent.into(),
            Some((_, current, entry)) if current != at || Some(entry.record) != before => {
                StoreError::Changed { current }.into()
            }
            // The write would fail again in the same way.
            Some(_) => StoreError::Unavailable.into(),
        }
    }

    /// The error for the client if the backend has not accepted the write. `etag` is the one that the backend has received.
    async fn failure(
        &self,
        commit: &Commit,
        error: BackendError,
        etag: Option<String>,
    ) -> WriteError {
        let key = &commit.key;
        match error {
            BackendError::AlreadyExists | BackendError::Conflict | BackendError::NotFound => {
                // The known objects are not those of the backend any more.
                self.read_newest(key).await;
                match (commit.expected, self.known(key)) {
                    (Precondition::Absent, Some(_)) => return StoreError::Exists.into(),
                    (Precondition::At(_), None) => return StoreError::Absent.into(),
                    (Precondition::At(at), Some((known, current, _)))
                        if current != at || known.etag != etag =>
                    {
                        return StoreError::Changed { current }.into();
                    }
                    _ => {}
                }
            }
            _ if error.is_unknown() => self.note_unresolved(key),
            _ => {}
        }
        WriteError::of_backend(&self.kind, key, error)
    }

    /// Reads an object of the backend again. Returns whether the backend has responded.
    async fn read_newest(&self, key: &Key) -> bool {
        match self.backend.feed {
            Feed::Polled { .. } => {
                let before = self.revision_of(key);
                tokio::select! {
                    is_newest = self.refresh() => is_newest,
                    is_changed = self.wait_until(|store| store.revision_of(key) != before) => is_changed,
                }
            }
            Feed::Watched { .. } => match self.resolve(key).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(kind = self.kind.qualified(), %error, "cannot read an object again");
                    false
                }
            },
        }
    }

    fn unusable(&self, key: &Key, why: &str) -> WriteError {
        WriteError::unusable(&self.kind, key, why)
    }
}

/// The call of the backend for a commit. `old` is the known object that it replaces.
fn write_of(commit: &Commit, old: Option<Item<Tree>>, entry: &Entry) -> Result<Write, StoreError> {
    match (&commit.object, old) {
        (Some(new), None) => Ok(Write::Create(Arc::clone(new))),
        (Some(new), Some(old)) => Ok(Write::Update(old, new.to_tree(), Arc::clone(&entry.kept))),
        (None, Some(old)) => Ok(Write::Delete(old)),
        (None, None) => Err(StoreError::Absent),
    }
}
