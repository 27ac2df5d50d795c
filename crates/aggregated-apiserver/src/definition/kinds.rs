//! The set of kinds that a server serves.

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

/// A resource of the cluster that a kind is computed from or looks up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub plural: String,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// The objects that are read, and how they are read.
    pub scope: SourceScope,
    /// The Rust type as which the objects are read.
    pub type_id: TypeId,
}

impl SourceKind {
    /// Describes a source type that is read with this scope.
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

/// Runs the computation of a kind and updates its watch cache until the server stops.
pub type RunComputed =
    Box<dyn Fn(Arc<Sources>, Arc<WatchCache>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The backend of a kind: stored objects, computed objects or reviews.
pub enum Role {
    /// The server stores the objects. The initial objects exist from the start.
    Stored {
        /// The initial objects, or the reasons why they cannot be created.
        initial: Vec<Result<Tree, String>>,
    },
    /// The objects are computed.
    Computed {
        /// The source resources on which callers need permissions.
        sources: Vec<SourceResource>,
        /// The permissions on looked-up resources.
        rights: LookupRights,
        /// All resources that are watched for the kind.
        watched: Vec<SourceKind>,
        /// Runs the computation and updates the watch cache.
        run: RunComputed,
    },
    /// The objects are reviews: code answers each create request, and nothing is stored.
    Reviewed(Arc<ReviewHandler>),
}

/// One registered kind.
pub struct Registered {
    /// The CustomResourceDefinition.
    pub definition: CustomResourceDefinition,
    /// Errors in the declarations of the kind. The server does not start with any.
    pub faults: Vec<String>,
    /// The table cells that are computed by code, for each version that has some.
    pub cells: Vec<Arc<ErasedCells>>,
    /// The conversion between versions, if code does it.
    pub conversion: Option<Arc<ErasedConversion>>,
    /// Validation rules that are written in Rust.
    pub rules: Option<Arc<ErasedRules>>,
    /// The rules for naming, writing and deleting objects of the kind.
    pub strategy: Strategy,
    /// The subresources that are handled by code.
    pub subresources: Vec<Arc<SubresourceHandler>>,
    /// The kind whose objects this kind shows, if it is a view.
    pub view: Option<View>,
    /// The filter of the objects that are visible to each reader; `None` if all are.
    pub visibility: Option<Arc<ErasedVisibility>>,
    /// The Go types of Kubernetes, if the kind is built in. The group of a built-in kind need not be a domain.
    pub types: Option<Arc<Types>>,
    /// The backend.
    pub role: Role,
}

impl Registered {
    /// The qualified name of the kind, if the server stores its objects.
    pub(crate) fn stored(&self) -> Option<String> {
        let spec = &self.definition.spec;
        let name = || crate::error::qualified(&spec.group, &spec.names.plural);
        matches!(self.role, Role::Stored { .. }).then(name)
    }
}

/// The set of kinds that a server serves.
#[derive(Default)]
pub struct Kinds {
    registered: Vec<Registered>,
    admission: AdmissionChain,
    streams: SourceStreams,
    allow_partial: bool,
}

impl Kinds {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind whose objects the server stores.
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

    /// Adds a custom resource from its definition alone; the server stores its objects.
    #[must_use]
    pub fn crd(mut self, definition: CustomResourceDefinition) -> Self {
        self.add(definition, None, Role::Stored { initial: Vec::new() });
        self
    }

    /// Adds the kinds of a YAML (or JSON) string whose documents are CustomResourceDefinitions. Empty documents are
    /// skipped.
    ///
    /// # Errors
    /// If a document is anything else; the error names the document.
    pub fn crds_from_yaml(mut self, yaml: &str) -> Result<Self, DefinitionError> {
        for definition in yaml::definitions(yaml)? {
            self = self.crd(definition);
        }
        Ok(self)
    }

    /// Adds a built-in kind of Kubernetes whose objects this server stores. Its group need not be a domain; the group
    /// of Pods is empty. Its type must be among `types`: objects are decoded in the same way as Go decodes them, and
    /// bodies in protobuf and strategic merge patches are accepted.
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

    /// Makes the last added kind a view: it shows the objects of another kind, which must have been added before.
    #[must_use]
    pub fn with_view(mut self, view: View) -> Self {
        if let Some(registered) = self.registered.last_mut() {
            registered.view = Some(view);
        }
        self
    }

    /// Adds a subresource that is handled by code to the last added kind. `handle` is called for a POST of an object of
    /// the type `definition`, which must be among `types`. It answers the request, changes the object of the kind, or
    /// deletes it. The body is not stored. Bodies of the versions in `equivalent_versions` are read as those of the
    /// definition.
    ///
    /// # Errors
    /// If the definition is invalid.
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

    /// Sets the strategy of the last added kind.
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

    /// Adds a review of Kubernetes, such as SubjectAccessReview. A create request is answered by `review`, which
    /// receives the user, and nothing is stored.
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

    /// Adds an admission plugin. It is called for writes to all kinds of the server, including kinds that were added
    /// elsewhere.
    #[must_use]
    pub fn with_admission_plugin(mut self, plugin: impl AdmissionPlugin) -> Self {
        self.admission.push(Arc::new(plugin));
        self
    }

    /// The admission plugins, in the order in which they were added.
    pub(crate) fn admission_chain(&self) -> &AdmissionChain {
        &self.admission
    }

    /// Also serves kinds whose definitions use features that are not supported yet. These features are ignored and
    /// logged. Without this setting, the server does not start with such a definition.
    #[must_use]
    pub fn allow_partial(mut self) -> Self {
        self.allow_partial = true;
        self
    }

    /// Whether kinds are served whose definitions use features that are not supported.
    pub(crate) fn is_partial_allowed(&self) -> bool {
        self.allow_partial
    }

    /// Adds a computed kind.
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

    /// Reads the objects of a source type or looked-up type from a stream instead of the cluster: from HTTP, a database
    /// or a timer. Each stream begins with [`Event::Init`], one [`Event::InitApply`] per existing object and
    /// [`Event::InitDone`]. It goes on with [`Event::Apply`] and [`Event::Delete`]; it can begin again with the objects
    /// that exist now. The stream is opened when the server starts. If it ends, it is opened again after a delay. The
    /// memory limit for objects of the cluster also applies to the stream, and kinds wait for its first `InitDone` in
    /// the same way. Generated manifests request no permissions for the type. Readers need the same permissions as if
    /// the type were in the cluster, unless the kind [declares](super::Disclosures) its fields harmless.
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

    /// The source types that are read from streams.
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

/// The backend of a kind that is computed by these variants.
fn computed_by<K: 'static, V: Variants<K>>(disclosures: &Disclosures) -> Role {
    let narrow: Arc<[TypeId]> = disclosures.in_namespace().into();
    let run: RunComputed = Box::new(move |sources, cache| {
        let narrow = Arc::clone(&narrow);
        // The watches of the sources run as long as `sources` is held.
        async move { computed::run(V::open(&sources, &cache, &narrow), cache).await }.boxed()
    });
    let rights = disclosures.rights(&V::looked_up());
    Role::Computed { sources: V::sources(), rights, watched: V::watched(), run }
}
