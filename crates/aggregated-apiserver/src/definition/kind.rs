//! One kind, with everything that its user declares about it.

use std::any::TypeId;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::computed::{self, Computed, ComputedFromVariants, Variants};
use super::stored::Stored;
use super::to_tree;
use super::versions::Merged;
use super::{FieldPermissions, LookupRights, PrinterColumns, Validation, Visibility};
use crate::backend::{self, DirectBackend, DirectKind, ErasedBackend, VirtualKind};
use crate::cluster::{SourceApi, SourceOptions, SourceType, Sources};
use crate::error::StartError;
use crate::kind::{
    self, ErasedColumns, ErasedConversion, ErasedValidation, ErasedVisibility, ReviewError,
    ReviewHandler, Strategy, SubresourceError, SubresourceHandler, SubresourceOutcome,
    SubresourceRequest, View, go_reader,
};
use crate::object::Tree;
use crate::schema::Types;
use crate::served_kind::SourceResource;
use crate::subresource::Subresource;
use crate::user::User;
use crate::watch_cache::WatchCache;

/// A kind, as the user of the library describes it: its definition, its backend, and the code that belongs to it.
///
/// [`Kinds`](super::Kinds) takes such values. [`Kinds::stored`](super::Kinds::stored) and its siblings are shorter for
/// kinds without further settings.
///
/// ```
/// use aggregated_apiserver::{Kind, Kinds, Strategy, Stored};
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
/// pub struct FooSpec {
///     pub size: i64,
/// }
///
/// impl Stored for Foo {}
///
/// let strategy = Strategy::default();
/// let kinds = Kinds::new().kind(Kind::stored::<Foo>().strategy(strategy));
/// ```
#[must_use]
pub struct Kind {
    /// The CustomResourceDefinition.
    pub(crate) definition: CustomResourceDefinition,
    /// Errors in the declarations of the kind. The server does not start with any.
    pub(crate) faults: Vec<String>,
    /// The table cells that are computed by code, for each version that has some.
    pub(crate) cells: Vec<Arc<ErasedColumns>>,
    /// The conversion between versions, if code does it.
    pub(crate) conversion: Option<Arc<ErasedConversion>>,
    /// Validation rules that are written in Rust.
    pub(crate) rules: Option<Arc<ErasedValidation>>,
    /// The rules for naming, writing and deleting objects of the kind.
    pub(crate) strategy: Strategy,
    /// The subresources of a built-in kind that are handled by code.
    pub(crate) built_in_subresources: Vec<Arc<SubresourceHandler>>,
    /// The subresources that are handled by code of the user.
    pub(crate) subresources: Vec<Arc<Subresource>>,
    /// The kind whose objects this kind shows, if it is a view.
    pub(crate) view: Option<View>,
    /// The filter of the objects that are visible to each reader; `None` if all are.
    pub(crate) visibility: Option<Arc<ErasedVisibility>>,
    /// The Go types of Kubernetes, if the kind is built in. The group of a built-in kind need not be a domain.
    pub(crate) types: Option<Arc<Types>>,
    /// The backend.
    pub(crate) backend: Backend,
}

impl Kind {
    /// A kind whose objects the server stores.
    pub fn stored<K: Stored>() -> Self {
        let initial = K::initial().iter().map(to_tree).collect();
        let Merged { definition, cells, conversion, faults } = K::versions().merged();
        let kind = Self::new(definition, Backend::Stored { initial });
        let kind = kind.printer_columns(K::printer_columns()).visibility(K::visibility());
        let mut kind = kind.validation(K::validation());
        kind.cells.extend(cells.into_iter().map(Arc::new));
        kind.conversion = conversion.map(Arc::new);
        kind.faults = faults;
        kind
    }

    /// A custom resource, from its definition alone; the server stores its objects.
    pub fn crd(definition: CustomResourceDefinition) -> Self {
        Self::new(definition, Backend::Stored { initial: Vec::new() })
    }

    /// A kind whose objects live in a [backend](crate::backend).
    pub fn virtual_kind<B: backend::Backend>(kind: VirtualKind<B>) -> Self {
        Self::new(kind.definition, Backend::Virtual(Arc::new(kind.erased)))
    }

    /// A kind whose [backend](crate::backend) is called for every read.
    pub fn direct<B: backend::Backend>(kind: DirectKind<B>) -> Self {
        Self::new(kind.definition, Backend::Direct(Arc::new(kind.erased)))
    }

    /// A kind whose objects another server serves: this server serves [subresources](crate::subresource) of them alone,
    /// in a group of its own. The handlers get the namespace and the name of the object, and no object.
    pub fn elsewhere(definition: CustomResourceDefinition) -> Self {
        Self::new(definition, Backend::Elsewhere)
    }

    /// A computed kind.
    pub fn computed<K: Computed>() -> Self {
        let backend = computed_by::<K, (computed::Only<K>,)>(&K::field_permissions());
        let kind = Self::new(K::crd(), backend).printer_columns(K::printer_columns());
        kind.visibility(K::visibility())
    }

    /// A kind that is computed from several types.
    pub fn computed_from_variants<K: ComputedFromVariants>() -> Self {
        let backend = computed_by::<K, K::Variants>(&K::field_permissions());
        let kind = Self::new(K::crd(), backend).printer_columns(K::printer_columns());
        kind.visibility(K::visibility())
    }

    /// A built-in kind of Kubernetes whose objects this server stores. Its group need not be a domain; the group of
    /// Pods is empty. Its type must be among `types`: objects are decoded in the same way as Go decodes them, and
    /// bodies in protobuf and strategic merge patches are accepted.
    pub fn built_in<K>(
        definition: CustomResourceDefinition,
        cells: PrinterColumns<K>,
        rules: Validation<K>,
        types: &Arc<Types>,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        let mut kind = Self::new(definition, Backend::Stored { initial: Vec::new() });
        kind.cells.extend(cells.erased().map(ErasedColumns::shown_unchanged).map(Arc::new));
        kind.rules = Some(Arc::new(rules.erased_built_in()));
        kind.types = Some(Arc::clone(types));
        kind.strategy = Strategy::built_in();
        kind
    }

    /// A review of Kubernetes, such as SubjectAccessReview. A create request is answered by `review`, which receives
    /// the user, and nothing is stored.
    pub fn review<K, F>(
        definition: CustomResourceDefinition,
        types: &Arc<Types>,
        review: impl Fn(User, K) -> F + Send + Sync + 'static,
    ) -> Self
    where
        K: Serialize + DeserializeOwned,
        F: Future<Output = Result<K, ReviewError>> + Send + 'static,
    {
        let review = move |user: &User, question: &Tree| -> BoxFuture<'static, _> {
            match go_reader::read_object(question) {
                Ok(question) => {
                    let answer = review(user.clone(), question);
                    Box::pin(
                        async move { to_tree(&answer.await?).map_err(ReviewError::BadRequest) },
                    )
                }
                Err(error) => Box::pin(ready(Err(ReviewError::BadRequest(error.to_string())))),
            }
        };
        let review = Arc::new(ReviewHandler::Code(Box::new(review)));
        let mut kind = Self::new(definition, Backend::Reviewed(review));
        kind.types = Some(Arc::clone(types));
        kind.strategy = Strategy::built_in();
        kind
    }

    /// A kind of Kubernetes whose objects are not stored: a create request, such as one for a Binding, is handled like a
    /// POST of the object to this subresource of the object of the same name. That object's kind has this plural name, and the
    /// same group and version.
    pub fn posting_to(
        definition: CustomResourceDefinition,
        types: &Arc<Types>,
        plural: &'static str,
        subresource: &'static str,
    ) -> Self {
        let review = Arc::new(ReviewHandler::PostTo(plural, subresource));
        let mut kind = Self::new(definition, Backend::Reviewed(review));
        kind.types = Some(Arc::clone(types));
        kind.strategy = Strategy::built_in();
        kind
    }

    /// Sets the validation rules that are written in Rust.
    pub fn validation<K>(mut self, rules: Validation<K>) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        self.rules = rules.erased().map(Arc::new);
        self
    }

    /// Adds the table cells that are computed in Rust.
    pub fn printer_columns<K>(mut self, columns: PrinterColumns<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        self.cells.extend(columns.erased().map(Arc::new));
        self
    }

    /// Sets the filter of the objects that are visible to each reader.
    pub fn visibility<K>(mut self, visibility: Visibility<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        self.visibility = visibility.erased().map(Arc::new);
        self
    }

    /// Sets the rules for naming, writing and deleting objects of the kind.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Makes the kind a view: it shows the objects of another kind, which must be added before it.
    pub fn view(mut self, view: View) -> Self {
        self.view = Some(view);
        self
    }

    /// Adds a [subresource](crate::subresource): a path below each object whose requests your code handles.
    pub fn subresource(mut self, subresource: Subresource) -> Self {
        self.subresources.push(Arc::new(subresource));
        self
    }

    /// Adds a subresource of a built-in kind that is handled by code. `handle` is called for a POST of an object of the type
    /// `definition`, which must be among `types`. It answers the request, changes the object of the kind, or deletes
    /// it. The body is not stored. Bodies of the versions in `equivalent_versions` are read as those of the definition.
    ///
    /// # Errors
    /// If the definition is invalid.
    pub fn built_in_subresource(
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
        let mut body = kind::Kind::parse_built_in(definition, None, types)?;
        body.equivalent_versions = equivalent_versions;
        let handler = SubresourceHandler::new(name, Arc::new(body), Box::new(handle));
        self.built_in_subresources.push(Arc::new(handler));
        Ok(self)
    }

    /// The qualified name of the kind, if the server stores its objects.
    pub(crate) fn stored_name(&self) -> Option<String> {
        let spec = &self.definition.spec;
        let name = || crate::error::qualified(&spec.group, &spec.names.plural);
        matches!(self.backend, Backend::Stored { .. }).then(name)
    }

    fn new(definition: CustomResourceDefinition, backend: Backend) -> Self {
        Self {
            definition,
            faults: Vec::new(),
            cells: Vec::new(),
            conversion: None,
            rules: None,
            types: None,
            strategy: Strategy::default(),
            built_in_subresources: Vec::new(),
            subresources: Vec::new(),
            view: None,
            visibility: None,
            backend,
        }
    }
}

impl<B: backend::Backend> From<VirtualKind<B>> for Kind {
    fn from(kind: VirtualKind<B>) -> Self {
        Self::virtual_kind(kind)
    }
}

impl<B: backend::Backend> From<DirectKind<B>> for Kind {
    fn from(kind: DirectKind<B>) -> Self {
        Self::direct(kind)
    }
}

/// Runs the computation of a kind and updates its watch cache until the server stops.
pub type RunComputed =
    Box<dyn Fn(Arc<Sources>, Arc<WatchCache>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The backend of a kind: stored objects, objects that live elsewhere, computed objects or reviews.
pub enum Backend {
    /// The code of the user reads and writes the objects.
    Virtual(Arc<ErasedBackend>),
    /// The code of the user is called for every read.
    Direct(Arc<DirectBackend>),
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
    /// Another server serves the objects.
    Elsewhere,
}

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
    pub scope: SourceOptions,
    /// The Rust type as which the objects are read.
    pub type_id: TypeId,
}

impl SourceKind {
    /// Describes a source type that is read with this scope.
    pub(super) fn of<K: SourceType>(scope: SourceOptions) -> Self {
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

/// The backend of a kind that is computed by these variants.
fn computed_by<K: 'static, V: Variants<K>>(field_permissions: &FieldPermissions) -> Backend {
    let narrow: Arc<[TypeId]> = field_permissions.in_namespace().into();
    let run: RunComputed = Box::new(move |sources, cache| {
        let narrow = Arc::clone(&narrow);
        // The watches of the sources run as long as `sources` is held.
        async move { computed::run(V::open(&sources, &cache, &narrow), cache).await }.boxed()
    });
    let rights = field_permissions.rights(&V::looked_up());
    Backend::Computed { sources: V::sources(), rights, watched: V::watched(), run }
}
