//! Turns registered kinds into served kinds, with a handler and background tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::memory::Bounds;
use super::object_copy::{Copied, CopiedObjects};
use super::runtime_kinds::{RuntimeKinds, Shared};
use super::stored_definition::check_stored;
use crate::admission::{
    AdmissionChain, NamespaceLifecycle, QuotaLimits, QuotaUsages, ResourceQuota,
};
use crate::clock::Clock;
use crate::cluster::{Cluster, Namespaces, ResourceQuotas, Sources};
use crate::conversion::ConversionWebhooks;
use crate::definition::{Backend, Kinds, LookupRights};
use crate::error::{Reason, StartError};
use crate::kind::{Kind, PatternCache, ProtectedFields, QuotaUsage, ShownObjects};
use crate::object::{Object, Shape, Tree};
use crate::record::{Audit, Traces};
use crate::request::{Authentication, Documents, Handler, SharedHandler};
use crate::served_kind::{
    Backing, CommitGate, ComputedFrom, CreateGate, ServedKind, ServedKinds, SourceResource,
};
use crate::storage::{
    Collection, Commit, Failure, MemoryStore, NamespaceLimit, Precondition, RevisionSequencer,
    Store, Versioned,
};
use crate::watch_cache::{Scope, WatchCache, WindowBudget};
use crate::write::{self, ManagedFields};

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
}

impl Drop for Assembled {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The time between two attempts to store the initial objects.
const BEGIN_AGAIN: Duration = Duration::from_secs(5);

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

/// Parses all definitions and checks them for conflicts with each other.
pub(super) fn parse(kinds: &Kinds) -> Result<Vec<Arc<Kind>>, StartError> {
    let mut parsed: Vec<Arc<Kind>> = Vec::new();
    let mut taken: HashMap<(String, String), String> = HashMap::new();
    for registered in kinds.iter() {
        let (definition, cells) = (&registered.definition, registered.cells.clone());
        let kind = match &registered.types {
            Some(types) => Kind::parse_built_in(definition, cells, types)?,
            None => Kind::parse(definition, cells)?,
        };
        if kind.versions.is_empty() {
            return Err(fault(
                &kind,
                "spec.versions",
                "no version is served; set served to true in one of them",
            ));
        }
        if !registered.faults.is_empty() {
            let faults = registered.faults.clone();
            return Err(StartError::Kind { kind: kind.qualified(), faults });
        }
        let kind = kind
            .with_rules(registered.rules.clone())
            .with_conversion(registered.conversion.clone())
            .with_strategy(registered.strategy.clone())
            .with_subresources(registered.subresources.clone())
            .with_view(registered.view.clone())
            .with_visibility(registered.visibility.clone());
        let names = &kind.names;
        let own = [
            ("spec.names.plural", &names.plural),
            ("spec.names.kind", &names.kind),
            ("spec.names.listKind", &names.list_kind),
        ];
        for (field, name) in own {
            let other =
                taken.insert((kind.group.clone(), format!("{field}={name}")), kind.qualified());
            if let Some(other) = other {
                return Err(fault(&kind, field, &format!("{name:?} is already used by {other}")));
            }
        }
        if let Some(other) = kind.version_without_rules() {
            let why = format!(
                "the rules in Rust validate only one version, so objects written in {other} would not be validated; convert between the versions in Rust, or do not serve {other}"
            );
            return Err(fault(&kind, "spec.versions", &why));
        }
        let shown = kind.view.as_ref().and_then(|view| {
            parsed.iter().find(|kind| kind.group == view.group && kind.names.plural == view.plural)
        });
        if let Some(shown) = shown.filter(|shown| shown.hides()) {
            let why = format!(
                "is a view of {}, which has a Visibility: the view would show all objects to every user; remove the view or the Visibility",
                shown.qualified()
            );
            return Err(fault(&kind, "spec.names", &why));
        }
        match &registered.backend {
            Backend::Stored { .. } => {
                check_stored(&kind, &registered.definition, kinds.is_partial_allowed())?;
            }
            Backend::Computed { sources, rights, .. } => {
                let differs = |source: &&SourceResource| source.namespaced != kind.is_namespaced();
                if let Some(SourceResource { resource, .. }) = sources.iter().find(differs) {
                    let why = format!(
                        "must be the scope of {resource}, because the kind is computed from it"
                    );
                    return Err(fault(&kind, "spec.scope", &why));
                }
                computed_from(&kind, sources, rights)?;
            }
            Backend::Reviewed(_) => {}
        }
        parsed.push(Arc::new(kind));
    }
    Ok(parsed)
}

/// The sources of a computed kind, and the permissions that its readers need.
fn computed_from(
    kind: &Kind,
    sources: &[SourceResource],
    rights: &LookupRights,
) -> Result<ComputedFrom, StartError> {
    let LookupRights { demanded, protected, shown, faults } = rights;
    let mut faults = faults.clone();
    let by_right: Vec<_> = protected.iter().map(|right| right.fields.clone()).collect();
    let fields = ProtectedFields::parse(kind, &by_right);
    let fields = fields.map_err(|more| faults.extend(more)).unwrap_or_default();
    faults.extend(ProtectedFields::faults_of_shown(kind, shown));
    if !faults.is_empty() {
        return Err(StartError::Kind { kind: kind.qualified(), faults });
    }
    Ok(ComputedFrom {
        sources: sources.to_vec(),
        demanded: demanded.clone(),
        protected: protected.clone(),
        fields: Arc::new(fields),
    })
}

pub(super) fn fault(kind: &Kind, field: &str, message: &str) -> StartError {
    StartError::Kind { kind: kind.qualified(), faults: vec![format!("{field}: {message}")] }
}

impl Assembled {
    /// Starts to serve the parsed kinds.
    pub(super) async fn new(
        parsed: Vec<Arc<Kind>>,
        (registered, copied): (&Kinds, &Copied),
        clock: Clock,
        (cluster, documents): (Cluster, Documents),
        limits: Limits,
        authentication: Authentication,
        closing: CancellationToken,
    ) -> Result<Self, StartError> {
        let random = clock.random();
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
                        Backend::Computed { .. } | Backend::Reviewed(_) => Arc::clone(&of_process),
                    };
                    WatchCache::sharing(sequencer, bounds.window, &windows)
                }
            };
            let is_view = of_view.is_some();
            let backing = match &registered.backend {
                Backend::Stored { .. } => Backing::Stored(store.clone()),
                Backend::Computed { sources: of, rights, run, .. } => {
                    runs.push(run(Arc::clone(&sources), Arc::clone(&cache)));
                    Backing::Computed(Arc::new(computed_from(&kind, of, rights)?))
                }
                Backend::Reviewed(review) => {
                    cache.mark_synced();
                    Backing::Reviewed(Arc::clone(review))
                }
            };
            let ended = closing.child_token();
            let (create_gate, gate) = (CreateGate::default(), CommitGate::default());
            let came_at_run_time = false;
            let unavailable = None;
            let mut one = ServedKind {
                kind,
                cache,
                backing,
                ended,
                create_gate,
                gate,
                unavailable,
                came_at_run_time,
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
        let kinds = ServedKinds::new(served);
        let is_concerned =
            |served: &ServedKind| served.kind.is_namespaced() && served.store().is_some();
        let is_any = kinds.iter().any(is_concerned);
        let mut admission = AdmissionChain::default();
        if limits.looks_at_namespaces {
            let sources = Arc::clone(&sources);
            let namespaces = is_any.then(|| Namespaces::new(sources, cluster.clone()));
            admission.push(Arc::new(NamespaceLifecycle::new(namespaces)));
        }
        admission.extend(registered.admission_chain().clone());
        let usages = (limits.enforces_quotas && is_any).then(QuotaUsages::default);
        if let Some(usages) = &usages {
            for served in kinds.iter().filter(|served| is_concerned(served)) {
                count(served, &*store, usages).await?;
            }
            let quotas = quota_limits(&kinds, &*store, sources).await?;
            admission.set_last(Arc::new(ResourceQuota::new(quotas, usages.clone())));
        }
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
        let handler = Arc::new(handler);
        let runtime = RuntimeKinds::new(
            &handler,
            store.clone(),
            (bounds.window, windows),
            Shared { shown, webhooks, patterns },
            (clock, usages),
            (closing, Arc::clone(&refused)),
        );
        // The tasks start last, because an error after this line would leave them running.
        let mut tasks: Vec<_> = runs.into_iter().map(tokio::spawn).collect();
        tasks.extend(waiting.map(tokio::spawn));
        Ok(Self { kinds, handler, runtime, store, refused, tasks })
    }
}

/// Counts the objects of a kind against quotas. Objects of a view are counted as objects of the kind behind the view.
async fn count(
    served: &ServedKind,
    store: &dyn Store,
    usages: &QuotaUsages,
) -> Result<(), StartError> {
    let kind = &served.kind;
    if kind.view.is_some() || matches!(kind.strategy.quota_usage, QuotaUsage::Exempt) {
        return Ok(());
    }
    let followed = store.follow(&Collection::new(&kind.collection()), usages.counter(kind)).await;
    followed.map_err(|error| fault(kind, "storage", &error.to_string()))
}

/// The limits of quotas, from ResourceQuotas in this store or in the cluster.
async fn quota_limits(
    kinds: &ServedKinds,
    store: &dyn Store,
    sources: Arc<Sources>,
) -> Result<QuotaLimits, StartError> {
    let quotas = kinds.iter().find(|served| served.kind.qualified() == RESOURCE_QUOTAS);
    let Some(quotas) = quotas.filter(|served| served.store().is_some()) else {
        return Ok(QuotaLimits::of_cluster(ResourceQuotas::new(sources)));
    };
    let limits = QuotaLimits::default();
    let collection = Collection::new(&quotas.kind.collection());
    let followed = store.follow(&collection, Arc::new(limits.clone())).await;
    followed.map_err(|error| fault(&quotas.kind, "storage", &error.to_string()))?;
    Ok(limits)
}

/// Connects a cache with its collection, and stores the copied objects. They are not validated again: the deployed
/// server has validated them, and no object may be missing here.
async fn copy(
    served: &ServedKind,
    store: &dyn Store,
    copied: &CopiedObjects,
    managed_fields: ManagedFields,
) -> Result<(), StartError> {
    let (kind, cache) = (&served.kind, &served.cache);
    let collection = Collection::new(&kind.qualified());
    let unusable = |error: String| fault(kind, "copied object", &error);
    let followed = store.follow(&collection, cache.clone()).await;
    followed.map_err(|error| unusable(error.to_string()))?;
    for tree in &copied.trees {
        let tree = managed_fields.of(tree.clone());
        let object = Object::from_tree(&tree).and_then(|one| kind.to_storage(one, &copied.version));
        let object = object.map_err(|error| unusable(error.to_string()))?;
        let object = object.of_shape(Shape::of_another_server());
        let commit = Commit {
            collection: collection.clone(),
            key: object.key().clone(),
            expected: Precondition::Absent,
            object: Some(Arc::new(object)),
            marks: false,
        };
        store.commit(commit).await.map_err(|error| unusable(error.to_string()))?;
    }
    cache.mark_synced();
    Ok(())
}

/// The initial objects of a kind in a new store.
struct Beginning {
    served: ServedKind,
    initial: Vec<Result<Tree, String>>,
}

/// Stores the initial objects, and marks all kinds as synced.
async fn begin(
    beginnings: &[Beginning],
    store: &dyn Store,
    (managed_fields, clock): &(ManagedFields, Clock),
) -> Result<(), StartError> {
    // Initial objects that a user has deleted are not created again at the next start.
    let is_new = store.is_new();
    beginnings.iter().try_for_each(|beginning| check_versions(&beginning.served))?;
    for Beginning { served, initial } in beginnings {
        let kind = &served.kind;
        let initial = if is_new { &initial[..] } else { &[] };
        for (index, tree) in initial.iter().enumerate() {
            let field = format!("initial object {index}");
            let tree = tree.clone().map_err(|error| fault(kind, &field, &error))?;
            let version = kind.version_of(&tree).unwrap_or(&kind.storage);
            match write::restore(served, version, managed_fields.of(tree), clock).await {
                Err(error) if error.reason() != Reason::AlreadyExists => {
                    return Err(fault(kind, &field, &error.to_string()));
                }
                _ => {}
            }
        }
        served.cache.mark_synced();
    }
    if is_new {
        let noted = store.note_begun().await;
        noted.map_err(|error| StartError::Store(error.to_string()))?;
    }
    Ok(())
}

/// Rejects stored objects in versions that their kind does not have. Such objects could be shown only in part, and a
/// write of this part would lose the rest.
fn check_versions(served: &ServedKind) -> Result<(), StartError> {
    let kind = &served.kind;
    let kept = served.cache.snapshot();
    let unknown = kept.from(&Scope::All, None).find(|kept| !kind.knows_version_of(&kept.object));
    match unknown {
        None => Ok(()),
        Some(Versioned { object, .. }) => Err(StartError::Version {
            kind: kind.qualified(),
            key: object.key().to_string(),
            version: object.api_version().into_owned(),
        }),
    }
}

/// Same as [`begin`], once the store has been read. Failed attempts are repeated.
async fn begin_later(
    beginnings: Vec<Beginning>,
    store: Arc<dyn Store>,
    how: (ManagedFields, Clock),
    refused: Arc<Failure>,
) {
    store.known().await;
    let checked = beginnings.iter().try_for_each(|beginning| check_versions(&beginning.served));
    if let Err(error) = checked {
        refused.set(error.to_string());
        return;
    }
    beginnings.iter().for_each(|beginning| beginning.served.cache.mark_synced());
    while let Err(error) = begin(&beginnings, &*store, &how).await {
        if let StartError::Version { .. } = error {
            refused.set(error.to_string());
            return;
        }
        tracing::error!(
            %error,
            retry_seconds = BEGIN_AGAIN.as_secs(),
            "cannot connect to the cluster"
        );
        tokio::time::sleep(BEGIN_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Computed, Stored};
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::{CustomResource, CustomResourceExt};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
    struct FooSpec {
        #[schemars(regex(pattern = "(?=a)"))]
        text: String,
    }

    impl Stored for Foo {}

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Bar", namespaced, status = "BarStatus")]
    struct BarSpec {}

    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
    struct BarStatus {}

    impl Stored for Bar {}

    impl Computed for Bar {
        type Source = Pod;
        type Related = ();

        fn compute(_: &Pod, (): &()) -> Option<Self> {
            None
        }
    }

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Baz", namespaced)]
    struct BazSpec {}

    impl Computed for Baz {
        type Source = Node;
        type Related = ();

        fn compute(_: &Node, (): &()) -> Option<Self> {
            None
        }
    }

    fn check(kinds: &Kinds, expected: &str) {
        assert_eq!(parse(kinds).unwrap_err().to_string(), expected);
    }

    #[test]
    fn invalid_kinds_prevent_the_server_from_starting() {
        check(
            &Kinds::new().computed::<Bar>().computed::<Bar>(),
            "kind bars.example.com: spec.names.plural: \"bars\" is already used by bars.example.com",
        );
        check(
            &Kinds::new().stored::<Foo>(),
            "kind foos.example.com: spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[text].pattern: Invalid value: \"(?=a)\": must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
        );
        assert!(parse(&Kinds::new().stored::<Bar>()).is_ok());
        let mut unserved = Bar::crd();
        unserved.spec.versions[0].served = false;
        let unserved = serde_json::to_string(&unserved).unwrap();
        check(
            &Kinds::new().crds_from_yaml(&unserved).unwrap(),
            "kind bars.example.com: spec.versions: no version is served; set served to true in one of them",
        );
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "quxes.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": "Qux", "plural": "quxes"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "maximum": 5, "default": 7},
                    }}},
                }}}],
            },
        });
        check(
            &Kinds::new().crds_from_yaml(&definition.to_string()).unwrap(),
            "kind quxes.example.com: spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[size].default: Invalid value: 7:  in body should be less than or equal to 5",
        );
        check(
            &Kinds::new().computed::<Baz>(),
            "kind bazes.example.com: spec.scope: must be the scope of nodes, because the kind is computed from it",
        );
    }
}
