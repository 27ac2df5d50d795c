//! Kinds: which kinds a server has.

use std::any::TypeId;
use std::fmt::Display;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::runtime::watcher::Event;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::computed::{self, Computed, ComputedFromSeveral, Variants};
use super::stored::Stored;
use super::to_tree;
use super::versions::Merged;
use super::yaml::{self, DefinitionError};
use super::{Cells, Disclosures, LookupRights, Rules};
use crate::admission::{AdmissionChain, AdmissionPlugin};
use crate::cluster::{SourceApi, SourceScope, SourceStreams, SourceType, Sources};
use crate::error::StartError;
use crate::kind::{
    ErasedCells, ErasedConversion, ErasedRules, ErasedVisibility, Kind, ReviewError, ReviewHandler,
    Strategy, SubresourceError, SubresourceHandler, SubresourceOutcome, SubresourceRequest, View,
    go_reader,
};
use crate::object::Tree;
use crate::schema::Types;
use crate::served_kind::SourceResource;
use crate::user::User;
use crate::watch_cache::WatchCache;

/// A type of the cluster that a kind is computed from or looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub plural: String,
    /// Whether it lives in namespaces.
    pub namespaced: bool,
    /// Which of its objects are read, and how.
    pub scope: SourceScope,
    /// The type that they are read as.
    pub type_id: TypeId,
}

impl SourceKind {
    /// What this type is called.
    pub(super) fn of<K: SourceType>(scope: SourceScope) -> Self {
        let SourceApi { group, version, plural, is_namespaced, .. } = K::api();
        Self {
            group: group.into_owned(),
            version: version.into_owned(),
            plural: plural.into_owned(),
            namespaced: is_namespaced,
            scope,
            type_id: TypeId::of::<K>(),
        }
    }
}

/// Keeps the cache of a computed kind, for ever.
pub type RunComputed =
    Box<dyn Fn(Arc<Sources>, Arc<WatchCache>) -> BoxFuture<'static, ()> + Send + Sync>;

/// How a kind comes to its objects.
pub enum Role {
    /// The server keeps them; these are there from the start.
    Stored {
        /// The objects, or why they cannot be made.
        initial: Vec<Result<Tree, String>>,
    },
    /// They are computed.
    Computed {
        /// What callers need rights on.
        sources: Vec<SourceResource>,
        /// What else they need rights on.
        rights: LookupRights,
        /// Everything that is watched for it.
        watched: Vec<SourceKind>,
        /// Keeps the cache, for ever.
        run: RunComputed,
    },
    /// Its objects are reviews: code answers them, and nothing is stored.
    Reviewed(Arc<ReviewHandler>),
}

/// One registered kind.
pub struct Registered {
    /// Its description.
    pub definition: CustomResourceDefinition,
    /// What is wrong with it, which stops the start.
    pub faults: Vec<String>,
    /// Cells of its tables that are computed by code, of each version that has some.
    pub cells: Vec<Arc<ErasedCells>>,
    /// How objects of one version become those of another, if code says it.
    pub conversion: Option<Arc<ErasedConversion>>,
    /// Rules that are written in Rust.
    pub rules: Option<Arc<ErasedRules>>,
    /// How its objects are named, written and deleted.
    pub strategy: Strategy,
    /// Subresources that code handles.
    pub subresources: Vec<Arc<SubresourceHandler>>,
    /// Whose objects it shows, if they are not its own.
    pub view: Option<View>,
    /// Which of its objects each reader sees, if not all.
    pub visibility: Option<Arc<ErasedVisibility>>,
    /// The types of Kubernetes, if it is one of its own kinds: then its group need not
    /// be a domain.
    pub types: Option<Arc<Types>>,
    /// How it comes to its objects.
    pub role: Role,
}

impl Registered {
    /// What the kind is called, if the server keeps its objects.
    pub(crate) fn stored(&self) -> Option<String> {
        let spec = &self.definition.spec;
        let name = || crate::error::qualified(&spec.group, &spec.names.plural);
        matches!(self.role, Role::Stored { .. }).then(name)
    }
}

/// Which kinds a server has.
#[derive(Default)]
pub struct Kinds {
    registered: Vec<Registered>,
    admission: AdmissionChain,
    streams: SourceStreams,
    allow_partial: bool,
}

impl Kinds {
    /// No kinds yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind whose objects the server keeps.
    #[must_use]
    pub fn stored<K: Stored>(mut self) -> Self {
        let initial = K::initial().iter().map(to_tree).collect();
        let Merged { definition, cells, conversion, faults } = K::versions().merged();
        self.add(definition, K::cells().erased(), Role::Stored { initial });
        if let Some(registered) = self.registered.last_mut() {
            registered.rules = K::rules().erased().map(Arc::new);
            registered.cells.extend(cells.into_iter().map(Arc::new));
            registered.conversion = conversion.map(Arc::new);
            registered.faults = faults;
            registered.visibility = K::visibility().erased().map(Arc::new);
        }
        self
    }

    /// Adds a custom resource that is known by its definition alone; the server stores its
    /// objects.
    #[must_use]
    pub fn crd(mut self, definition: CustomResourceDefinition) -> Self {
        self.add(definition, None, Role::Stored { initial: Vec::new() });
        self
    }

    /// Adds the kinds whose CustomResourceDefinitions are the documents of a
    /// YAML (or JSON) text; empty documents are skipped.
    ///
    /// # Errors
    /// When a document is anything else; says which one.
    pub fn crds_from_yaml(mut self, yaml: &str) -> Result<Self, DefinitionError> {
        for definition in yaml::definitions(yaml)? {
            self = self.crd(definition);
        }
        Ok(self)
    }

    /// Adds a kind that Kubernetes has itself, and this server keeps the objects
    /// of: its group need not be a domain, and that of Pods is empty. Its type is
    /// among `types`: objects are read as Go reads them, bodies in protobuf and strategic
    /// merge patches are taken.
    #[must_use]
    pub fn built_in<K>(
        mut self,
        definition: CustomResourceDefinition,
        cells: Cells<K>,
        rules: Rules<K>,
        types: &Arc<Types>,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        let cells = cells.erased().map(ErasedCells::shown_unchanged);
        self.add(definition, cells, Role::Stored { initial: Vec::new() });
        if let Some(registered) = self.registered.last_mut() {
            registered.rules = Some(Arc::new(rules.erased_built_in()));
            registered.types = Some(Arc::clone(types));
            registered.strategy = Strategy::built_in();
        }
        self
    }

    /// Makes the last kind a view: it shows the objects of another kind, which
    /// was added before.
    #[must_use]
    pub fn with_view(mut self, view: View) -> Self {
        if let Some(registered) = self.registered.last_mut() {
            registered.view = Some(view);
        }
        self
    }

    /// Gives the last kind a subresource that code handles: `handle` is called for a POST of an
    /// object of the type `definition`, which is among `types`. It answers the request, changes
    /// the object of the kind, or deletes it. The body is not kept. Objects of the versions in `equivalent_versions` are read
    /// as those of the definition.
    ///
    /// # Errors
    /// When the type cannot be described.
    pub fn with_subresource(
        mut self,
        name: &'static str,
        definition: &CustomResourceDefinition,
        types: &Arc<Types>,
        equivalent_versions: &'static [&'static str],
        handle: impl Fn(&SubresourceRequest<'_>) -> Result<SubresourceOutcome, SubresourceError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Self, StartError> {
        let mut kind = Kind::parse_built_in(definition, None, types)?;
        kind.equivalent_versions = equivalent_versions;
        let kind = Arc::new(kind);
        if let Some(registered) = self.registered.last_mut() {
            let handler = SubresourceHandler::new(name, kind, Box::new(handle));
            registered.subresources.push(Arc::new(handler));
        }
        Ok(self)
    }

    /// Gives the last kind a strategy of its own.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        if let Some(registered) = self.registered.last_mut() {
            registered.strategy = strategy;
        }
        self
    }

    /// Adds the kinds and admission plugins of `others`.
    #[must_use]
    pub fn merge(mut self, others: Self) -> Self {
        self.registered.extend(others.registered);
        self.admission.extend(others.admission);
        self.streams.extend(others.streams);
        self.allow_partial |= others.allow_partial;
        self
    }

    /// Adds a review of Kubernetes, such as SubjectAccessReview: a create is answered by `review`,
    /// which is given the user, and nothing is stored.
    #[must_use]
    pub fn review<K>(
        mut self,
        definition: CustomResourceDefinition,
        types: &Arc<Types>,
        review: impl Fn(&User, K) -> Result<K, ReviewError> + Send + Sync + 'static,
    ) -> Self
    where
        K: Serialize + DeserializeOwned,
    {
        let review = move |user: &User, question: &Tree| {
            let question = go_reader::read_object(question);
            let question = question.map_err(|error| ReviewError::BadRequest(error.to_string()))?;
            to_tree(&review(user, question)?).map_err(ReviewError::BadRequest)
        };
        let review = Arc::new(ReviewHandler::new(Box::new(review)));
        self.add(definition, None, Role::Reviewed(review));
        if let Some(registered) = self.registered.last_mut() {
            registered.types = Some(Arc::clone(types));
            registered.strategy = Strategy::built_in();
        }
        self
    }

    /// Adds an admission plugin: it is asked about writes to all kinds of the server, also
    /// to those that were added elsewhere.
    #[must_use]
    pub fn with_admission_plugin(mut self, plugin: impl AdmissionPlugin) -> Self {
        self.admission.push(Arc::new(plugin));
        self
    }

    /// The admission plugins, in the order in which they were added.
    pub(crate) fn admission_chain(&self) -> &AdmissionChain {
        &self.admission
    }

    /// Serves kinds also if their definitions ask for what is not served yet:
    /// then that is left out, and the log says so. Without this it stops the
    /// start.
    #[must_use]
    pub fn allow_partial(mut self) -> Self {
        self.allow_partial = true;
        self
    }

    /// Whether kinds are served whose definitions ask for more.
    pub(crate) fn is_partial_allowed(&self) -> bool {
        self.allow_partial
    }

    /// Adds a kind that is computed.
    #[must_use]
    pub fn computed<K: Computed>(mut self) -> Self {
        self.add(
            K::crd(),
            K::cells().erased(),
            computed_by::<K, (computed::Only<K>,)>(&K::disclosures()),
        );
        if let Some(registered) = self.registered.last_mut() {
            registered.visibility = K::visibility().erased().map(Arc::new);
        }
        self
    }

    /// Adds a kind that is computed from several types.
    #[must_use]
    pub fn computed_from_several<K: ComputedFromSeveral>(mut self) -> Self {
        self.add(K::crd(), K::cells().erased(), computed_by::<K, K::Variants>(&K::disclosures()));
        if let Some(registered) = self.registered.last_mut() {
            registered.visibility = K::visibility().erased().map(Arc::new);
        }
        self
    }

    /// Has the objects of a type, which kinds are computed from or look up, come from a stream
    /// instead of from the cluster: from HTTP, a database, a timer. Each stream begins with
    /// [`Event::Init`], an [`Event::InitApply`] for each object there is and [`Event::InitDone`],
    /// and goes on with [`Event::Apply`] and [`Event::Delete`]; to begin again is to say what there is
    /// now. It is opened when the server starts, and again, after a while, when it has ended. What it
    /// brings is bounded as objects of the cluster are, and until its first `InitDone` kinds wait for
    /// it as for those. Manifests ask for no rights to it. Readers need rights as if the cluster had the type, or a kind
    /// [says](super::Disclosures) that what it shows of it is harmless.
    ///
    /// [`Event::Init`]: kube::runtime::watcher::Event::Init
    /// [`Event::InitApply`]: kube::runtime::watcher::Event::InitApply
    /// [`Event::InitDone`]: kube::runtime::watcher::Event::InitDone
    /// [`Event::Apply`]: kube::runtime::watcher::Event::Apply
    /// [`Event::Delete`]: kube::runtime::watcher::Event::Delete
    ///
    /// ```
    /// use aggregated_apiserver::Kinds;
    /// use futures::stream;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::runtime::watcher::Event;
    ///
    /// let kinds = Kinds::new().with_source_stream(|| {
    ///     let price = ConfigMap::default();
    ///     let events = [Event::Init, Event::InitApply(price), Event::InitDone];
    ///     stream::iter(events.map(Ok::<_, std::io::Error>))
    /// });
    /// ```
    #[must_use]
    pub fn with_source_stream<K, S, E>(
        mut self,
        open: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self
    where
        K: SourceType + Serialize,
        S: Stream<Item = Result<Event<K>, E>> + Send + 'static,
        E: Display + 'static,
    {
        self.streams.add(open);
        self
    }

    /// The types that come from streams.
    pub(crate) fn source_streams(&self) -> SourceStreams {
        self.streams.clone()
    }

    fn add(
        &mut self,
        definition: CustomResourceDefinition,
        cells: Option<ErasedCells>,
        role: Role,
    ) {
        let cells = cells.map(Arc::new).into_iter().collect();
        self.registered.push(Registered {
            definition,
            faults: Vec::new(),
            cells,
            conversion: None,
            rules: None,
            types: None,
            strategy: Strategy::default(),
            subresources: Vec::new(),
            view: None,
            visibility: None,
            role,
        });
    }

    /// The kinds, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.registered.iter()
    }
}

/// How a kind comes to its objects that is computed by these variants.
fn computed_by<K: 'static, V: Variants<K>>(disclosures: &Disclosures) -> Role {
    let narrow: Arc<[TypeId]> = disclosures.in_namespace().into();
    let run: RunComputed = Box::new(move |sources, cache| {
        let narrow = Arc::clone(&narrow);
        // Their watches go on as long as the sources are held.
        async move { computed::run(V::open(&sources, &cache, &narrow), cache).await }.boxed()
    });
    let rights = disclosures.rights(&V::looked_up());
    Role::Computed { sources: V::sources(), rights, watched: V::watched(), run }
}
