//! Where objects are kept: one ordered log of revisions.
//!
//! A store knows no HTTP, no callers and no kinds: a collection is a name.

// The code that both durable stores share has parts that one of them alone does not use.
#![cfg_attr(not(all(feature = "etcd", feature = "sqlite")), allow(dead_code))]

use kubernetes_objects::object;

#[cfg(any(feature = "etcd", feature = "sqlite"))]
mod encryption;
#[cfg(feature = "etcd")]
mod etcd;
mod etcd_options;
mod failure;
mod memory;
pub mod revision;
#[cfg(any(feature = "etcd", feature = "sqlite"))]
mod sealed;
mod settled;
mod shares;
mod shelves;
#[cfg(feature = "sqlite")]
mod sqlite;
pub mod suite;
mod timeline;
#[cfg(any(feature = "etcd", feature = "sqlite"))]
mod write_queue;

#[cfg(any(feature = "etcd", feature = "sqlite"))]
pub use encryption::Encryption;
pub use etcd_options::EtcdOptions;
pub use failure::Failure;
pub use memory::{
    BYTES_LIMIT as MEMORY_STORE_LIMIT, LEAST_BYTES_LIMIT as LEAST_MEMORY_STORE_LIMIT, MemoryStore,
};
pub use revision::{MARK_BITS, Revision};
use settled::settled;
pub use shares::NamespaceShare;
pub use shelves::Shelves;
pub use timeline::Timeline;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use thiserror::Error;

use crate::object::{Key, Object};

/// The name of a collection of objects, as `llamas.farm.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collection(Arc<str>);

impl Collection {
    /// A collection of this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object and the revision of the write that made it so.
#[derive(Clone, Debug)]
pub struct Versioned {
    /// The revision of its last write.
    pub revision: Revision,
    /// The object.
    pub object: Arc<Object>,
}

/// What must be true for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is kept under the key.
    Absent,
    /// The object under the key was last written at this revision.
    At(Revision),
}

/// One write: create, replace or remove.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The collection to write to.
    pub collection: Collection,
    /// The key to write.
    pub key: Key,
    /// What must be true for it.
    pub expected: Expected,
    /// What is kept afterwards; `None` removes.
    pub object: Option<Arc<Object>>,
    /// Whether it only marks the object as going, or takes off something that holds it: a full store
    /// takes it too, or nothing that is held could go.
    pub marks: bool,
}

impl Commit {
    /// Whether it makes room, or lets something go on that does: a full store takes it, too.
    pub fn makes_room(&self) -> bool {
        self.object.is_none() || self.marks
    }
}

/// Why a write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Something is kept under the key.
    #[error("the key is taken")]
    Exists,
    /// Nothing is kept under the key.
    #[error("nothing is kept under the key")]
    Absent,
    /// There is no room for it.
    #[error("the store is full: it holds no more than {limit} bytes (--store-memory-mib)")]
    Full {
        /// How much it holds at most.
        limit: usize,
    },
    /// There is no room for it on the disk; it was not written.
    #[error("there is no room on the disk of the store")]
    NoDiskSpace,
    /// What is kept under the key is not what was written.
    #[error(
        "it is damaged on the disk of the store: a backup must be restored, or it must be given up"
    )]
    Damaged,
    /// It is larger than the store takes.
    #[error("it is larger than the store takes")]
    TooLarge,
    /// Nothing is written any more.
    #[error("the store has failed, and takes no more requests")]
    Failed,
    /// The store does not answer. Nothing was written.
    #[error("the store cannot be reached")]
    Unavailable,
    /// Nobody knows whether it was written.
    #[error(
        "the store has failed or does not answer, and it is not known whether this was written"
    )]
    Unknown,
    /// Its namespace has no room for it, or there is none for cluster-scoped objects.
    #[error(
        "{used} of {limit} bytes of a namespace's share are taken, and {requested} more are needed; --store-namespace-share makes it larger"
    )]
    ShareExceeded {
        /// How many bytes more it would take.
        requested: usize,
        /// How many the namespace takes.
        used: usize,
        /// How many it may take.
        limit: usize,
    },
    /// The object was written since.
    #[error("the object was written at {current}, after the expected revision")]
    Changed {
        /// The revision of its last write.
        current: Revision,
    },
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The revision of the write.
    pub revision: Revision,
    /// What was written.
    pub key: Key,
    /// What was kept until then.
    pub before: Option<Arc<Object>>,
    /// What is kept since; `None` after a removal.
    pub object: Option<Arc<Object>>,
}

/// Somebody who follows the log of a collection.
pub trait LogReader: Send + Sync {
    /// All that was told until now is where the history begins that comes after it: it holds every
    /// change since this revision. What was told as history before is not to be relied on any more.
    fn begin(&self, _oldest: Revision) {}

    /// Something is kept under this key that cannot be read, until something else is told of it.
    fn damage(&self, _key: Key) {}

    /// Takes the next entry. Called in the order of revisions, one at a time,
    /// before the write is acknowledged. Must not block.
    fn append(&self, entry: LogEntry);
}

/// A store of objects.
///
/// Writes are ordered by their revisions, over all collections. A write is
/// acknowledged after every follower of its collection has seen it.
pub trait Store: Send + Sync + 'static {
    /// The object under the key, with every write that any client was told of before the call. Followers
    /// have seen these writes, too.
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>>;

    /// Writes, if what is expected is true; answers with the new revision.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// The newest revision, or a later one: every write that any client was told of before the call has
    /// a revision up to it. Reads of what is followed are right once [`Timeline::current`] is there.
    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(std::future::ready(Ok(self.timeline().current())))
    }

    /// Returns when the outcome of a write that was answered with [`StoreError::Unknown`] just now is settled: followers
    /// have seen what it has written, or it will never be written. If the store has failed for good, the outcome stays
    /// unknown, and this returns too. A store that other processes do not write to settles its writes before it answers.
    fn settled(&self) -> BoxFuture<'_, ()> {
        if !self.is_shared() {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(async move {
            let timeline = self.timeline();
            tokio::select! {
                () = settled(|| self.newest(), &timeline) => {}
                _ = self.failed() => {}
            }
        })
    }

    /// Hands everything that a collection holds, and from then on every
    /// change of it, to the reader. What is not [known](Self::is_known) yet comes later.
    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Tells a reader of a collection nothing more, because its kind is not served any more. A store that never forgets a
    /// reader holds its memory.
    fn unfollow(&self, _collection: &Collection, _reader: &Arc<dyn LogReader>) {}

    /// Every collection of which something is kept.
    fn collections(&self) -> Vec<Collection>;

    /// Where its revisions come from.
    fn timeline(&self) -> Arc<Timeline>;

    /// Whether other processes write to it, too.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether what is kept is still there for the next process.
    fn outlives_process(&self) -> bool {
        false
    }

    /// Whether everything in the store has been read, and handed to its followers.
    fn is_known(&self) -> bool {
        true
    }

    /// Returns when all that is kept is known here.
    fn known(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether nothing was ever kept in it by another process; said once all is [known](Self::known).
    fn is_new(&self) -> bool {
        true
    }

    /// Notes that what a server begins with has been put in, so that the store is not new any more.
    fn note_begun(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What it is and how far it has come, for operators: as `memory, at revision 42`.
    fn describe(&self) -> String {
        format!("at revision {}", self.timeline().current())
    }

    /// How many bytes of objects it holds, and how many it takes, if that is bounded.
    fn extent(&self) -> Option<(usize, usize)> {
        None
    }

    /// Revisions that it is known to have come to, and that are not seen here yet.
    fn behind(&self) -> u64 {
        0
    }

    /// What is wrong with it at the moment, and may pass.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Why it takes no more writes, if it does not.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Returns when it takes no more writes, and never will; says why.
    fn failed(&self) -> BoxFuture<'_, String> {
        Box::pin(std::future::pending())
    }
}

/// Bytes of memory for what is read of a disk or of etcd at the start and has not become objects yet: two pages of etcd, or the
/// batches and the page cache of SQLite.
pub const READING: usize = 32 << 20;

/// The limit of the queue of a store, in bytes of objects.
pub const WRITE_QUEUE: usize = 16 << 20;
/// The same in a small container.
pub const LEAST_WRITE_QUEUE: usize = WRITE_QUEUE / 8;

/// How long a read waits until a store is seen here as it is: as kube-apiserver.
pub const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// Returns when all that was acknowledged before the call, to anybody, is seen here.
///
/// # Errors
/// When the store does not answer, or what it has not yet told here does not come in time.
pub async fn await_newest(store: &dyn Store) -> Result<(), StoreError> {
    if !store.is_shared() {
        return Ok(());
    }
    let newest = store.newest().await?;
    let timeline = store.timeline();
    let seen = timeline.wait_until(newest);
    tokio::time::timeout(FRESHNESS_WAIT, seen).await.map_err(|_| StoreError::Unavailable)
}

/// An object as it would be kept now, if that is otherwise.
pub type Renewed<'a> = dyn Fn(&Collection, &Arc<Object>) -> Option<Arc<Object>> + Sync + 'a;

/// What was written again of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// Objects that were written again.
    pub rewritten: usize,
    /// All that are kept.
    pub all: usize,
    /// Those that cannot be read, and were left as they are.
    pub damaged: Vec<String>,
}

/// What a copy of a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Objects, and changes of the last minutes.
    pub rows: usize,
    /// The newest of their revisions.
    pub newest: Revision,
}

/// What all stores that outlive the process are told.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How many bytes of memory objects may take.
    pub limit: usize,
    /// How many bytes of objects that were replaced or removed may stay, on the disk and in memory.
    pub history: usize,
    /// The limit of the queue of writes, in bytes of objects.
    pub queue: usize,
    /// How much of that a namespace may take.
    pub share: NamespaceShare,
    /// How objects are encrypted where they are kept.
    pub encryption: Arc<Encryption>,
}

/// Opens the store in a folder.
///
/// # Errors
/// When the folder, or what is in it, cannot be used.
#[cfg(feature = "sqlite")]
pub fn open(
    folder: &Path,
    options: StoreOptions,
    now: Timestamp,
) -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(sqlite::SqliteStore::open(folder, options, now)?))
}

/// Begins to read the store in etcd.
///
/// # Errors
/// When what is said of it cannot be used. That it cannot be reached is no error.
#[cfg(feature = "etcd")]
pub fn open_etcd(etcd: &EtcdOptions, options: StoreOptions) -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(etcd::EtcdStore::open(etcd, options)?))
}

/// What a program says that was built without the store in etcd.
///
/// # Errors
/// Always.
#[cfg(not(feature = "etcd"))]
pub fn open_etcd(_: &EtcdOptions, _: StoreOptions) -> Result<Arc<dyn Store>, String> {
    Err("this program was built without the feature etcd".to_owned())
}

/// As [`open_etcd`].
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

/// What a program says that was built without the embedded store.
#[cfg(not(feature = "sqlite"))]
mod absent {
    use std::io::Write;

    use super::*;

    const WHY: &str = "this program was built without the feature sqlite";

    /// Refuses, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Path, _: StoreOptions, _: Timestamp) -> Result<Arc<dyn Store>, String> {
        Err(WHY.to_owned())
    }

    /// Refuses, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn rewrite(_: &Path, _: Arc<Encryption>, _: &Renewed<'_>) -> Result<Rewritten, String> {
        Err(WHY.to_owned())
    }

    /// Refuses, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn back_up(_: &Path, _: &Path) -> Result<Copied, String> {
        Err(WHY.to_owned())
    }

    /// Refuses, because the feature `sqlite` is off.
    ///
    /// # Errors
    /// Always.
    pub fn back_up_to(_: &Path, _: impl Write) -> Result<Copied, String> {
        Err(WHY.to_owned())
    }
}

/// What a program says that was built without a store that outlives it.
#[cfg(not(any(feature = "etcd", feature = "sqlite")))]
mod no_encryption {
    use std::path::Path;

    /// Nothing is encrypted.
    #[derive(Debug, Default)]
    pub struct Encryption;

    impl Encryption {
        /// Refuses, because the features `sqlite` and `etcd` are off.
        ///
        /// # Errors
        /// Always.
        pub fn read(_: &Path) -> Result<Self, String> {
            Err("this program was built without the features sqlite and etcd".to_owned())
        }
    }
}

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
