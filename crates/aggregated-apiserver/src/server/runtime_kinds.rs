//! Kinds that are added and removed while a server runs.

mod backends;
mod followed;
mod lookup;
mod restore;

use followed::Followed;
pub use restore::RestoreError;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::assemble::Quotas;
use super::{ca_bundle, parsed_kinds, stored_definition};
use crate::admission::QuotaStatuses;
use crate::backend::BackendMemory;
use crate::clock::Clock;
use crate::conversion::ConversionWebhooks;
use crate::error::{FieldError, StartError, quote};
use crate::kind::{Kind, PatternCache, ShownObjects};
use crate::object::Key;
use crate::request::Handler;
use crate::served_kind::{Backing, CommitGate, CreateGate, ServedKind};
use crate::storage::{
    Collection, Commit, Failure, Precondition, RevisionSequencer, Store, StoreError, Versioned,
    await_newest,
};
use crate::watch_cache::{Scope, WatchCache, WindowBudget};

/// The number of retries of a removal that the store could not execute or did not confirm, and the pause before each
/// retry.
const REMOVAL_RETRIES: u32 = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(500);

/// A kind whose objects a server stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// A version that is served; the storage version, if that one is served.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural.
    pub plural: String,
    /// Whether the kind is namespaced.
    pub is_namespaced: bool,
}

/// The names of a group that are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesInUse {
    /// The plurals, singulars and short names.
    pub resources: HashSet<String>,
    /// The kinds and their list kinds.
    pub kinds: HashSet<String>,
}

/// The interface that adds and removes kinds while a server runs.
#[derive(Clone)]
pub struct RuntimeKinds(Arc<Parts>);

struct Parts {
    handler: Weak<Handler>,
    store: Arc<dyn Store>,
    /// The limit of recent changes of a kind, in bytes of objects, and the budget of all kinds.
    window: (usize, Arc<WindowBudget>),
    shared: Shared,
    backends: Backends,
    clock: Clock,
    /// The accounting of quotas, if quotas are enforced.
    quotas: Option<Quotas>,
    closing: CancellationToken,
    /// The error that must stop the server, once it is known.
    refused: Arc<Failure>,
    /// The caches of the kinds that were added at run time, by `foos.example.com`. The lock is held while kinds change.
    caches: Mutex<HashMap<String, Followed>>,
}

/// The resources that all kinds of a server share.
pub(super) struct Shared {
    /// The caches of converted objects.
    pub shown: ShownObjects,
    /// The calls of conversion webhooks.
    pub webhooks: Arc<ConversionWebhooks>,
    /// The patterns of schemas.
    pub patterns: PatternCache,
}

/// The resources of kinds with a backend.
pub(super) struct Backends {
    /// The revisions of the process.
    pub sequencer: Arc<RevisionSequencer>,
    /// The memory of the objects of all kinds that are added at run time.
    pub memory: BackendMemory,
}

impl Backends {
    /// The kinds that are added at run time use at most this number of bytes together.
    pub(super) fn new(sequencer: Arc<RevisionSequencer>, bytes: usize) -> Self {
        Self { sequencer, memory: BackendMemory::of(bytes) }
    }
}

impl RuntimeKinds {
    pub(super) fn new(
        handler: &Arc<Handler>,
        store: Arc<dyn Store>,
        window: (usize, Arc<WindowBudget>),
        (shared, backends): (Shared, Backends),
        (clock, quotas): (Clock, Option<Quotas>),
        (closing, refused): (CancellationToken, Arc<Failure>),
    ) -> Self {
        let handler = Arc::downgrade(handler);
        let caches = Mutex::default();
        Self(Arc::new(Parts {
            handler,
            store,
            window,
            shared,
            backends,
            clock,
            quotas,
            closing,
            refused,
            caches,
        }))
    }

    /// The errors of a definition, regardless of the other kinds. Errors that the replaced definition `old` has too are
    /// allowed.
    pub fn check(
        definition: &CustomResourceDefinition,
        old: Option<&CustomResourceDefinition>,
    ) -> Vec<FieldError> {
        let faults = stored_definition::faults(definition, old);
        faults.iter().map(|fault| FieldError::from_text(fault)).collect()
    }

    /// The error if a definition's webhook has a CA bundle without a readable certificate. `None` if one certificate is
    /// readable or the bundle is empty.
    pub fn ca_bundle_fault(definition: &CustomResourceDefinition) -> Option<String> {
        let webhook = definition.spec.conversion.as_ref()?.webhook.as_ref()?;
        ca_bundle::fault(&webhook.client_config.as_ref()?.ca_bundle.as_ref()?.0)
    }

    /// The parts of a valid definition that are not enforced. Unknown formats are listed only if `old` does not have
    /// them.
    pub fn unenforced(
        definition: &CustomResourceDefinition,
        old: Option<&CustomResourceDefinition>,
    ) -> Vec<String> {
        let parsed = |one| Kind::parse_kept(one, &mut Vec::new()).ok();
        let Some(kind) = parsed(definition) else { return Vec::new() };
        let mut formats = kind.unrecognized_formats();
        if let Some(before) = old.filter(|_| !formats.is_empty()).and_then(parsed) {
            formats = &formats - &before.unrecognized_formats();
        }
        let told = formats.iter().map(|format| format!("unrecognized format {}", quote(format)));
        told.chain(stored_definition::unenforced(&kind, definition)).collect()
    }

    /// The names of other kinds in a group: plurals, singulars and short names, and kinds with their list kinds.
    pub fn taken_names(&self, group: &str, plural: &str) -> NamesInUse {
        let mut taken = NamesInUse::default();
        let Some(handler) = self.0.handler.upgrade() else { return taken };
        for other in handler.kinds().iter().map(|served| &served.kind) {
            let names = &other.names;
            if other.group != group || names.plural == plural {
                continue;
            }
            taken.resources.extend([names.plural.clone(), names.singular.clone()]);
            taken.resources.extend(names.short_names.iter().cloned());
            taken.kinds.extend([names.kind.clone(), names.list_kind.clone()]);
        }
        taken
    }

    /// Serves the kind of a definition. If it replaces an older definition, open watches end, and objects are shown as
    /// the new definition determines. Parts that cannot be enforced are omitted. Errors that [`RuntimeKinds::check`]
    /// finds are not checked again.
    ///
    /// # Errors
    /// If the definition cannot be served, or another kind has one of its names.
    pub async fn serve(&self, definition: &CustomResourceDefinition) -> Result<(), StartError> {
        let Some(handler) = self.0.handler.upgrade() else { return Ok(()) };
        let turn = handler.turns().take_for_server().await;
        // The definition was validated when it was written, perhaps by an older release. Its objects must be served in
        // any case.
        let Shared { shown, webhooks, patterns } = &self.0.shared;
        let kind = patterns.scope(|| Kind::parse_kept(definition, &mut Vec::new()))?.with_shape();
        let kind = Arc::new(kind.with_shown(shown).with_webhook_calls(webhooks.clone()));
        stored_definition::warn_of_unenforced(&kind, definition);
        drop(turn);
        let mut caches = self.0.caches.lock().await;
        let qualified = kind.qualified();
        let mut served = handler.kinds();
        let is_it = |one: &ServedKind| one.kind.qualified() == qualified;
        self.check_names(&kind)?;
        let is_ours = caches.get(&qualified).is_some_and(|followed| !followed.has_backend());
        if served.iter().any(is_it) && !is_ours {
            return Err(parsed_kinds::fault(
                &kind,
                "metadata.name",
                "is a kind of the server itself",
            ));
        }
        let cache = match caches.get(&qualified) {
            Some(followed) => Arc::clone(&followed.cache),
            None => {
                let unusable =
                    |error: StoreError| parsed_kinds::fault(&kind, "storage", &error.to_string());
                let (window, windows) = &self.0.window;
                let cache = WatchCache::sharing(self.0.store.sequencer(), *window, windows);
                let counter = self.0.quotas.as_ref().map(|quotas| quotas.usages.counter(&kind));
                let (store, collection) = (&*self.0.store, Collection::new(&qualified));
                let readers = (Arc::clone(&cache), counter);
                let followed = Followed::new(store, &collection, readers).await;
                let followed = followed.map_err(unusable)?;
                cache.mark_synced();
                caches.insert(qualified.clone(), followed);
                cache
            }
        };
        let before = served.remove(is_it);
        // Requests that still use the old kind share its `create_gate`, so closing the kind applies to them too.
        let create_gate =
            before.as_ref().map_or_else(CreateGate::default, |one| one.create_gate.clone());
        served.push(ServedKind {
            kind: Arc::clone(&kind),
            cache: Arc::clone(&cache),
            backing: Backing::Stored(self.0.store.clone()),
            visibility: None,
            ended: self.0.closing.child_token(),
            create_gate,
            gate: CommitGate::default(),
            unavailable: None,
            came_at_run_time: true,
        });
        handler.serve(served);
        if let Some(before) = before {
            before.gate.close().await;
            before.ended.cancel();
        }
        Ok(())
    }

    /// The statuses of the ResourceQuotas that the server stores; `None` if it stores or enforces none.
    pub fn quota_statuses(&self) -> Option<QuotaStatuses> {
        self.0.quotas.as_ref()?.statuses.clone()
    }

    /// Calls this code after each update of the kind with this name (`foos.example.com`), with the name of the object.
    /// The response to the update waits for the code, up to a timeout. Only the first call for a kind has an effect.
    pub fn follow_updates(
        &self,
        qualified: &str,
        follow: impl Fn(&str) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        if let Some(handler) = self.0.handler.upgrade() {
            handler.follow_updates(qualified, follow);
        }
    }

    /// Returns when the stored objects have been read and are served: at once, unless the store is another server.
    ///
    /// # Errors
    /// If the objects cannot be read.
    pub async fn known(&self) -> Result<(), StartError> {
        let kinds = self.0.handler.upgrade().map(|handler| handler.kinds());
        let known = async {
            self.0.store.known().await;
            let stored = kinds.iter().flat_map(|kinds| kinds.iter());
            for served in stored.filter(|served| served.is_stored()) {
                served.cache.wait_synced().await;
            }
        };
        tokio::select! {
            () = known => Ok(()),
            why = self.0.store.failed() => Err(StartError::Store(why)),
            why = self.0.refused.wait() => Err(StartError::Serving(why)),
        }
    }

    /// Returns when the objects of all stored and virtual kinds that are served now have been read. Requests for the
    /// objects of a kind receive 429 before.
    pub async fn wait_synced(&self) {
        let kinds = self.0.handler.upgrade().map(|handler| handler.kinds());
        for served in kinds.iter().flat_map(|kinds| kinds.iter()) {
            if served.store().is_some() {
                tokio::select! {
                    () = served.cache.wait_synced() => {}
                    // The kind was removed or replaced.
                    () = served.ended.cancelled() => {}
                }
            }
        }
    }

    /// Deletes an object regardless of its finalizers, if it has this uid. Returns whether the object is deleted. It is
    /// not if the store rejects the deletion, or is unavailable for ten seconds; both are logged.
    pub async fn remove(
        &self,
        qualified: &str,
        namespace: Option<&str>,
        name: &str,
        uid: &str,
    ) -> bool {
        let refused = |error: StoreError| {
            tracing::error!(kind = %qualified, object = %name, %error, "cannot remove object");
            false
        };
        let collection = Collection::new(qualified);
        let key = Key::new(namespace, name);
        let mut retries = 0..REMOVAL_RETRIES;
        let mut may_retry = |error: &StoreError| {
            matches!(error, StoreError::Unavailable | StoreError::Unknown)
                && retries.next().is_some()
        };
        loop {
            let kept = match self.0.store.get(&collection, &key).await {
                Ok(kept) => kept.filter(|kept| kept.object.uid() == uid),
                Err(error) if may_retry(&error) => {
                    tokio::time::sleep(REMOVAL_PAUSE).await;
                    continue;
                }
                Err(error) => return refused(error),
            };
            let Some(Versioned { revision, .. }) = kept else { return true };
            let (collection, key) = (collection.clone(), key.clone());
            let expected = Precondition::At(revision);
            let commit = Commit { collection, key, expected, object: None, marks: true };
            match self.0.store.commit(commit).await {
                // Another client has changed the object, so it is read again.
                Err(StoreError::Changed { .. } | StoreError::Exists) => {}
                Ok(_) | Err(StoreError::Absent) => return true,
                Err(error) if may_retry(&error) => tokio::time::sleep(REMOVAL_PAUSE).await,
                Err(error) => return refused(error),
            }
        }
    }

    /// Accepts no more new objects of the stored kind with this name.
    pub async fn close(&self, qualified: &str) {
        let Some(handler) = self.0.handler.upgrade() else { return };
        if self.0.caches.lock().await.get(qualified).is_none_or(Followed::has_backend) {
            return;
        }
        let served = handler.kinds();
        if let Some(kind) = served.iter().find(|one| one.kind.qualified() == qualified) {
            kind.create_gate.close();
        }
    }

    /// Stops serving the kind with this name (`foos.example.com`). Its watches end, and its remaining objects are
    /// deleted. Objects in a backend are not deleted, as in [`withdraw_kind`](Self::withdraw_kind).
    ///
    /// Another server with the same store may have created the definition again, with new objects. `gone_until` is
    /// called once the remaining objects are known. It returns the last `resourceVersion` of the deleted definition's
    /// objects; `None` if all remaining objects belong to it.
    pub async fn withdraw(&self, qualified: &str, gone_until: impl AsyncFnOnce() -> Option<u64>) {
        let Some(handler) = self.0.handler.upgrade() else { return };
        let mut caches = self.0.caches.lock().await;
        if caches.get(qualified).is_some_and(Followed::has_backend) {
            drop(caches);
            return self.withdraw_kind(qualified).await;
        }
        let Some(followed) = caches.remove(qualified) else { return };
        let mut served = handler.kinds();
        if let Some(gone) = served.remove(|one| one.kind.qualified() == qualified) {
            handler.serve(served);
            // Requests that were routed earlier still use the kind.
            gone.create_gate.close();
            gone.gate.close().await;
            gone.ended.cancel();
            // If another process has the store, the cache may lack commits that had passed the gate.
            if let Err(error) = await_newest(&*self.0.store).await {
                tracing::error!(
                    kind = %qualified,
                    %error,
                    "objects of a removed kind may remain in the store"
                );
            }
            let left: Vec<Versioned> =
                gone.cache.snapshot().from(&Scope::All, None).cloned().collect();
            let gone_until = if left.is_empty() { None } else { gone_until().await };
            for Versioned { object, revision } in left {
                if gone_until.is_some_and(|until| revision.number() > until) {
                    continue;
                }
                let key = object.key();
                self.remove(qualified, key.namespace(), key.name(), object.uid()).await;
            }
            // Requests that use the kind may still read its cache.
            gone.cache.forget_past();
        }
        followed.end(&*self.0.store, qualified);
    }
}

/// A name of a kind that another kind of its group already has.
fn conflict<'a>(kind: &'a Kind, taken: &NamesInUse) -> Option<(&'static str, &'a str)> {
    let names = &kind.names;
    let resources =
        [("spec.names.plural", &names.plural), ("spec.names.singular", &names.singular)];
    let short_names = names.short_names.iter().map(|name| ("spec.names.shortNames", name));
    let resources = resources.into_iter().chain(short_names);
    let resources = resources.filter(|(_, name)| taken.resources.contains(*name));
    let kinds = [("spec.names.kind", &names.kind), ("spec.names.listKind", &names.list_kind)];
    let kinds = kinds.into_iter().filter(|(_, name)| taken.kinds.contains(*name));
    resources.chain(kinds).map(|(field, name)| (field, name.as_str())).next()
}
