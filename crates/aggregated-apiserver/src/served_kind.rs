//! A served kind: its description, its cache and its backend.

mod visibility_marker;
mod visibility_states;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::backend::{BackendStore, DirectReader, DirectSession, Writes};
use crate::kind::{Kind, MOST_RIGHTS, MissingRights, ProtectedFields, ReviewHandler, Version};
use crate::object::Object;
use crate::paths::ParsedGroupVersion;
use crate::storage::{self, Collection, MARK_BITS, Revision, Store, StoreError};
use crate::user::User;
use crate::watch_cache::WatchCache;

pub use visibility_marker::Marker;
pub use visibility_states::{VisibilityState, VisibilityStates};

// The missing permissions of a caller are a part of the revisions that it receives.
const _: () = assert!(MOST_RIGHTS == MARK_BITS as usize);

/// A source of a computed kind. A request on the computed kind requires permission for the same verb on the source.
#[derive(Clone, Debug)]
pub struct SourceResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// Whether its objects may be in other namespaces than the source.
    pub objects_in_any_namespace: bool,
    /// The namespace of all sources, if they are read from one.
    pub own_namespace: Option<&'static str>,
    /// Returns the name of the source object for the name of a computed object; `None` if the name cannot be derived.
    pub name_of: fn(&str) -> Option<String>,
}

impl SourceResource {
    /// The namespace in which a request for objects in this namespace needs its permission on the source.
    pub fn namespace_of<'a>(&'a self, namespace: &'a str) -> &'a str {
        match self.objects_in_any_namespace {
            _ if !self.namespaced => "",
            true => self.own_namespace.unwrap_or_default(),
            false => namespace,
        }
    }
}

/// A permission that a lookup of a computed kind requires. Fields with data of the lookup are visible to callers that
/// are allowed to use the same verb on the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupRight {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// Whether permission in the namespace of the request suffices, because lookups do not leave that namespace.
    pub in_namespace: bool,
    /// The paths of the fields that are omitted if the permission is missing. If the list is empty, the request is
    /// rejected instead.
    pub fields: Vec<String>,
}

/// The sources and lookups of a computed kind, with the permissions that readers need.
#[derive(Debug)]
pub struct ComputedFrom {
    /// The sources. Each computed object belongs to one object of each source.
    pub sources: Vec<SourceResource>,
    /// Permissions for lookups; a request is rejected if one of them is missing.
    pub demanded: Vec<LookupRight>,
    /// Permissions for lookups; the protected fields are omitted if one of them is missing.
    pub protected: Vec<LookupRight>,
    /// The fields that each permission of `protected` protects, in the same order.
    pub fields: Arc<ProtectedFields>,
}

impl ComputedFrom {
    /// Removes the mark from a revision and returns it. The mark records which permissions the caller lacked when it
    /// received the revision. If this kind cannot have issued the mark, the revision stays unchanged and is later
    /// rejected as foreign.
    pub fn unmark(&self, revision: &mut Revision) -> MissingRights {
        let (unmarked, mark) = revision.unmarked();
        if mark & !self.fields.rights() != 0 {
            return 0;
        }
        *revision = unmarked;
        mark
    }
}

/// The backend of a kind.
#[derive(Clone)]
pub enum Backing {
    /// A store. The kind can be written.
    Stored(Arc<dyn Store>),
    /// A backend of the user. Reads are answered from the cache, and writes go to the backend.
    Virtual(VirtualBacking),
    /// A backend of the user that is called for every read.
    Direct(DirectBacking),
    /// A computation. The kind is read-only; callers need permission to read its sources.
    Computed(Arc<ComputedFrom>),
    /// A handler of reviews. Objects are not stored and cannot be read.
    Reviewed(Arc<ReviewHandler>),
    /// Another server has the objects. Only subresources are served.
    Elsewhere,
}

/// The store of a virtual kind, which sends writes to its backend.
#[derive(Clone)]
pub struct VirtualBacking {
    store: Arc<dyn Store>,
    /// The same store, for writes with their context.
    pub backend: Arc<BackendStore>,
}

impl VirtualBacking {
    /// The backing of a kind with this store.
    pub fn new(backend: Arc<BackendStore>) -> Self {
        Self { store: backend.clone(), backend }
    }
}

/// The backend of a direct kind.
#[derive(Clone)]
pub struct DirectBacking {
    /// Reads the objects.
    pub reader: Arc<DirectReader>,
    /// The writes of one request. Only that request has this value.
    session: Option<(Arc<dyn Store>, Arc<DirectSession>)>,
}

impl DirectBacking {
    /// The backing of a kind with this reader.
    pub fn new(reader: Arc<DirectReader>) -> Self {
        Self { reader, session: None }
    }
}

/// A served kind: its description, its cache and its backend.
#[derive(Clone)]
pub struct ServedKind {
    /// The description of the kind.
    pub kind: Arc<Kind>,
    /// The cache that answers reads.
    pub cache: Arc<WatchCache>,
    /// The backend of the cache.
    pub backing: Backing,
    /// The states of the visibility, if it follows a state.
    pub visibility: Option<Arc<VisibilityStates>>,
    /// Cancelled when the kind is no longer served with this definition. Its watches then end.
    pub ended: CancellationToken,
    /// Whether create requests are accepted.
    pub create_gate: CreateGate,
    /// The gate for writes that were checked against this definition.
    pub gate: CommitGate,
    /// The reason why the objects are unavailable: they are stored elsewhere and could not be copied. Requests on the
    /// kind then fail.
    pub unavailable: Option<Arc<str>>,
    /// Whether the kind was added at run time and can be removed again.
    pub came_at_run_time: bool,
}

/// Whether create requests are accepted. They are rejected once the definition of the kind is being deleted, including
/// requests that were routed earlier.
#[derive(Clone, Default)]
pub struct CreateGate(Arc<AtomicBool>);

impl CreateGate {
    /// Rejects create requests from now on.
    pub fn close(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether create requests are rejected.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// The gate for commits that were checked against one definition of a kind. Once another definition has replaced it,
/// the gate is closed: requests that were routed earlier can no longer commit by the old definition.
#[derive(Clone, Debug)]
pub struct CommitGate(Arc<Semaphore>);

/// The number of permits of a gate, more than the commits that can run at a time.
const COMMITS: u32 = 1 << 20;

impl Default for CommitGate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(COMMITS as usize)))
    }
}

impl CommitGate {
    /// Returns a permit for one commit; `None` if the gate is closed. The commit ends when the permit is dropped.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Closes the gate. Returns when all commits with a permit have ended.
    pub async fn close(&self) {
        // A task that waits for all permits prevents others from getting one.
        let all = self.0.acquire_many(COMMITS).await;
        self.0.close();
        drop(all);
    }
}

impl ServedKind {
    /// The sources and lookups of a computed kind; `None` for other kinds.
    pub fn computed_from(&self) -> Option<&ComputedFrom> {
        match &self.backing {
            Backing::Computed(from) => Some(from),
            Backing::Stored(_)
            | Backing::Virtual(_)
            | Backing::Direct(_)
            | Backing::Reviewed(_)
            | Backing::Elsewhere => None,
        }
    }

    /// The store and the collection of a kind that can be written; `None` for other kinds.
    pub fn store(&self) -> Option<(&Arc<dyn Store>, Collection)> {
        match &self.backing {
            Backing::Stored(store) | Backing::Virtual(VirtualBacking { store, .. }) => {
                Some((store, Collection::new(&self.kind.collection())))
            }
            Backing::Direct(DirectBacking { session, .. }) => {
                let (store, _) = session.as_ref()?;
                Some((store, Collection::new(&self.kind.collection())))
            }
            Backing::Computed(_) | Backing::Reviewed(_) | Backing::Elsewhere => None,
        }
    }

    /// The writes of this request, if the kind is a direct one.
    pub fn direct_session(&self) -> Option<&Arc<DirectSession>> {
        let Backing::Direct(DirectBacking { session, .. }) = &self.backing else { return None };
        session.as_ref().map(|(_, session)| session)
    }

    /// The same kind for the writes of a request of this user.
    #[must_use]
    pub fn written_by(&self, user: &Arc<User>) -> Self {
        let Backing::Direct(DirectBacking { reader, .. }) = &self.backing else {
            return self.clone();
        };
        let (kind, user) = (Arc::clone(&self.kind), Arc::clone(user));
        let session = DirectSession::new(kind, Arc::clone(reader), user, self.cache.sequencer());
        let session = Arc::new(session);
        let session = Some((Arc::clone(&session) as Arc<dyn Store>, session));
        let backing = Backing::Direct(DirectBacking { reader: Arc::clone(reader), session });
        Self { backing, ..self.clone() }
    }

    /// Whether clients create objects of the kind that are counted and stored.
    pub fn is_written(&self) -> bool {
        match &self.backing {
            Backing::Direct(DirectBacking { reader, .. }) => reader.writes() != Writes::default(),
            _ => self.store().is_some(),
        }
    }

    /// Whether the backend of the kind receives dry runs.
    pub fn validates_dry_run(&self) -> bool {
        match &self.backing {
            Backing::Virtual(VirtualBacking { backend, .. }) => backend.validates_dry_run(),
            Backing::Direct(DirectBacking { reader, .. }) => reader.validates_dry_run(),
            _ => false,
        }
    }

    /// Whether the backend of the kind stores `managedFields`.
    pub fn keeps_managed_fields(&self) -> bool {
        match &self.backing {
            Backing::Direct(DirectBacking { reader, .. }) => reader.keeps("managedFields"),
            _ => true,
        }
    }
}

impl ServedKind {
    /// The same kind with a cache of these objects.
    pub async fn with_objects(&self, objects: Vec<(Arc<Object>, Option<Revision>)>) -> Self {
        let cache = self.cache.with_objects(objects).await;
        Self { cache: Arc::new(cache), ..self.clone() }
    }

    /// Whether the objects are in the store of the server.
    pub fn is_stored(&self) -> bool {
        matches!(self.backing, Backing::Stored(_))
    }

    /// Whether other processes write objects of the kind too.
    pub fn is_shared(&self) -> bool {
        matches!(&self.backing, Backing::Stored(store) if store.is_shared())
    }

    /// Waits until the cache contains every write that was acknowledged to any client before the call.
    /// # Errors
    /// Returns an error if the store does not respond.
    pub async fn await_newest(&self) -> Result<(), StoreError> {
        match &self.backing {
            Backing::Stored(store) => storage::await_newest(&**store).await,
            // The cache has the newest known objects.
            Backing::Virtual(_)
            | Backing::Direct(_)
            | Backing::Computed(_)
            | Backing::Reviewed(_)
            | Backing::Elsewhere => Ok(()),
        }
    }
}

impl fmt::Debug for ServedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedKind").field(&self.kind.qualified()).finish()
    }
}

/// A served group version whose paths code of the user handles.
#[derive(Clone, Debug)]
pub struct ServedGroupVersion {
    /// The paths and their handlers.
    pub paths: ParsedGroupVersion,
    /// Cancelled when the server drains. Long requests then end.
    pub ended: CancellationToken,
}

/// All served kinds and group versions, in the order of their registration.
#[derive(Clone, Debug, Default)]
pub struct ServedKinds {
    kinds: Vec<ServedKind>,
    group_versions: Arc<[ServedGroupVersion]>,
    /// The groups and versions that stay in discovery without a kind.
    retained: Vec<(String, String)>,
}

impl ServedKinds {
    /// Creates the list of these kinds.
    pub fn new(kinds: Vec<ServedKind>) -> Self {
        Self { kinds, ..Self::default() }
    }

    /// Sets the group versions whose paths code of the user handles.
    #[must_use]
    pub fn with_group_versions(self, group_versions: Arc<[ServedGroupVersion]>) -> Self {
        Self { group_versions, ..self }
    }

    /// The group versions whose paths code of the user handles.
    pub fn group_versions(&self) -> &[ServedGroupVersion] {
        &self.group_versions
    }

    /// Returns the group version whose paths code of the user handles.
    pub fn group_version(&self, group: &str, version: &str) -> Option<&ServedGroupVersion> {
        self.group_versions.iter().find(|served| {
            let described = served.paths.described();
            (described.group(), described.version()) == (group, version)
        })
    }

    /// Adds a kind.
    pub fn push(&mut self, kind: ServedKind) {
        self.kinds.push(kind);
    }

    /// Removes the first kind that the predicate accepts, and returns it.
    pub fn remove(&mut self, is_meant: impl Fn(&ServedKind) -> bool) -> Option<ServedKind> {
        let place = self.kinds.iter().position(is_meant)?;
        Some(self.kinds.remove(place))
    }

    /// Keeps the group versions of a kind in discovery, also without a kind.
    pub fn retain_group_versions(&mut self, kind: &Kind) {
        for version in &kind.versions {
            let group_version = (kind.group.clone(), version.name.clone());
            if !self.retained.contains(&group_version) {
                self.retained.push(group_version);
            }
        }
    }

    /// The groups and versions that stay in discovery without a kind.
    pub fn retained_group_versions(&self) -> &[(String, String)] {
        &self.retained
    }

    /// Iterates over all kinds.
    pub fn iter(&self) -> impl Iterator<Item = &ServedKind> {
        self.kinds.iter()
    }

    /// Returns the kind and the version for the parts of a request path.
    pub fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<(&ServedKind, &Arc<Version>)> {
        let is_meant = |kind: &Kind| kind.group == group && kind.names.plural == plural;
        // A view may show the objects of a kind in another version, with the same names.
        let all = self.kinds.iter().filter(|served| is_meant(&served.kind));
        all.filter_map(|served| Some((served, served.kind.version(version)?))).next()
    }
}
