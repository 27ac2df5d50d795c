//! The store of a virtual kind: the known objects of its backend, and writes that go to the backend.

mod generations;
mod in_flight;
mod publish;
mod take;
mod write;

use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::timeout;

pub(super) use self::take::Taken;
pub(crate) use self::write::WrittenObject;
use super::calls::Writes;
use super::erased::{ErasedBackend, Feed};
use super::locks::KeyLocks;
use super::memory::BackendMemory;
use super::metadata_store::MetadataStore;
use super::write_error::WriteError;
use super::written::WrittenKeys;
use super::{Item, WriteContext};
use crate::clock::{Clock, to_rfc_3339};
use crate::kind::Kind;
use crate::object::{Key, Object};
use crate::storage::{
    Collection, Commit, FRESHNESS_WAIT, LogReader, NamespaceLimit, ObjectIndex, Revision,
    RevisionSequencer, Store, StoreError, Versioned,
};
use crate::user::User;

/// The user of writes that no request has sent, such as the removal of an object that was created too late.
pub(super) const SYSTEM: &str = "system:apiserver";

/// The store of a virtual kind.
pub(crate) struct BackendStore {
    kind: Arc<Kind>,
    pub(super) backend: Arc<ErasedBackend>,
    collection: Collection,
    sequencer: Arc<RevisionSequencer>,
    state: Mutex<State>,
    memory: BackendMemory,
    locks: KeyLocks,
    hasher: RandomState,
    metadata: Option<Arc<MetadataStore>>,
    clock: Clock,
    lists: watch::Sender<Lists>,
    /// Counts the changes of the state that waiters look for.
    changes: watch::Sender<u64>,
    /// Wakes the feed.
    pub(super) refresh: Notify,
    /// Wakes the feed if the backend does not have the newest generation of an object.
    pub(super) counted: Notify,
}

/// The lists of the backend, numbered from 1.
#[derive(Clone, Copy, Debug, Default)]
struct Lists {
    /// The number of the list that has begun last.
    begun: u64,
    /// The number of the list that has ended last, also if it has failed.
    ended: u64,
    /// The number of the last complete list whose objects are known; 0 before the first one.
    complete: u64,
}

struct State {
    index: ObjectIndex,
    /// The memory of the objects and their entries.
    held: Option<OwnedSemaphorePermit>,
    /// One entry for each known object.
    entries: HashMap<Key, Entry>,
    /// The keys that are being written.
    in_flight: HashSet<Key>,
    written: WrittenKeys,
    /// The keys of a watched kind that must be read again with `get`: an event for the key was ignored, because it may be
    /// older than a write.
    unresolved: HashSet<Key>,
    /// The keys of objects whose generation is newer than the stored one, in the store of metadata or in the backend.
    unsaved: HashSet<Key>,
}

/// Information about a known object.
#[derive(Clone, Debug, Default)]
struct Entry {
    etag: Option<String>,
    /// The hash of the item that the object was made from. An equal item is no change.
    hash: Option<u64>,
    /// The revision of the record of the metadata.
    record: Option<Revision>,
    /// The fields of the metadata that the backend stores.
    kept: Arc<[String]>,
    /// Whether the backend has returned the object without a creation time.
    is_timeless: bool,
}

impl BackendStore {
    /// The store of a kind with this backend, whose known objects use this memory.
    pub(crate) fn new(
        kind: Arc<Kind>,
        backend: Arc<ErasedBackend>,
        sequencer: Arc<RevisionSequencer>,
        memory: BackendMemory,
        (metadata, clock): (Option<Arc<MetadataStore>>, Clock),
    ) -> Self {
        let collection = Collection::new(&kind.collection());
        let index = ObjectIndex::new(memory.limit(), NamespaceLimit::WHOLE);
        let state = State {
            index,
            held: None,
            entries: HashMap::new(),
            in_flight: HashSet::new(),
            written: WrittenKeys::default(),
            unresolved: HashSet::new(),
            unsaved: HashSet::new(),
        };
        Self {
            kind,
            backend,
            collection,
            sequencer,
            state: Mutex::new(state),
            memory,
            locks: KeyLocks::default(),
            hasher: RandomState::new(),
            metadata,
            clock,
            lists: watch::Sender::default(),
            changes: watch::Sender::default(),
            refresh: Notify::new(),
            counted: Notify::new(),
        }
    }

    /// The writes that the backend supports.
    pub(crate) fn writes(&self) -> Writes {
        self.backend.writes()
    }

    /// Whether the backend validates dry runs.
    pub(crate) fn validates_dry_run(&self) -> bool {
        self.backend.writer.validates_dry_run
    }

    /// The kind of the objects.
    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The store of the metadata that the backend does not store.
    pub(super) fn metadata(&self) -> Option<&Arc<MetadataStore>> {
        self.metadata.as_ref()
    }

    /// Stops following the stored metadata.
    pub(crate) fn leave_metadata(&self) {
        if let Some(metadata) = &self.metadata {
            metadata.leave();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys of all known objects.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().entries.keys().cloned().collect()
    }

    /// The creation time of an object that is first seen now.
    fn now(&self) -> String {
        to_rfc_3339(self.clock.now())
    }

    /// The known object under a key, with its revision and its entry.
    fn known(&self, key: &Key) -> Option<(Item<Arc<Object>>, Revision, Entry)> {
        let state = self.lock();
        let Versioned { revision, object } =
            state.index.get(&self.collection, key).ok().flatten()?.clone();
        let entry = state.entries.get(key).cloned().unwrap_or_default();
        Some((Item { object, etag: entry.etag.clone() }, revision, entry))
    }

    fn revision_of(&self, key: &Key) -> Option<Revision> {
        let state = self.lock();
        state.index.get(&self.collection, key).ok().flatten().map(|known| known.revision)
    }

    /// Checks that there is memory for a write that replaces the object `known`.
    ///
    /// # Errors
    /// If the limit would be exceeded.
    fn check_memory(&self, commit: &Commit, known: Option<&Versioned>) -> Result<(), StoreError> {
        let new = commit.object.as_ref().map_or(0, |object| object.size());
        let growth = new.saturating_sub(known.map_or(0, |known| known.object.size()));
        match commit.makes_room() || self.memory.has(with_entries(growth)) {
            true => Ok(()),
            false => Err(StoreError::Full { limit: self.memory.limit() }),
        }
    }

    /// Takes the memory for a write that replaces the object `known`.
    ///
    /// # Errors
    /// If the limit would be exceeded.
    fn take_memory(
        &self,
        state: &mut State,
        commit: &Commit,
        known: Option<&Versioned>,
    ) -> Result<(), StoreError> {
        let State { index, held, .. } = state;
        index.take_room(commit, known)?;
        if self.memory.hold(held, with_entries(index.extent().0)) {
            return Ok(());
        }
        index.give_back(commit, known);
        Err(StoreError::Full { limit: self.memory.limit() })
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Waits until this is true, at most as long as the freshness wait. Returns whether it is.
    async fn wait_until(&self, is_true: impl Fn(&Self) -> bool) -> bool {
        let mut changes = self.changes.subscribe();
        let changed = changes.wait_for(|_| is_true(self));
        timeout(FRESHNESS_WAIT, changed).await.is_ok()
    }

    /// Waits until a list that began after this call has ended (polled kinds), or until no key is unresolved (watched
    /// kinds), at most as long as the freshness wait. A failed list ends the wait, too. Returns whether the known
    /// objects are those of the backend.
    async fn refresh(&self) -> bool {
        self.refresh.notify_one();
        match self.backend.feed {
            Feed::Polled { .. } => {
                let mut lists = self.lists.subscribe();
                let wanted = lists.borrow_and_update().begun + 1;
                let ended = lists.wait_for(|lists| lists.ended >= wanted);
                let ended = timeout(FRESHNESS_WAIT, ended).await;
                matches!(ended, Ok(Ok(lists)) if lists.complete >= wanted)
            }
            Feed::Watched { .. } => {
                self.wait_until(|store| store.lock().unresolved.is_empty()).await
            }
        }
    }
}

/// The memory of objects of this size with their entries, in bytes.
fn with_entries(bytes: usize) -> usize {
    bytes.saturating_add(bytes / 3)
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
        let context = WriteContext::new(&user, "", "");
        let write = self.write(commit, context);
        let revision = |stored: WrittenObject| stored.revision;
        write.map(move |written| written.map(revision).map_err(WriteError::of_store)).boxed()
    }

    fn settled(&self) -> BoxFuture<'_, ()> {
        async {
            let refreshed = async { while !self.refresh().await {} };
            // A backend that does not respond must not delay the writes of other kinds for ever.
            let _ = timeout(self.backend.timeout(), refreshed).await;
        }
        .boxed()
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
        self.lists.borrow().complete > 0
    }

    fn known(&self) -> BoxFuture<'_, ()> {
        let mut lists = self.lists.subscribe();
        async move {
            // The sender lives as long as `self`.
            let _ = lists.wait_for(|lists| lists.complete > 0).await;
        }
        .boxed()
    }

    fn describe(&self) -> String {
        format!("backend of {}, at revision {}", self.kind.qualified(), self.sequencer.current())
    }
}
