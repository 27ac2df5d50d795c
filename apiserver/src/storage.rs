//! Where objects are kept: one ordered log of revisions.
//!
//! A store knows no HTTP, no callers and no kinds: a collection is a name.

mod memory;
pub mod revision;
mod shares;
mod shelves;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod suite;
mod timeline;

pub use memory::{
    BYTES_LIMIT as MEMORY_STORE_LIMIT, LEAST_BYTES_LIMIT as LEAST_MEMORY_STORE_LIMIT, MemoryStore,
};
pub use revision::Revision;
pub use shares::NamespaceShare;
pub use timeline::Timeline;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

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
    /// Nothing is written any more.
    #[error("the store takes no more writes: its disk has failed")]
    Failed,
    /// Nobody knows whether it was written.
    #[error("the disk of the store has failed, and it is not known whether this was written")]
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
    /// change since this revision.
    fn begin(&self, _oldest: Revision) {}

    /// Something is kept under this key that cannot be read. Told before anything else.
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
    /// The object under the key.
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>>;

    /// Writes, if what is expected is true; answers with the new revision.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// Hands everything that a collection holds, and from then on every
    /// change of it, to the reader.
    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Where its revisions come from.
    fn timeline(&self) -> Arc<Timeline>;

    /// Whether what is kept is still there for the next process.
    fn outlives_process(&self) -> bool {
        false
    }

    /// Whether nothing was ever kept in it by another process.
    fn is_new(&self) -> bool {
        true
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

/// What a copy of a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Objects, and changes of the last minutes.
    pub rows: usize,
    /// The newest of their revisions.
    pub newest: Revision,
}

/// Opens the store in a folder, which takes so many bytes of memory, and a namespace this share of
/// them.
///
/// # Errors
/// When the folder, or what is in it, cannot be used.
#[cfg(feature = "sqlite")]
pub fn open(
    folder: &Path,
    (limit, share): (usize, NamespaceShare),
    now: Timestamp,
) -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(sqlite::SqliteStore::open(folder, limit, share, now)?))
}

#[cfg(feature = "sqlite")]
pub use sqlite::{back_up, back_up_to};

#[cfg(not(feature = "sqlite"))]
pub use absent::{back_up, back_up_to, open};

/// What a program says that was built without the embedded store.
#[cfg(not(feature = "sqlite"))]
mod absent {
    use std::io::Write;

    use super::*;

    const WHY: &str = "this program was built without the feature sqlite";

    pub fn open(
        _: &Path,
        _: (usize, NamespaceShare),
        _: Timestamp,
    ) -> Result<Arc<dyn Store>, String> {
        Err(WHY.to_owned())
    }

    pub fn back_up(_: &Path, _: &Path) -> Result<Copied, String> {
        Err(WHY.to_owned())
    }

    pub fn back_up_to(_: &Path, _: impl Write) -> Result<Copied, String> {
        Err(WHY.to_owned())
    }
}
