//! Stores of objects. A store is one log of writes, ordered by revision.
//!
//! A store knows neither HTTP nor callers nor kinds: a collection is only a name.

// Some code is shared by both durable stores. Parts of it are used by one of them only.
#![cfg_attr(not(all(feature = "etcd", feature = "sqlite")), allow(dead_code))]

use kubernetes_objects::object;

#[cfg(any(feature = "etcd", feature = "sqlite"))]
mod encryption;
#[cfg(feature = "etcd")]
mod etcd;
mod etcd_options;
mod failure;
mod memory;
mod namespace_usage;
mod object_index;
pub mod revision;
mod sequencer;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "etcd", feature = "sqlite"))]
mod stored_value;
pub mod suite;
mod unknown_writes;
#[cfg(any(feature = "etcd", feature = "sqlite"))]
mod write_queue;

#[cfg(any(feature = "etcd", feature = "sqlite"))]
pub use encryption::Encryption;
pub use etcd_options::EtcdOptions;
pub use failure::Failure;
pub use memory::{
    BYTES_LIMIT as MEMORY_STORE_LIMIT, LEAST_BYTES_LIMIT as LEAST_MEMORY_STORE_LIMIT, MemoryStore,
};
pub use namespace_usage::NamespaceLimit;
pub use object_index::ObjectIndex;
pub use revision::{MARK_BITS, Revision};
pub use sequencer::RevisionSequencer;
use unknown_writes::settled;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use thiserror::Error;

use crate::object::{Key, Object};

/// The name of a collection of objects, such as `llamas.farm.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collection(Arc<str>);

impl Collection {
    /// Creates a collection with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name of the collection.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object and the revision of its last write.
#[derive(Clone, Debug)]
pub struct Versioned {
    /// The revision of the last write of the object.
    pub revision: Revision,
    /// The object.
    pub object: Arc<Object>,
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// No object is stored under the key.
    Absent,
    /// The object under the key was last written at this revision.
    At(Revision),
}

/// One write: it creates, replaces or removes an object.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The collection to write to.
    pub collection: Collection,
    /// The key to write.
    pub key: Key,
    /// The precondition of the write.
    pub expected: Precondition,
    /// The object to store. `None` removes the stored object.
    pub object: Option<Arc<Object>>,
    /// Whether the write only serves the deletion of the object: it marks the object for deletion, or removes a finalizer.
    /// A full store accepts such a write. Otherwise objects with finalizers could not be deleted from it.
    pub marks: bool,
}

impl Commit {
    /// Whether the write frees memory, or leads to a removal that does. A full store accepts such a write.
    pub fn makes_room(&self) -> bool {
        self.object.is_none() || self.marks
    }
}

/// The reason why a write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// An object is stored under the key.
    #[error("the key exists already")]
    Exists,
    /// No object is stored under the key.
    #[error("the key does not exist")]
    Absent,
    /// The store has no capacity for the object.
    #[error("the store is full: its limit is {limit} bytes (--store-memory-mib)")]
    Full {
        /// The limit of the store, in bytes.
        limit: usize,
    },
    /// The disk has no space for the object. It was not written.
    #[error("the disk of the store is full")]
    NoDiskSpace,
    /// The stored value differs from the value that was written, or its encryption key is missing.
    #[error(
        "it cannot be read from the store: it is damaged, so restore a backup, or its encryption key is missing"
    )]
    Damaged,
    /// The object is larger than the store accepts.
    #[error("it is larger than the limit of the store")]
    TooLarge,
    /// The store has failed permanently and accepts no writes.
    #[error("the store has failed, and accepts no more requests")]
    Failed,
    /// The store does not respond. Nothing was written.
    #[error("the store cannot be reached")]
    Unavailable,
    /// It is unknown whether the object was written.
    #[error("the store has failed or does not respond, and the outcome of this write is unknown")]
    Unknown,
    /// The namespace of the object has reached its limit. Cluster-scoped objects together have the limit of one
    /// namespace.
    #[error(
        "the namespace uses {used} of {limit} bytes, and {requested} more are needed; --store-namespace-limit raises the limit"
    )]
    ShareExceeded {
        /// The additional bytes that the write needs.
        requested: usize,
        /// The bytes that the namespace uses.
        used: usize,
        /// The limit of the namespace, in bytes.
        limit: usize,
    },
    /// The object was written after the expected revision.
    #[error("the object was written at {current}, after the expected revision")]
    Changed {
        /// The revision of the last write of the object.
        current: Revision,
    },
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The revision of the write.
    pub revision: Revision,
    /// The key that was written.
    pub key: Key,
    /// The object before the write.
    pub before: Option<Arc<Object>>,
    /// The object after the write. `None` after a removal.
    pub object: Option<Arc<Object>>,
}

/// A reader that follows the log of a collection.
pub trait LogReader: Send + Sync {
    /// Marks the beginning of the history. The entries received so far are the state at that point, and the entries
    /// that follow hold every change since this revision. History that was received before this call must not be used
    /// any more.
    fn begin(&self, _oldest: Revision) {}

    /// Reports that the object under this key cannot be read. This holds until another entry for the key arrives.
    fn damage(&self, _key: Key) {}

    /// Receives the next entry. The store calls this method in the order of revisions, for one entry at a time, before
    /// the write is acknowledged. The method must not block.
    fn append(&self, entry: LogEntry);
}

/// A store of objects.
///
/// Writes are ordered by their revisions, over all collections. A write is acknowledged after every follower of its
/// collection has received it.
pub trait Store: Send + Sync + 'static {
    /// Returns the object under the key. The result includes every write that was acknowledged to any client before the
    /// call. Followers have received these writes, too.
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>>;

    /// Writes if the precondition holds, and returns the new revision.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// Returns the newest revision, or a later one. Every write that was acknowledged to any client before the call has
    /// at most this revision. Reads of followed collections are up to date once [`RevisionSequencer::current`] reaches it.
    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(std::future::ready(Ok(self.sequencer().current())))
    }

    /// Waits until the outcome of a write that just returned [`StoreError::Unknown`] is settled. Then followers have
    /// received the write, or it will never happen. If the store has failed permanently, the outcome stays unknown, and
    /// this method returns too. A store that no other process writes to settles its writes before it responds.
    fn settled(&self) -> BoxFuture<'_, ()> {
        if !self.is_shared() {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(async move {
            let sequencer = self.sequencer();
            tokio::select! {
                () = settled(|| self.newest(), &sequencer) => {}
                _ = self.failed() => {}
            }
        })
    }

    /// Sends all objects of a collection to the reader, and then every change of the collection. While the store is not
    /// yet [known](Self::is_known), the remaining objects follow later.
    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Stops sending entries of a collection to a reader, because its kind is no longer served. A store that does not
    /// implement this method holds the memory of the reader.
    fn unfollow(&self, _collection: &Collection, _reader: &Arc<dyn LogReader>) {}

    /// The collections that have stored objects.
    fn collections(&self) -> Vec<Collection>;

    /// The timeline that the revisions of the store come from.
    fn sequencer(&self) -> Arc<RevisionSequencer>;

    /// Whether other processes write to the store, too.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether stored objects remain available to the next process.
    fn outlives_process(&self) -> bool {
        false
    }

    /// Whether the whole store has been read, and its objects were sent to followers.
    fn is_known(&self) -> bool {
        true
    }

    /// Waits until the whole store [has been read](Self::is_known).
    fn known(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether no process has ever stored anything here. The result is valid once the store is [known](Self::known).
    fn is_new(&self) -> bool {
        true
    }

    /// Records that the initial objects of a server have been stored. From then on the store is not new any more.
    fn note_begun(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Describes the store and its newest revision to operators, such as `memory, at revision 42`.
    fn describe(&self) -> String {
        format!("at revision {}", self.sequencer().current())
    }

    /// The bytes of objects in the store and the limit in bytes, if the store has a limit.
    fn extent(&self) -> Option<(usize, usize)> {
        None
    }

    /// The number of revisions that the store is known to have reached and that this process has not received yet.
    fn behind(&self) -> u64 {
        0
    }

    /// The current problem of the store, if it has one. The problem can be temporary.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// The reason why the store accepts no more writes, if it has failed permanently.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Waits until the store fails permanently, and returns the reason.
    fn failed(&self) -> BoxFuture<'_, String> {
        Box::pin(std::future::pending())
    }
}

/// The memory for data that is read from a disk or from etcd at startup and is not decoded yet, in bytes. This is two
/// pages of etcd, or the batches and the page cache of SQLite.
pub const READING: usize = 32 << 20;

/// The default limit of the write queue of a store, in bytes of objects.
pub const WRITE_QUEUE: usize = 16 << 20;
/// The limit of the write queue in a small container, in bytes of objects.
pub const LEAST_WRITE_QUEUE: usize = WRITE_QUEUE / 8;

/// The longest time that a read waits until this process has received the newest revision. Same as kube-apiserver.
pub const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// Waits until this process has received every write that was acknowledged to any client before the call.
///
/// # Errors
/// [`StoreError::Unavailable`] if the missing entries do not arrive within [`FRESHNESS_WAIT`], or the error of the
/// store if it does not respond.
pub async fn await_newest(store: &dyn Store) -> Result<(), StoreError> {
    if !store.is_shared() {
        return Ok(());
    }
    let newest = store.newest().await?;
    let sequencer = store.sequencer();
    let seen = sequencer.wait_until(newest);
    tokio::time::timeout(FRESHNESS_WAIT, seen).await.map_err(|_| StoreError::Unavailable)
}

/// A function that returns the object as it would be stored now, or `None` if it is already stored that way.
pub type Renewed<'a> = dyn Fn(&Collection, &Arc<Object>) -> Option<Arc<Object>> + Sync + 'a;

/// The result of rewriting the objects of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The number of objects that were rewritten.
    pub rewritten: usize,
    /// The number of all stored objects.
    pub all: usize,
    /// The objects that cannot be read. They were left unchanged.
    pub damaged: Vec<String>,
}

/// The contents of a copy of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The number of objects, and of changes in the recent history.
    pub rows: usize,
    /// The newest revision in the copy.
    pub newest: Revision,
}

/// The options of all durable stores.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The limit of the memory for objects, in bytes.
    pub limit: usize,
    /// The limit of replaced and removed objects in the history, in bytes. It applies to the disk and to memory.
    pub history: usize,
    /// The limit of the queue of writes, in bytes of objects.
    pub queue: usize,
    /// The part of `limit` that one namespace may use.
    pub share: NamespaceLimit,
    /// The encryption of stored objects.
    pub encryption: Arc<Encryption>,
}

/// Opens the SQLite store in a directory.
///
/// # Errors
/// If the directory or the files in it cannot be used.
#[cfg(feature = "sqlite")]
pub fn open(
    folder: &Path,
    options: StoreOptions,
    now: Timestamp,
) -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(sqlite::SqliteStore::open(folder, options, now)?))
}

/// Opens the store in etcd, and starts to read it.
///
/// # Errors
/// If the options are invalid. An etcd that cannot be reached is no error.
#[cfg(feature = "etcd")]
pub fn open_etcd(etcd: &EtcdOptions, options: StoreOptions) -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(etcd::EtcdStore::open(etcd, options)?))
}

/// Fails, because the program was built without the feature `etcd`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "etcd"))]
pub fn open_etcd(_: &EtcdOptions, _: StoreOptions) -> Result<Arc<dyn Store>, String> {
    Err("this program was built without the feature etcd".to_owned())
}

/// Fails, because the program was built without the feature `etcd`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "etcd"))]
pub async fn rewrite_etcd(
    _: &EtcdOptions,
    _: Arc<Encryption>,
    _: &Renewed<'_>,
) -> Result<Rewritten, String> {
    Err("this program was built without the feature etcd".to_owned())
}

#[cfg(feature = "sqlite")]
pub use sqlite::{back_up, back_up_to, rewrite};

#[cfg(feature = "etcd")]
pub use etcd::rewrite as rewrite_etcd;

#[cfg(not(feature = "sqlite"))]
pub use absent::{back_up, back_up_to, open, rewrite};

#[cfg(not(any(feature = "etcd", feature = "sqlite")))]
pub use no_encryption::Encryption;

/// Replacements for the functions of the SQLite store. They fail, because the program was built without the feature
/// `sqlite`.
#[cfg(not(feature = "sqlite"))]
mod absent {
    use std::io::Write;

    use super::*;

    const WHY: &str = "this program was built without the feature sqlite";

    /// Fails, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Path, _: StoreOptions, _: Timestamp) -> Result<Arc<dyn Store>, String> {
        Err(WHY.to_owned())
    }

    /// Fails, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn rewrite(_: &Path, _: Arc<Encryption>, _: &Renewed<'_>) -> Result<Rewritten, String> {
        Err(WHY.to_owned())
    }

    /// Fails, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn back_up(_: &Path, _: &Path) -> Result<Copied, String> {
        Err(WHY.to_owned())
    }

    /// Fails, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn back_up_to(_: &Path, _: impl Write) -> Result<Copied, String> {
        Err(WHY.to_owned())
    }
}

/// A replacement for the encryption in a program that was built without a durable store.
#[cfg(not(any(feature = "etcd", feature = "sqlite")))]
mod no_encryption {
    use std::path::Path;

    /// An encryption that encrypts nothing.
    #[derive(Debug, Default)]
    pub struct Encryption;

    impl Encryption {
        /// Fails, because the features `sqlite` and `etcd` are off.
        ///
        /// # Errors
        /// Always.
        pub fn read(_: &Path) -> Result<Self, String> {
            Err("this program was built without the features sqlite and etcd".to_owned())
        }
    }
}

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
