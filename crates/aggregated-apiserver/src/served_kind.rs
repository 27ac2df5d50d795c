//! ServedKind: one kind in service.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::kind::{Kind, MOST_RIGHTS, MissingRights, ProtectedFields, ReviewHandler, Version};
use crate::storage::{self, Collection, MARK_BITS, Revision, Store, StoreError};
use crate::watch_cache::WatchCache;

// What is missing is a part of revisions.
const _: () = assert!(MOST_RIGHTS == MARK_BITS as usize);

/// What a computed kind is computed from: callers need the same verb on it.
#[derive(Clone, Debug)]
pub struct SourceResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// Whether it lives in namespaces.
    pub namespaced: bool,
    /// The name of the source behind an object's name, if it can be told.
    pub name_of: fn(&str) -> Option<String>,
}

/// What a computed kind looks up: what it shows of that is shown to callers who have the same verb on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupRight {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// Whether the right in the namespace of the request is enough: nothing is looked up in others.
    pub in_namespace: bool,
    /// The paths of the fields that are left out where the right is missing. If there are none the request is refused.
    pub fields: Vec<String>,
}

/// What a kind is computed from, and the rights that its readers need.
#[derive(Debug)]
pub struct ComputedFrom {
    /// What each object is computed from, object by object.
    pub sources: Vec<SourceResource>,
    /// What is looked up without which a request is refused.
    pub demanded: Vec<LookupRight>,
    /// What is looked up without which fields are left out,
    pub protected: Vec<LookupRight>,
    /// and the fields, in the same order.
    pub fields: Arc<ProtectedFields>,
}

impl ComputedFrom {
    /// Takes from a revision what it says was left out when it was given, and answers that. What this kind cannot have
    /// given stays as it is: that is of nobody.
    pub fn unmark(&self, revision: &mut Revision) -> MissingRights {
        let (unmarked, mark) = revision.unmarked();
        if mark & !self.fields.rights() != 0 {
            return 0;
        }
        *revision = unmarked;
        mark
    }
}

/// What stands behind the cache of a kind.
#[derive(Clone)]
pub enum Backing {
    /// A store: the kind can be written.
    Stored(Arc<dyn Store>),
    /// A computation: the kind can be read by whoever may read its sources.
    Computed(Arc<ComputedFrom>),
    /// Code that answers questions: nothing is kept, and nothing can be read.
    Reviewed(Arc<ReviewHandler>),
}

/// One kind in service: its description, its cache, and what is behind it.
#[derive(Clone)]
pub struct ServedKind {
    /// Its description.
    pub kind: Arc<Kind>,
    /// What reads are answered from.
    pub cache: Arc<WatchCache>,
    /// What stands behind the cache.
    pub backing: Backing,
    /// When it is no longer served like this: then its watches end.
    pub ended: CancellationToken,
    /// Whether objects may be made.
    pub intake: Intake,
    /// What is written as this definition says goes through here.
    pub gate: CommitGate,
    /// Why its objects are not known here, if they are kept elsewhere and could not
    /// be copied: then nothing can be said of them.
    pub unavailable: Option<Arc<str>>,
    /// Whether it came while the server ran, and may go again.
    pub came_at_run_time: bool,
}

/// Whether objects of a kind may be created: not once its definition is being
/// deleted, also not by requests that were routed before.
#[derive(Clone, Default)]
pub struct Intake(Arc<AtomicBool>);

impl Intake {
    /// Objects may not be made from now on.
    pub fn close(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether objects may not be made.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What commits go through that were judged by one definition of a kind. Once another one has taken
/// its place, nothing is written any more as the old one said, also not by requests that were
/// routed before.
#[derive(Clone, Debug)]
pub struct CommitGate(Arc<Semaphore>);

/// More commits than can be in flight.
const COMMITS: u32 = 1 << 20;

impl Default for CommitGate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(COMMITS as usize)))
    }
}

impl CommitGate {
    /// Lets a commit through, until this is dropped; `None` once the gate is closed.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Closes the gate; returns when every commit that went through has ended.
    pub async fn close(&self) {
        // Whoever waits for all of them leaves none to others.
        let all = self.0.acquire_many(COMMITS).await;
        self.0.close();
        drop(all);
    }
}

impl ServedKind {
    /// What it is computed from, if it is.
    pub fn computed_from(&self) -> Option<&ComputedFrom> {
        match &self.backing {
            Backing::Computed(from) => Some(from),
            Backing::Stored(_) | Backing::Reviewed(_) => None,
        }
    }

    /// The store behind it, if it can be written.
    pub fn store(&self) -> Option<(&Arc<dyn Store>, Collection)> {
        match &self.backing {
            Backing::Stored(store) => Some((store, Collection::new(&self.kind.collection()))),
            Backing::Computed(_) | Backing::Reviewed(_) => None,
        }
    }
}

impl ServedKind {
    /// Whether other processes write its objects, too.
    pub fn is_shared(&self) -> bool {
        matches!(&self.backing, Backing::Stored(store) if store.is_shared())
    }

    /// Returns when the cache shows every write that any client was told of before the call.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn await_newest(&self) -> Result<(), StoreError> {
        match &self.backing {
            Backing::Stored(store) => storage::await_newest(&**store).await,
            // What is computed is the newest there is.
            Backing::Computed(_) | Backing::Reviewed(_) => Ok(()),
        }
    }
}

impl fmt::Debug for ServedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedKind").field(&self.kind.qualified()).finish()
    }
}

/// All kinds in service, in the order in which they were registered.
#[derive(Clone, Debug, Default)]
pub struct ServedKinds(Vec<ServedKind>);

impl ServedKinds {
    /// These kinds.
    pub fn new(kinds: Vec<ServedKind>) -> Self {
        Self(kinds)
    }

    /// Adds a kind.
    pub fn push(&mut self, kind: ServedKind) {
        self.0.push(kind);
    }

    /// Takes the first kind out that is meant.
    pub fn remove(&mut self, is_meant: impl Fn(&ServedKind) -> bool) -> Option<ServedKind> {
        let place = self.0.iter().position(is_meant)?;
        Some(self.0.remove(place))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &ServedKind> {
        self.0.iter()
    }

    /// The kind behind a path, and the version.
    pub fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<(&ServedKind, &Arc<Version>)> {
        let is_meant = |kind: &Kind| kind.group == group && kind.names.plural == plural;
        let served = self.0.iter().find(|served| is_meant(&served.kind))?;
        Some((served, served.kind.version(version)?))
    }
}
