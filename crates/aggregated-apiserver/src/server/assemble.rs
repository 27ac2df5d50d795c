//! Turns registered kinds into served kinds, with a handler and background tasks.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::group_versions;
use super::hooks::{Additions, Hooks, PostStart};
use super::initial_objects::{Beginning, begin, begin_later, copy};
use super::loopback::Loopback;
use super::memory::Bounds;
use super::object_copy::Copied;
use super::parsed_kinds::{computed_from, fault};
use super::runtime_kinds::{Backends, RuntimeKinds, Shared};
use super::webhooks::{ConfigurationSource, WebhookOptions};
use crate::admission::{
    AdmissionChain, NamespaceLifecycle, QuotaLimits, QuotaStatuses, QuotaUsages, ResourceQuota,
};
use crate::backend::{
    self, BackendMemory, BackendStore, DirectReader, ErasedBackend, MetadataStore,
};
use crate::clock::Clock;
use crate::cluster::{Cluster, FollowedObjects, Namespaces, Sources};
use crate::conversion::ConversionWebhooks;
use crate::definition::{Backend, Kinds};
use crate::error::StartError;
use crate::kind::{Kind, PatternCache, QuotaUsage, ShownObjects};
use crate::record::{Audit, Traces};
use crate::request::{Authentication, Documents, Handler, Impersonation, SharedHandler};
use crate::served_kind::{
    Backing, CommitGate, CreateGate, DirectBacking, Marker, ServedGroupVersion, ServedKind,
    ServedKinds, VirtualBacking, VisibilityStates,
};
use crate::storage::{Collection, Failure, MemoryStore, NamespaceLimit, RevisionSequencer, Store};
use crate::watch_cache::{WatchCache, WindowBudget};
use crate::write::ManagedFields;

/// Served kinds with their handler and their background tasks. Dropping this value ends the tasks.
pub(super) struct Assembled {
    pub kinds: ServedKinds,
    pub handler: SharedHandler,
    pub runtime: RuntimeKinds,
    /// The store of stored kinds.
    pub store: Arc<dyn Store>,
    /// The error that must stop the server, once it is known.
    pub refused: Arc<Failure>,
    tasks: Vec<JoinHandle<()>>,
    /// The hooks of the program that have not finished.
    pub hooks: JoinSet<()>,
}

impl Drop for Assembled {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.runtime.abort_backends();
    }
}

/// The plural of ResourceQuotas, for a server that stores them itself.
const RESOURCE_QUOTAS: &str = "resourcequotas";

/// The store of a server, and the limits of writes.
pub(super) struct Limits {
    /// The store; objects are in memory if it is `None`.
    pub store: Option<Arc<dyn Store>>,
    /// The audit log, if it is enabled.
    pub audit: Option<Arc<Audit>>,
    /// The destination of spans, if tracing is enabled.
    pub traces: Option<Arc<Traces>>,
    /// Whether creates require a namespace that exists and is not being deleted.
    pub looks_at_namespaces: bool,
    /// The webhooks that are called.
    pub webhooks: WebhookOptions,
    /// Whether ResourceQuotas are enforced.
    pub enforces_quotas: bool,
    /// The largest part of the store that one namespace may use.
    pub namespace_limit: NamespaceLimit,
    /// Whether objects have `metadata.managedFields`.
    pub managed_fields: ManagedFields,
    /// The timeout of a request that is not a watch.
    pub request_timeout: Duration,
    /// The compiled patterns of the kinds.
    pub patterns: PatternCache,
    /// The memory limits.
    pub bounds: Bounds,
}

impl Assembled {
    /// Starts to serve the parsed kinds.
    pub(super) async fn new(
        parsed: Vec<Arc<Kind>>,
        (registered, copied): (&Kinds, &Copied),
        clock: Clock,
        (cluster, documents): (Cluster, Documents),
        (limits, additions): (Limits, Box<Additions>),
        authentication: Authentication,
        closing: CancellationToken,
    ) -> Result<Self, StartError> {
        let random = clock.random();
        let has_cluster = authentication.impersonation == Impersonation::Refused;
        // The timeline of computed objects and of objects that are stored in memory.
        let of_process = Arc::new(RevisionSequencer::starting(clock.now(), random));
        let Limits { store, audit, traces, namespace_limit, managed_fields, .. } = limits;
        let Limits { request_timeout, bounds, patterns, .. } = limits;
        let store = store.unwrap_or_else(|| {
            Arc::new(MemoryStore::new(bounds.objects, Arc::clone(&of_process), namespace_limit))
        });
        let sources = Arc::new(cluster.sources(registered.source_streams()));
        let windows = Arc::new(WindowBudget::new(bounds.windows));
        let shown = ShownObjects::new(bounds.requests.converted());
        patterns.set_limit(bounds.patterns);
        let webhooks = Arc::new(ConversionWebhooks::default());
        let group_versions = group_versions::parse(registered, &parsed)?.into_iter();
        let group_versions = group_versions
            .map(|paths| ServedGroupVersion { paths, ended: closing.child_token() })
            .collect();
        let mut served = Vec::new();
        let mut runs = Vec::new();
        let mut beginnings = Vec::new();
        for (kind, registered) in parsed.into_iter().zip(registered.iter()) {
            let kind = Arc::unwrap_or_clone(kind).with_shown(&shown);
            let kind = kind.with_webhook_calls(webhooks.clone());
            // An earlier release may have stored objects under another definition.
            let kind = match kind.is_typed() || !store.outlives_process() {
                true => Arc::new(kind),
                false => Arc::new(kind.with_shape()),
            };
            let of_view = kind.view.as_ref().map(crate::kind::View::collection);
            let of_view = of_view.and_then(|collection| {
                served.iter().find(|other: &&ServedKind| other.kind.qualified() == collection)
            });
            let cache = match of_view {
                Some(other) => Arc::clone(&other.cache),
                None => {
                    let sequencer = match &registered.backend {
                        Backend::Stored { .. } => store.sequencer(),
                        Backend::Virtual(_)
                        | Backend::Direct(_)
                        | Backend::Computed { .. }
                        | Backend::Reviewed(_)
                        | Backend::Elsewhere => Arc::clone(&of_process),
                    };
                    WatchCache::sharing(sequencer, bounds.window, &windows)
                }
            };
            let is_view = of_view.is_some();
            let backing = match &registered.backend {
                Backend::Stored { .. } => Backing::Stored(store.clone()),
                Backend::Virtual(backend) => {
                    let of_process = Arc::clone(&of_process);
                    let memory = BackendMemory::of(bounds.of_backend());
                    let opened =
                        open_backend(&kind, backend, (of_process, memory), (&store, &clock))
                            .await?;
                    let collection = Collection::new(&kind.collection());
                    let followed = opened.follow(&collection, cache.clone()).await;
                    followed.map_err(|error| fault(&kind, "storage", &error.to_string()))?;
                    runs.push(backend::run(Arc::clone(&opened), Arc::clone(&cache)).boxed());
                    Backing::Virtual(VirtualBacking::new(opened))
                }
                Backend::Computed { sources: of, rights, run, .. } => {
                    runs.push(run(Arc::clone(&sources), Arc::clone(&cache)));
                    Backing::Computed(Arc::new(computed_from(&kind, of, rights)?))
                }
                Backend::Direct(backend) => {
                    cache.mark_synced();
                    let memory = BackendMemory::of(bounds.of_backend());
                    let reader = DirectReader::new(Arc::clone(backend), memory);
                    Backing::Direct(DirectBacking::new(Arc::new(reader)))
                }
                Backend::Reviewed(review) => {
                    cache.mark_synced();
                    Backing::Reviewed(Arc::clone(review))
                }
                Backend::Elsewhere => {
                    cache.mark_synced();
                    Backing::Elsewhere
                }
            };
            let visibility = match registered.backend {
                Backend::Stored { .. } if !Arc::ptr_eq(&store.sequencer(), &of_process) => {
                    follow_visibility(&kind, &store, &clock).await?
                }
                _ => VisibilityStates::of_process(
                    kind.following_visibility(),
                    Arc::clone(&of_process),
                ),
            };
            runs.extend(visibility.clone().map(|states| states.run().boxed()));
            let mut one = ServedKind {
                kind,
                cache,
                backing,
                visibility,
                ended: closing.child_token(),
                create_gate: CreateGate::default(),
                gate: CommitGate::default(),
                unavailable: None,
                came_at_run_time: false,
            };
            if let (Backend::Stored { initial }, false) = (&registered.backend, is_view) {
                match copied.get(&one.kind.qualified()) {
                    None => {
                        let collection = Collection::new(&one.kind.qualified());
                        let followed = store.follow(&collection, one.cache.clone()).await;
                        followed
                            .map_err(|error| fault(&one.kind, "storage", &error.to_string()))?;
                        let initial = initial.to_vec();
                        beginnings.push(Beginning { served: one.clone(), initial });
                    }
                    Some(Ok(copied)) => copy(&one, &*store, copied, managed_fields).await?,
                    Some(Err(why)) => one.unavailable = Some(why.as_str().into()),
                }
            }
            served.push(one);
        }
        let how = (managed_fields, clock.clone());
        let mut waiting = None;
        let refused = Arc::new(Failure::none());
        match store.is_known() {
            true => begin(&beginnings, &*store, &how).await?,
            // The start does not wait for the store. Requests are rejected with 429 until the store has been read.
            false => {
                let refused = Arc::clone(&refused);
                waiting = Some(begin_later(beginnings, Arc::clone(&store), how, refused));
            }
        }
        let kinds = ServedKinds::new(served).with_group_versions(group_versions);
        let mut admission = AdmissionChain::default();
        if limits.looks_at_namespaces {
            let sources = Arc::clone(&sources);
            let namespaces = Namespaces::new(sources, cluster.clone());
            // Otherwise the namespaces are watched once a kind in namespaces is added and used.
            if kinds.iter().any(is_in_namespaces) {
                namespaces.open();
            }
            admission.push(Arc::new(NamespaceLifecycle::new(namespaces)));
        }
        admission.extend(registered.admission_chain().clone());
        let configured = ConfigurationSource {
            kinds: &kinds,
            store: &*store,
            cluster: has_cluster.then(|| (cluster.clone(), Arc::clone(&sources))),
            options: limits.webhooks,
        };
        Box::pin(configured.add_webhooks(&mut admission)).await?;
        let quotas = match limits.enforces_quotas {
            true => {
                let own = (!has_cluster).then_some(&cluster);
                Some(enforce_quotas(&kinds, &*store, (sources, own), &mut admission).await?)
            }
            false => None,
        };
        let handler = Handler::new(
            kinds.clone(),
            authentication,
            cluster,
            admission,
            clock.clone(),
            &bounds.requests,
            Arc::clone(&webhooks),
        );
        let handler = handler.with_documents(documents).with_managed_fields(managed_fields);
        let handler = handler.with_audit(audit).with_traces(traces);
        let handler = handler.with_request_timeout(request_timeout);
        let handler = Arc::new(handler.with_additions(additions.openapi, additions.metrics));
        let runtime = RuntimeKinds::new(
            &handler,
            store.clone(),
            (bounds.window, windows),
            (Shared { shown, webhooks, patterns }, Backends::new(of_process, bounds.objects)),
            (clock, quotas),
            (closing, Arc::clone(&refused)),
        );
        // The tasks start last, because an error after this line would leave them running.
        let mut tasks: Vec<_> = runs.into_iter().map(tokio::spawn).collect();
        tasks.extend(waiting.map(tokio::spawn));
        Ok(Self { kinds, handler, runtime, store, refused, tasks, hooks: JoinSet::new() })
    }
}

impl Assembled {
    /// Runs the hooks of the program once the server is ready.
    pub(super) fn run(
        &mut self,
        hooks: Hooks,
        loopback: &Loopback,
        cluster: &Cluster,
        (closing, ready): (&CancellationToken, &watch::Receiver<bool>),
    ) {
        let server = PostStart {
            client: loopback.client_of_itself(),
            cluster: cluster.unbounded_client(),
            runtime_kinds: self.runtime.clone(),
            closing: closing.clone(),
        };
        self.hooks = hooks.start(&server, ready, &self.refused);
    }
}

/// The states of a visibility whose kind is in a store.
async fn follow_visibility(
    kind: &Arc<Kind>,
    store: &Arc<dyn Store>,
    clock: &Clock,
) -> Result<Option<Arc<VisibilityStates>>, StartError> {
    let Some(visibility) = kind.following_visibility() else { return Ok(None) };
    let marker = Marker::open(store, kind, clock.uid()).await;
    let marker = marker.map_err(|error| fault(kind, "storage", &error.to_string()))?;
    Ok(VisibilityStates::of_store(Some(visibility), marker))
}

/// The store of a virtual kind. The metadata that its backend does not store is in the store of the server.
pub(super) async fn open_backend(
    kind: &Arc<Kind>,
    backend: &Arc<ErasedBackend>,
    (sequencer, memory): (Arc<RevisionSequencer>, BackendMemory),
    (store, clock): (&Arc<dyn Store>, &Clock),
) -> Result<Arc<BackendStore>, StartError> {
    let metadata = match backend.keeps_metadata() {
        true => None,
        false => {
            let opened = MetadataStore::open(Arc::clone(store), kind).await;
            Some(opened.map_err(|error| fault(kind, "storage", &error.to_string()))?)
        }
    };
    let (kind, backend) = (Arc::clone(kind), Arc::clone(backend));
    Ok(Arc::new(BackendStore::new(kind, backend, sequencer, memory, (metadata, clock.clone()))))
}

/// Whether the objects of a kind are stored in namespaces.
fn is_in_namespaces(served: &ServedKind) -> bool {
    served.kind.is_namespaced() && served.is_written()
}

/// The accounting of a server that enforces quotas.
pub(super) struct Quotas {
    /// The usage, to which kinds are added at run time.
    pub usages: QuotaUsages,
    /// The statuses of the quotas, if the server stores them.
    pub statuses: Option<QuotaStatuses>,
}

/// Counts the objects in namespaces, and adds the quota plugin. `own` is the client of a server to itself.
async fn enforce_quotas(
    kinds: &ServedKinds,
    store: &dyn Store,
    (sources, own): (Arc<Sources>, Option<&Cluster>),
    admission: &mut AdmissionChain,
) -> Result<Quotas, StartError> {
    let stored = kinds.iter().find(|served| served.kind.qualified() == RESOURCE_QUOTAS);
    let stored = stored.filter(|served| served.store().is_some());
    let statuses = own.filter(|_| stored.is_some()).map(Cluster::quota_status_client);
    let statuses = statuses.map(QuotaStatuses::new);
    let (limits, usages) = match (&statuses, stored) {
        (Some(statuses), _) => (statuses.limits(), statuses.usages()),
        (None, Some(_)) => (QuotaLimits::default(), QuotaUsages::default()),
        (None, None) => {
            let quotas = FollowedObjects::new(sources, "no quota is enforced");
            // Otherwise the quotas are watched once a kind in namespaces is added and used.
            if kinds.iter().any(is_in_namespaces) {
                quotas.open();
            }
            (QuotaLimits::of_cluster(quotas), QuotaUsages::default())
        }
    };
    if let Some(quotas) = stored {
        let collection = Collection::new(&quotas.kind.collection());
        let followed = store.follow(&collection, Arc::new(limits.clone())).await;
        followed.map_err(|error| fault(&quotas.kind, "storage", &error.to_string()))?;
    }
    for served in kinds.iter().filter(|served| is_in_namespaces(served)) {
        count(served, &usages).await?;
    }
    admission.set_last(Arc::new(match &statuses {
        Some(statuses) => ResourceQuota::of_stored(statuses.clone()),
        None => ResourceQuota::new(limits, usages.clone()),
    }));
    Ok(Quotas { usages, statuses })
}

/// Counts the objects of a kind against quotas. Objects of a view are counted as objects of the kind behind the view.
async fn count(served: &ServedKind, usages: &QuotaUsages) -> Result<(), StartError> {
    let kind = &served.kind;
    let Some((store, collection)) = served.store() else { return Ok(()) };
    if kind.view.is_some() || matches!(kind.strategy.quota_usage, QuotaUsage::Exempt) {
        return Ok(());
    }
    let followed = store.follow(&collection, usages.counter(kind)).await;
    followed.map_err(|error| fault(kind, "storage", &error.to_string()))
}
