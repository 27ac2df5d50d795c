//! The writes of one request on a direct kind. The session reads and writes the backend as the user of the request.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::pending::PendingCreate;
use super::{DirectReader, item, version};
use crate::backend::calls::Write;
use crate::backend::store::SYSTEM;
use crate::backend::{BackendError, Item, Reason, WriteContext, WriteError, WrittenObject};
use crate::error::{ApiError, FieldError};
use crate::kind::Kind;
use crate::object::{Key, Object, Tree, metadata};
use crate::storage::{
    Collection, Commit, LogReader, Precondition, Revision, RevisionSequencer, Store, StoreError,
    Versioned,
};
use crate::user::User;
use crate::watch_cache::Scope;

/// The number of changes of other writers after which a write of an object fails with 409.
const MOST_CHANGES: u32 = 5;

/// The fields of the metadata that clients set, and that writes may only set if the backend stores them.
const SET_BY_CLIENTS: [&str; 5] =
    ["annotations", "deletionTimestamp", "finalizers", "labels", "ownerReferences"];

/// The writes of one request.
pub(crate) struct DirectSession {
    kind: Arc<Kind>,
    reader: Arc<DirectReader>,
    user: Arc<User>,
    sequencer: Arc<RevisionSequencer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The object that was read or written last.
    last: Option<Last>,
    /// The number of changes of other writers that have disturbed writes of an object.
    changes: Option<(Key, u32)>,
    /// The create that a quota counts.
    pending: Option<PendingCreate>,
}

struct Last {
    item: Item<Arc<Object>>,
    _memory: Option<OwnedSemaphorePermit>,
}

impl DirectSession {
    /// The writes of a request of this user.
    pub(crate) fn new(
        kind: Arc<Kind>,
        reader: Arc<DirectReader>,
        user: Arc<User>,
        sequencer: Arc<RevisionSequencer>,
    ) -> Self {
        Self { kind, reader, user, sequencer, state: Mutex::default() }
    }

    /// Reads an object of the backend.
    ///
    /// # Errors
    /// The error of the backend; 503 if there is not enough memory.
    pub(crate) async fn read(&self, key: &Key) -> Result<Option<Versioned>, WriteError> {
        let scope = Scope::Object(key.clone());
        let read = self.reader.read(&self.kind, &self.user, &scope).boxed().await;
        let (objects, memory) = read.map_err(|(_, error)| error)?;
        let Some(item) = objects.into_iter().next() else { return Ok(None) };
        let found = Versioned { revision: version(&item), object: Arc::clone(&item.object) };
        self.lock().last = Some(Last { item, _memory: memory });
        Ok(Some(found))
    }

    /// Creates, replaces or deletes an object. Returns the object as the backend has stored it.
    ///
    /// # Errors
    /// The error of the precondition or of the backend.
    pub(crate) async fn write(
        &self,
        commit: Commit,
        context: WriteContext,
    ) -> Result<WrittenObject, WriteError> {
        let key = &commit.key;
        let writer = &self.reader.backend.writer;
        let lock = timeout(writer.timeout, self.reader.locks.lock(key)).await;
        let _lock = lock.map_err(|_| StoreError::Unavailable)?;
        if commit.marks && commit.object.is_some() && !writer.writes().update {
            let why = "its finalizers cannot be removed, because the kind does not support update";
            return Err(WriteError::Refused(ApiError::new(Reason::MethodNotAllowed, why)));
        }
        let old = match commit.expected {
            Precondition::Absent => None,
            Precondition::At(revision) => Some(self.old(key, revision).await?),
        };
        let old = old.map(|Item { object, etag }| Item { object: object.to_tree(), etag });
        let write = match (&commit.object, old) {
            (Some(new), None) => Write::Create(Arc::clone(new)),
            (Some(new), Some(old)) => {
                Write::Update(old, new.to_tree(), Arc::clone(&writer.kept_metadata))
            }
            (None, Some(old)) => Write::Delete(old),
            (None, None) => return Err(StoreError::Absent.into()),
        };
        match writer.write(context, write).await {
            Ok(Some(written)) => self.written(key, written),
            Ok(None) => {
                let revision = match commit.expected {
                    Precondition::At(revision) => revision,
                    Precondition::Absent => Revision::NONE,
                };
                Ok(WrittenObject { revision, object: None })
            }
            Err(error) => Err(self.failure(&commit, error).await),
        }
    }

    /// Lets the backend validate a dry run, if it does so. Returns the object as the backend would store it.
    ///
    /// # Errors
    /// Same as [`write`](Self::write).
    pub(crate) async fn validate(
        &self,
        commit: Commit,
        context: WriteContext,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        if !self.reader.validates_dry_run() {
            return Ok(None);
        }
        let written = self.write(commit, context.for_dry_run()).await;
        written.map(|written| written.object).map_err(WriteError::of_read)
    }

    /// The object that a write replaces. An object without an etag is read again, because the backend cannot notice the
    /// changes of other writers.
    async fn old(&self, key: &Key, revision: Revision) -> Result<Item<Arc<Object>>, WriteError> {
        let last = self.last(key).filter(|last| last.etag.is_some() && version(last) == revision);
        if let Some(last) = last {
            return Ok(last);
        }
        let Some(found) = self.read(key).await? else { return Err(StoreError::Absent.into()) };
        match self.last(key) {
            Some(last) if found.revision == revision => Ok(last),
            _ => Err(self.changed(key, found.revision)),
        }
    }

    fn last(&self, key: &Key) -> Option<Item<Arc<Object>>> {
        let state = self.lock();
        let last = state.last.as_ref().filter(|last| last.item.object.key() == key)?;
        Some(last.item.clone())
    }

    /// The object that the backend has returned for a write.
    fn written(
        &self,
        key: &Key,
        Item { object, etag }: Item<Tree>,
    ) -> Result<WrittenObject, WriteError> {
        let unusable = |why: &str| WriteError::unusable(&self.kind, key, why);
        let written = item(&self.kind, object, key).map_err(|why| unusable(&why))?;
        if written.object.key() != key {
            return Err(unusable("it has returned another object"));
        }
        let written = Item { etag: etag.or(written.etag), ..written };
        let (revision, object) = (version(&written), Some(Arc::clone(&written.object)));
        self.lock().last = Some(Last { item: written, _memory: None });
        Ok(WrittenObject { revision, object })
    }

    /// The error for the client if the backend has not accepted the write.
    async fn failure(&self, commit: &Commit, error: BackendError) -> WriteError {
        let key = &commit.key;
        match (&error, commit.expected) {
            (BackendError::AlreadyExists, Precondition::Absent) => StoreError::Exists.into(),
            (BackendError::Conflict | BackendError::NotFound, Precondition::At(at)) => {
                match self.read(key).await {
                    Ok(None) => StoreError::Absent.into(),
                    Ok(Some(found)) if found.revision != at => self.changed(key, found.revision),
                    _ => WriteError::of_backend(&self.kind, key, error),
                }
            }
            _ => WriteError::of_backend(&self.kind, key, error),
        }
    }

    /// The error if another writer has changed the object. A write restarts after a few of these errors, and then it
    /// fails: the content of an object without an etag may differ in each read.
    fn changed(&self, key: &Key, current: Revision) -> WriteError {
        let mut state = self.lock();
        let before = state.changes.take().filter(|(changed, _)| changed == key);
        let changes = before.map_or(1, |(_, changes)| changes + 1);
        state.changes = Some((key.clone(), changes));
        drop(state);
        if changes <= MOST_CHANGES {
            return StoreError::Changed { current }.into();
        }
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        let (group, plural) = (&self.kind.group, &self.kind.names.plural);
        WriteError::Refused(ApiError::conflict(group, plural, key.name(), why))
    }

    /// The metadata that a write sets and that the backend does not store.
    pub(crate) fn unstored(&self, old: Option<&Tree>, new: &Tree) -> Vec<FieldError> {
        let has = |tree: &Tree, field: &str| match metadata::of(tree).get(field) {
            None | Some(serde_json::Value::Null) => false,
            Some(serde_json::Value::Object(fields)) => !fields.is_empty(),
            Some(serde_json::Value::Array(elements)) => !elements.is_empty(),
            Some(_) => true,
        };
        let is_unstored = |field: &&&str| {
            // A field that the backend returns is one that it stores.
            !self.reader.keeps(field) && has(new, field) && !old.is_some_and(|old| has(old, field))
        };
        let why = format!("the backend of {} does not store it", self.kind.qualified());
        let unstored = SET_BY_CLIENTS.iter().filter(is_unstored);
        unstored.map(|field| FieldError::forbidden(format!("metadata.{field}"), &why)).collect()
    }

    /// Counts the objects in a namespace for the create of an object of this name: those that the backend lists for the
    /// server itself, and those that are being created. Other creates count the object from now on, unless it is a dry
    /// run.
    ///
    /// # Errors
    /// The error of the backend; 503 if there is not enough memory.
    pub(crate) async fn count(
        &self,
        namespace: &str,
        name: &str,
        is_dry_run: bool,
    ) -> Result<usize, WriteError> {
        let key = Key::new(Some(namespace), name);
        if !is_dry_run {
            self.lock().pending = Some(self.reader.creates.begin(&key));
        }
        // An object whose create ends from now on is in the list.
        let mut keys: HashSet<Key> = self.reader.creates.of(namespace);
        keys.remove(&key);
        let user = User { name: SYSTEM.to_owned(), ..User::default() };
        let scope = Scope::Namespace(namespace.into());
        let listed = self.reader.read(&self.kind, &user, &scope).boxed().await;
        let (objects, _memory) = listed.map_err(|(_, error)| error)?;
        keys.extend(objects.iter().map(|item| item.object.key().clone()));
        Ok(keys.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for DirectSession {
    fn get<'a>(
        &'a self,
        _: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        async move { self.read(key).await.map_err(WriteError::of_store) }.boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let user = User { name: SYSTEM.to_owned(), ..User::default() };
        let written = self.write(commit, WriteContext::new(&user, "", ""));
        async move { written.await.map(|written| written.revision).map_err(WriteError::of_store) }
            .boxed()
    }

    /// The objects of a direct kind cannot be followed.
    fn follow(
        &self,
        _: &Collection,
        _: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }

    fn collections(&self) -> Vec<Collection> {
        Vec::new()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.sequencer)
    }
}
