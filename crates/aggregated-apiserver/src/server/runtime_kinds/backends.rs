//! Kinds with a backend that are added and removed while a server runs.

use std::sync::Arc;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::followed::{Followed, RunningBackend};
use super::{RuntimeKinds, Shared};
use crate::backend::{self, DirectBackend, DirectReader, ErasedBackend};
use crate::definition::{Backend, Kind as Registered};
use crate::error::{StartError, quote};
use crate::kind::Kind;
use crate::served_kind::{
    Backing, CommitGate, CreateGate, DirectBacking, ServedKind, VirtualBacking, VisibilityStates,
};
use crate::server::assemble::open_backend;
use crate::server::group_versions;
use crate::server::parsed_kinds::{self, fault};
use crate::storage::{Collection, StoreError};
use crate::watch_cache::WatchCache;

/// A backend that was opened, and what serves it.
struct Opened {
    followed: Followed,
    backing: Backing,
    visibility: Option<Arc<VisibilityStates>>,
}

impl RuntimeKinds {
    /// Serves a kind with a [backend](crate::backend): a virtual or a direct kind. If it replaces a kind that was added by
    /// this method, the watches of that kind end, and its backend is not called any more when this method returns.
    ///
    /// Until the objects have been listed, requests receive 429. The objects of all kinds that were added by this method
    /// use at most as much memory as stored objects (`--store-memory-mib`), together. The memory limits that the server
    /// logs at its start do not contain this memory.
    ///
    /// # Errors
    /// If the kind cannot be served, or another kind has one of its names.
    pub async fn serve_kind(&self, kind: impl Into<Registered>) -> Result<(), StartError> {
        let registered = kind.into();
        let Some(handler) = self.0.handler.upgrade() else { return Ok(()) };
        let turn = handler.turns().take_for_server().await;
        let Shared { shown, webhooks, patterns } = &self.0.shared;
        let kind = patterns.scope(|| parsed_kinds::parse_backend_kind(&registered))?;
        let kind = Arc::new(kind.with_shown(shown).with_webhook_calls(webhooks.clone()));
        drop(turn);
        let mut caches = self.0.caches.lock().await;
        let qualified = kind.qualified();
        self.check_names(&kind)?;
        let is_ours = caches.get(&qualified).is_some_and(Followed::has_backend);
        let is_served = handler.kinds().iter().any(|one| one.kind.qualified() == qualified);
        if is_served && !is_ours {
            let why = "is a kind of the server itself, or a stored kind";
            return Err(fault(&kind, "metadata.name", why));
        }
        let Opened { followed, backing, visibility } = self.open(&kind, &registered).await?;
        let one = ServedKind {
            kind,
            cache: Arc::clone(&followed.cache),
            backing,
            visibility,
            ended: self.0.closing.child_token(),
            create_gate: CreateGate::default(),
            gate: CommitGate::default(),
            unavailable: None,
            came_at_run_time: true,
        };
        let former = caches.insert(qualified.clone(), followed);
        let mut served = handler.kinds();
        let gone = served.remove(|one| one.kind.qualified() == qualified);
        served.push(one);
        handler.serve(served);
        retire(gone, former, &qualified).await;
        Ok(())
    }

    /// Stops serving a kind that [`serve_kind`](Self::serve_kind) has added, such as `foos.example.com`. Its watches end.
    /// When this method returns, the backend is not called any more. It waits for writes that are running, which the timeout
    /// of the backend limits. Objects of the backend are not deleted. Their metadata that the library has stored remains, so
    /// that they have it if the kind is added again.
    ///
    /// Discovery does not have the kind any more. Requests for it receive 404, and 503 if kube-apiserver sends them: its
    /// objects still exist in the backend, and the garbage collector would delete their dependents after a 404. The group and
    /// the version of the kind stay in discovery, also without any kind. Otherwise their APIService would be unavailable, and
    /// Kubernetes would delete no namespace until the APIService is deleted.
    pub async fn withdraw_kind(&self, qualified: &str) {
        let Some(handler) = self.0.handler.upgrade() else { return };
        let mut caches = self.0.caches.lock().await;
        if !caches.get(qualified).is_some_and(Followed::has_backend) {
            return;
        }
        let followed = caches.remove(qualified);
        let mut served = handler.kinds();
        let gone = served.remove(|one| one.kind.qualified() == qualified);
        if let Some(gone) = &gone {
            served.retain_group_versions(&gone.kind);
        }
        handler.serve(served);
        retire(gone, followed, qualified).await;
    }

    /// Ends the tasks of all backends, because the server ends.
    pub(in crate::server) fn abort_backends(&self) {
        // The lock is held only while kinds change. Their tasks then end with the last owner of this value.
        if let Ok(mut caches) = self.0.caches.try_lock() {
            caches.retain(|_, followed| !followed.has_backend());
        }
    }

    /// Rejects a kind if another kind has one of its names, or if code of the user handles its paths.
    pub(super) fn check_names(&self, kind: &Kind) -> Result<(), StartError> {
        let kinds = self.0.handler.upgrade().map(|handler| handler.kinds()).unwrap_or_default();
        let mut with_paths = kinds.group_versions().iter();
        let conflict = with_paths.find_map(|one| group_versions::conflict(&one.paths, kind));
        if let Some(why) = conflict {
            return Err(fault(kind, "spec.group", &why));
        }
        let taken = self.taken_names(&kind.group, &kind.names.plural);
        match super::conflict(kind, &taken) {
            Some((field, name)) => {
                let why = format!("{} is already in use", quote(name));
                Err(fault(kind, field, &why))
            }
            None => Ok(()),
        }
    }

    async fn open(&self, kind: &Arc<Kind>, registered: &Registered) -> Result<Opened, StartError> {
        match &registered.backend {
            Backend::Virtual(backend) => self.open_virtual(kind, backend).await,
            Backend::Direct(backend) => Ok(self.open_direct(kind, backend)),
            Backend::Stored { .. }
            | Backend::Computed { .. }
            | Backend::Reviewed(_)
            | Backend::Elsewhere => {
                let why = "is not a kind with a backend, so it cannot be added at run time";
                Err(fault(kind, "metadata.name", why))
            }
        }
    }

    fn open_direct(&self, kind: &Arc<Kind>, backend: &Arc<DirectBackend>) -> Opened {
        let cache = self.new_cache();
        cache.mark_synced();
        let ended = CancellationToken::new();
        let memory = self.0.backends.memory.clone();
        let reader = DirectReader::new(Arc::clone(backend), memory).ending_with(ended.clone());
        let (visibility, tasks) = self.follow_visibility(kind);
        let running = RunningBackend { store: None, ended, tasks };
        let followed = Followed::of_cache(cache).with_backend(running);
        Opened {
            followed,
            backing: Backing::Direct(DirectBacking::new(Arc::new(reader))),
            visibility,
        }
    }

    async fn open_virtual(
        &self,
        kind: &Arc<Kind>,
        backend: &Arc<ErasedBackend>,
    ) -> Result<Opened, StartError> {
        let unusable = |error: StoreError| fault(kind, "storage", &error.to_string());
        let cache = self.new_cache();
        let revisions = (Arc::clone(&self.0.backends.sequencer), self.0.backends.memory.clone());
        let store = (&self.0.store, &self.0.clock);
        let store = open_backend(kind, backend, revisions, store).await?;
        let (visibility, mut tasks) = self.follow_visibility(kind);
        let collection = Collection::new(&kind.collection());
        let counter = self.0.quotas.as_ref().map(|quotas| quotas.usages.counter(kind));
        let followed = Followed::new(&*store, &collection, (cache.clone(), counter)).await;
        tasks.spawn(backend::run(Arc::clone(&store), cache).boxed());
        let ended = CancellationToken::new();
        let running = RunningBackend { store: Some(store.clone()), ended, tasks };
        let followed = followed.map_err(unusable)?.with_backend(running);
        let backing = Backing::Virtual(VirtualBacking::new(store));
        Ok(Opened { followed, backing, visibility })
    }

    fn new_cache(&self) -> Arc<WatchCache> {
        let (window, windows) = &self.0.window;
        WatchCache::sharing(Arc::clone(&self.0.backends.sequencer), *window, windows)
    }

    /// The states of the visibility of a kind, and the task that follows them.
    fn follow_visibility(&self, kind: &Kind) -> (Option<Arc<VisibilityStates>>, JoinSet<()>) {
        let sequencer = Arc::clone(&self.0.backends.sequencer);
        let states = VisibilityStates::of_process(kind.following_visibility(), sequencer);
        let mut tasks = JoinSet::new();
        if let Some(states) = states.clone() {
            tasks.spawn(states.run());
        }
        (states, tasks)
    }
}

/// Ends a kind that is not served any more. Requests that were routed earlier still use it.
async fn retire(gone: Option<ServedKind>, followed: Option<Followed>, qualified: &str) {
    let Some(gone) = gone else { return };
    // Creates are not rejected by `create_gate`: that would delete objects from the backend that were created last.
    gone.ended.cancel();
    let Some(mut followed) = followed else { return };
    let store = followed.end_backend().await;
    gone.gate.close().await;
    gone.cache.forget_past();
    if let Some(store) = store {
        followed.end(&*store, qualified);
    }
}
