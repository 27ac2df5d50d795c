//! The set of kinds that a server serves.

use std::fmt::Display;
use std::sync::Arc;

use futures::Stream;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::watcher::Event;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::computed::{Computed, ComputedFromVariants};
use super::kind::Kind;
use super::stored::Stored;
use super::yaml::{self, DefinitionError};
use crate::admission::{AdmissionChain, AdmissionPlugin};
use crate::cluster::{SourceStreams, SourceType};
use crate::kind::ReviewError;
use crate::paths::GroupVersion;
use crate::schema::Types;
use crate::user::User;

/// The set of kinds that a server serves.
#[derive(Default)]
pub struct Kinds {
    kinds: Vec<Kind>,
    group_versions: Vec<Arc<GroupVersion>>,
    admission: AdmissionChain,
    streams: SourceStreams,
    allow_partial: bool,
}

impl Kinds {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Kind>) -> Self {
        self.kinds.push(kind.into());
        self
    }

    /// Adds a kind whose objects the server stores.
    #[must_use]
    pub fn stored<K: Stored>(self) -> Self {
        self.kind(Kind::stored::<K>())
    }

    /// Adds a custom resource from its definition alone; the server stores its objects.
    #[must_use]
    pub fn crd(self, definition: CustomResourceDefinition) -> Self {
        self.kind(Kind::crd(definition))
    }

    /// Adds a [review](Kind::review) of Kubernetes.
    #[must_use]
    pub fn review<K, F>(
        self,
        definition: CustomResourceDefinition,
        types: &Arc<Types>,
        review: impl Fn(User, K) -> F + Send + Sync + 'static,
    ) -> Self
    where
        K: Serialize + DeserializeOwned,
        F: Future<Output = Result<K, ReviewError>> + Send + 'static,
    {
        self.kind(Kind::review(definition, types, review))
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

    /// Adds a [group version](crate::paths) whose paths your code handles.
    #[must_use]
    pub fn group_version(mut self, group_version: GroupVersion) -> Self {
        self.group_versions.push(Arc::new(group_version));
        self
    }

    /// Adds several [group versions](crate::paths).
    ///
    /// ```
    /// use aggregated_apiserver::Kinds;
    /// use aggregated_apiserver::paths::GroupVersion;
    ///
    /// let versions = ["v1beta1", "v1"].map(|version| {
    ///     GroupVersion::new("weather.example.com", version).get("/stations", async || "oslo")
    /// });
    /// let kinds = Kinds::new().group_versions(versions);
    /// ```
    #[must_use]
    pub fn group_versions(self, group_versions: impl IntoIterator<Item = GroupVersion>) -> Self {
        group_versions.into_iter().fold(self, Self::group_version)
    }

    /// Adds the kinds, group versions and admission plugins of `others`.
    #[must_use]
    pub fn merge(mut self, others: Self) -> Self {
        self.kinds.extend(others.kinds);
        self.group_versions.extend(others.group_versions);
        self.admission.extend(others.admission);
        self.streams.extend(others.streams);
        self.allow_partial |= others.allow_partial;
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
    pub fn computed<K: Computed>(self) -> Self {
        self.kind(Kind::computed::<K>())
    }

    /// Adds a kind that is computed from several types.
    #[must_use]
    pub fn computed_from_variants<K: ComputedFromVariants>(self) -> Self {
        self.kind(Kind::computed_from_variants::<K>())
    }

    /// Reads the objects of a source type or looked-up type from a stream instead of the cluster: from HTTP, a database
    /// or a timer. Each stream begins with [`Event::Init`], one [`Event::InitApply`] per existing object and
    /// [`Event::InitDone`]. It goes on with [`Event::Apply`] and [`Event::Delete`]; it can begin again with the objects
    /// that exist now. The stream is opened when the server starts. If it ends, it is opened again after a delay. The
    /// memory limit for objects of the cluster also applies to the stream, and kinds wait for its first `InitDone` in
    /// the same way. Generated manifests request no permissions for the type. Readers need the same permissions as if
    /// the type were in the cluster, unless the kind [declares](super::FieldPermissions) its fields harmless.
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

    /// The plural names of the kinds, such as `llamas`, in the order in which they were added.
    pub fn plural_names(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().map(|kind| kind.definition.spec.names.plural.as_str())
    }

    /// The group versions, in the order in which they were added.
    pub(crate) fn own_group_versions(&self) -> &[Arc<GroupVersion>] {
        &self.group_versions
    }

    /// The kinds, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter()
    }
}
