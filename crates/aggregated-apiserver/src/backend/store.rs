//! The store of a virtual kind: the known objects of its backend, and writes that go to the backend.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::calls::Write;
use super::erased::{ErasedBackend, Writes};
use super::locks::KeyLocks;
use super::metadata_store::MetadataStore;
use super::write_error::WriteError;
use super::{BackendError, Item, WriteContext, objects};
use crate::kind::Kind;
use crate::log_throttle::{LogThrottle, shown};
use crate::object::{Key, Object, Tree, to_json};
use crate::storage::{
    Collection, Commit, FRESHNESS_WAIT, LogReader, NamespaceLimit, ObjectIndex, Precondition,
    Revision, RevisionSequencer, Store, StoreError, Versioned,
};
use crate::user::User;

/// The user of writes that no request has sent, such as the removal of an object that was created too late.
const SYSTEM: &str = "system:apiserver";

/// Throttles the log about objects that do not belong to their kind.
static UNFIT: LogThrottle = LogThrottle::at_most(5);
/// The store of a virtual kind.
pub(crate) struct BackendStore {
    kind: Arc<Kind>,
    pub(super) backend: Arc<ErasedBackend>,
    collection: Collection,
    sequencer: Arc<RevisionSequencer>,
    state: Mutex<State>,
    locks: KeyLocks,
    hasher: RandomState,
    metadata: Option<Arc<MetadataStore>>,
    /// The number of complete lists that were taken over.
    lists: watch::Sender<u64>,
    /// The number of changes that were published.
    changes: watch::Sender<u64>,
    /// Wakes the feed, so that it lists the objects now.
    pub(super) refresh: Notify,
}

struct State {
    index: ObjectIndex,
    etags: HashMap<Key, String>,
    /// The hashes of the items that the feed has sent last. An item with the same hash is no change.
    seen: HashMap<Key, u64>,
    /// The keys that are being written, with the newest item that the feed has sent for them since.
    in_flight: HashMap<Key, Option<Option<Item<Tree>>>>,
    /// The keys that were written since the last poll began, with the time of the write.
    written: HashMap<Key, u64>,
    /// Counts writes.
    clock: u64,
}

/// The object that a write has left.
pub(crate) struct WrittenObject {
    pub revision: Revision,
    /// `None` after a deletion.
    pub object: Option<Arc<Object>>,
}

impl BackendStore {
    /// The store of a kind with this backend. The known objects use at most `limit` bytes of memory.
    pub(crate) fn new(
        kind: Arc<Kind>,
        backend: Arc<ErasedBackend>,
        sequencer: Arc<RevisionSequencer>,
        limit: usize,
        metadata: Option<Arc<MetadataStore>>,
    ) -> Self {
        let collection = Collection::new(&kind.collection());
        let state = State {
            index: ObjectIndex::new(limit, NamespaceLimit::WHOLE),
            etags: HashMap::new(),
            seen: HashMap::new(),
            in_flight: HashMap::new(),
            written: HashMap::new(),
            clock: 0,
        };
        Self {
            kind,
            backend,
            collection,
            sequencer,
            state: Mutex::new(state),
            locks: KeyLocks::default(),
            hasher: RandomState::new(),
            metadata,
            lists: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            refresh: Notify::new(),
        }
    }

    /// The writes that the backend supports.
    pub(crate) fn writes(&self) -> Writes {
        self.backend.writes()
    }

    /// The kind of the objects.
    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The store of the metadata that the backend does not store.
    pub(super) fn metadata(&self) -> Option<&Arc<MetadataStore>> {
        self.metadata.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an object, or deletes it. Returns the object as the backend has stored it.
    ///
    /// # Errors
    /// The error of the precondition or of the backend.
    pub(crate) async fn write(
        &self,
        commit: Commit,
        context: WriteContext,
    ) -> Result<WrittenObject, WriteError> {
        if !self.is_known() {
            return Err(StoreError::Unavailable.into());
        }
        let lock = self.locks.lock(&commit.key);
        let Ok(_lock) = timeout(self.backend.timeout, lock).await else {
            return Err(StoreError::Unavailable.into());
        };
        let old = self.current(&commit)?;
        let in_flight = InFlight::begin(self, &commit.key);
        let write = match (&commit.object, old) {
            (Some(new), None) => Write::Create(new.to_tree()),
            (Some(new), Some(old)) => Write::Update(old, new.to_tree()),
            (None, Some(old)) => Write::Delete(old),
            (None, None) => return Err(StoreError::Absent.into()),
        };
        let is_create = matches!(write, Write::Create(_));
        if is_create {
            // The record exists before the object, so other replicas never see the object without its uid.
            let saved = self.save_metadata(&commit.key, commit.object.as_deref()).await;
            saved.map_err(|why| self.unusable(&commit.key, &why))?;
        }
        let written = self.backend.write(context, write).await;
        if let (Err(_), true, Some(metadata)) = (&written, is_create, &self.metadata) {
            metadata.note_deleted(&commit.key);
        }
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                // From here on the feed changes the object again.
                drop(in_flight);
                return Err(self.failure(&commit, error).await);
            }
        };
        self.written(&commit, written).await
    }

    /// The known object that a write replaces.
    ///
    /// # Errors
    /// If the precondition of the write does not hold.
    fn current(&self, commit: &Commit) -> Result<Option<Item<Tree>>, StoreError> {
        let state = self.lock();
        let known = state.index.get(&self.collection, &commit.key)?;
        commit.expected.check(known)?;
        let etag = state.etags.get(&commit.key).cloned();
        Ok(known.map(|known| Item { object: known.object.to_tree(), etag }))
    }

    /// Publishes the object that the backend has returned.
    async fn written(
        &self,
        commit: &Commit,
        written: Option<Item<Tree>>,
    ) -> Result<WrittenObject, WriteError> {
        let (object, etag) = match written {
            None => (None, None),
            Some(Item { object, etag }) => {
                let intended = commit.object.as_ref().map(|object| object.to_tree());
                let object = self.as_written(&commit.key, object, intended).map_err(|why| {
                    self.refresh.notify_one();
                    self.unusable(&commit.key, &why)
                })?;
                (Some(Arc::new(object)), etag)
            }
        };
        let stored = self.save_metadata(&commit.key, object.as_deref()).await;
        let revision = self.publish(&commit.key, object.clone(), etag, true)?;
        stored.map_err(|why| self.unusable(&commit.key, &why))?;
        Ok(WrittenObject { revision, object })
    }

    /// Checks the object that the backend has returned for a write.
    fn as_written(
        &self,
        key: &Key,
        returned: Tree,
        intended: Option<Tree>,
    ) -> Result<Object, String> {
        let metadata = intended.as_ref().and_then(|tree| tree.get("metadata")?.as_object());
        let metadata = metadata.filter(|_| self.metadata.is_some());
        let object = objects::to_object(&self.kind, returned, metadata)?;
        match object.key() == key {
            true => Ok(object),
            false => Err(format!("the backend has returned the object {}", object.key())),
        }
    }

    async fn save_metadata(&self, key: &Key, object: Option<&Object>) -> Result<(), String> {
        match &self.metadata {
            Some(metadata) => metadata.save(key, object).await,
            None => Ok(()),
        }
    }

    /// Takes over an object from the feed, or its deletion. Objects that do not belong to the kind are logged.
    pub(super) fn take(&self, key: &Key, item: Option<Item<Tree>>) -> Result<(), StoreError> {
        if let Some(newest) = self.lock().in_flight.get_mut(key) {
            *newest = Some(item);
            return Ok(());
        }
        let Some(Item { object, etag }) = item else {
            if let Some(metadata) = &self.metadata {
                metadata.note_deleted(key);
            }
            return self.publish(key, None, None, false).map(drop);
        };
        let hash = self.hasher.hash_one((&etag, to_json(&object.clone().into())));
        if self.lock().seen.get(key) == Some(&hash) {
            return Ok(());
        }
        let metadata = self.metadata.as_ref().and_then(|metadata| metadata.get(key));
        match objects::to_object(&self.kind, object, metadata.as_ref()) {
            Ok(object) => {
                self.publish(key, Some(Arc::new(object)), etag, false)?;
                self.lock().seen.insert(key.clone(), hash);
                Ok(())
            }
            Err(why) => {
                self.log_unfit(key, &why);
                Ok(())
            }
        }
    }

    /// Logs an object that does not belong to the kind.
    pub(super) fn log_unfit(&self, key: &Key, why: &str) {
        UNFIT.log(|suppressed| {
            let (kind, object, error) = (self.kind.qualified(), shown(key), shown(why));
            tracing::error!(suppressed, kind, object, error, "ignored object of the backend");
        });
    }

    /// Publishes an object, unless it is known already. Returns its revision.
    fn publish(
        &self,
        key: &Key,
        object: Option<Arc<Object>>,
        etag: Option<String>,
        is_write: bool,
    ) -> Result<Revision, StoreError> {
        let unchanged = self.sequencer.publish(|revision| {
            let mut state = self.lock();
            let known = state.index.get(&self.collection, key).map_err(Some)?.cloned();
            let is_same = match (&known, &object) {
                (Some(known), Some(object)) => known.object.same_content(object),
                (known, object) => known.is_none() && object.is_none(),
            };
            let at = known.as_ref().map(|known| known.revision);
            if !is_same {
                let commit = Commit {
                    collection: self.collection.clone(),
                    key: key.clone(),
                    expected: at.map_or(Precondition::Absent, Precondition::At),
                    object,
                    marks: false,
                };
                state.index.take_room(&commit, known.as_ref()).map_err(Some)?;
                state.index.keep(revision, commit);
            }
            // The next item of the feed is compared with this object.
            state.seen.remove(key);
            match etag {
                Some(etag) => drop(state.etags.insert(key.clone(), etag)),
                None => drop(state.etags.remove(key)),
            }
            if is_write {
                state.clock += 1;
                let now = state.clock;
                state.written.insert(key.clone(), now);
            }
            // An error leaves the revision unused.
            if is_same { Err(None) } else { Ok(revision) }
        });
        match unchanged {
            Ok(revision) => {
                self.changes.send_modify(|changes| *changes += 1);
                Ok(revision)
            }
            Err(Some(error)) => Err(error),
            Err(None) => {
                let state = self.lock();
                let known = state.index.get(&self.collection, key)?;
                Ok(known.map_or_else(|| self.sequencer.current(), |known| known.revision))
            }
        }
    }

    /// The error for a client whose write has failed.
    async fn failure(&self, commit: &Commit, error: BackendError) -> WriteError {
        match error {
            BackendError::AlreadyExists | BackendError::Conflict | BackendError::NotFound => {
                // The known objects are not those of the backend any more.
                if self.is_changed_by_refresh(&commit.key).await {
                    return match commit.expected {
                        Precondition::Absent => StoreError::Exists.into(),
                        Precondition::At(current) => StoreError::Changed { current }.into(),
                    };
                }
            }
            BackendError::TimedOut(_) | BackendError::Internal(_) => self.refresh.notify_one(),
            BackendError::Rejected { .. } | BackendError::Unavailable(_) => {}
        }
        WriteError::of_backend(&self.kind, &commit.key, error)
    }

    /// Waits for the next list or change of the backend. Returns whether the object has changed.
    async fn is_changed_by_refresh(&self, key: &Key) -> bool {
        let before = self.version_of(key);
        let mut changes = self.changes.subscribe();
        let changed = changes.wait_for(|_| self.version_of(key) != before);
        tokio::select! {
            () = self.refresh() => {}
            _ = changed => {}
        }
        self.version_of(key) != before
    }

    fn unusable(&self, key: &Key, why: &str) -> WriteError {
        WriteError::unusable(&self.kind, key, why)
    }

    fn version_of(&self, key: &Key) -> Option<Revision> {
        let state = self.lock();
        state.index.get(&self.collection, key).ok().flatten().map(|known| known.revision)
    }

    /// Waits until the objects of the backend have been listed again, or for a few seconds.
    async fn refresh(&self) {
        let mut lists = self.lists.subscribe();
        let begun = *lists.borrow_and_update();
        self.refresh.notify_one();
        // The running list may have begun before this call, so the next one counts.
        let listed = lists.wait_for(|lists| *lists > begun + 1);
        let _ = timeout(FRESHNESS_WAIT, listed).await;
    }

    /// The time of a poll that begins now.
    pub(super) fn begin_poll(&self) -> u64 {
        self.lock().clock
    }

    /// Whether a key was written after this time, or is being written.
    pub(super) fn is_written_since(&self, key: &Key, begun: u64) -> bool {
        let state = self.lock();
        state.in_flight.contains_key(key) || state.written.get(key).is_some_and(|at| *at > begun)
    }

    /// Ends a poll that began at this time.
    pub(super) fn end_poll(&self, begun: u64, is_complete: bool) {
        self.lock().written.retain(|_, at| *at > begun);
        if is_complete {
            self.lists.send_modify(|lists| *lists += 1);
        }
    }

    /// Takes over the metadata that another replica has stored for an object.
    ///
    /// # Errors
    /// If the known objects exceed their memory limit.
    pub(super) fn take_metadata(&self, key: &Key) -> Result<(), StoreError> {
        let metadata = self.metadata.as_ref().and_then(|metadata| metadata.get(key));
        let (Some(metadata), Some(known)) = (metadata, self.known(key)) else { return Ok(()) };
        if self.lock().in_flight.contains_key(key) {
            return Ok(());
        }
        let mut tree = known.object.to_tree();
        tree.insert("metadata".to_owned(), metadata.into());
        match objects::to_object(&self.kind, tree, None) {
            Ok(object) => self.publish(key, Some(Arc::new(object)), known.etag, false).map(drop),
            Err(why) => {
                self.log_unfit(key, &why);
                Ok(())
            }
        }
    }

    /// Removes the metadata of an object that was deleted, unless there is a new object.
    ///
    /// # Errors
    /// The reason why the record cannot be removed.
    pub(super) async fn remove_metadata(&self, key: &Key) -> Result<(), String> {
        let _lock = self.locks.lock(key).await;
        match self.known(key) {
            None => self.save_metadata(key, None).await,
            Some(_) => Ok(()),
        }
    }

    /// The keys of all known objects.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().index.keys().map(|(_, key)| key.clone()).collect()
    }

    /// The known object under a key.
    pub(super) fn known(&self, key: &Key) -> Option<Item<Arc<Object>>> {
        let state = self.lock();
        let known = state.index.get(&self.collection, key).ok().flatten()?;
        Some(Item { object: Arc::clone(&known.object), etag: state.etags.get(key).cloned() })
    }
}

/// Marks a key as being written. The newest item that the feed has sent meanwhile is taken over at the end, also if the
/// write is dropped.
struct InFlight<'a> {
    store: &'a BackendStore,
    key: Key,
}

impl<'a> InFlight<'a> {
    fn begin(store: &'a BackendStore, key: &Key) -> Self {
        store.lock().in_flight.insert(key.clone(), None);
        Self { store, key: key.clone() }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let newest = self.store.lock().in_flight.remove(&self.key).flatten();
        if let Some(newest) = newest
            && self.store.take(&self.key, newest).is_err()
        {
            self.store.refresh.notify_one();
        }
    }
}

impl Store for BackendStore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        if !self.is_known() {
            return ready(Err(StoreError::Unavailable)).boxed();
        }
        let known = self.lock().index.get(collection, key).map(Option::<&Versioned>::cloned);
        ready(known).boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let user = User { name: SYSTEM.to_owned(), ..User::default() };
        let context = WriteContext::new(&user, "");
        let write = self.write(commit, context);
        let revision = |stored: WrittenObject| stored.revision;
        write
            .map(move |written| {
                written.map(revision).map_err(|error| match error {
                    WriteError::Store(error) => error,
                    WriteError::Refused(_) => StoreError::Unknown,
                })
            })
            .boxed()
    }

    fn settled(&self) -> BoxFuture<'_, ()> {
        self.refresh().boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.lock().index.follow(collection, reader);
        ready(Ok(())).boxed()
    }

    fn unfollow(&self, collection: &Collection, reader: &Arc<dyn LogReader>) {
        self.lock().index.leave(collection, reader);
    }

    fn collections(&self) -> Vec<Collection> {
        self.lock().index.collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.sequencer)
    }

    /// Whether the objects of the backend have been listed.
    fn is_known(&self) -> bool {
        *self.lists.borrow() > 0
    }

    fn known(&self) -> BoxFuture<'_, ()> {
        let mut lists = self.lists.subscribe();
        async move {
            // The sender lives as long as `self`.
            let _ = lists.wait_for(|lists| *lists > 0).await;
        }
        .boxed()
    }

    fn describe(&self) -> String {
        format!("backend of {}, at revision {}", self.kind.qualified(), self.sequencer.current())
    }
}
