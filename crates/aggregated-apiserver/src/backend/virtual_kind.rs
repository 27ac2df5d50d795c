//! The builder of a virtual kind.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::erased::{self, ErasedBackend, Feed};
use super::{Backend, Create, Delete, Poll, Update, Watch, calls};

/// A kind whose objects live in a backend. `Kinds::kind` takes it.
#[derive(Debug)]
#[must_use]
pub struct VirtualKind<B> {
    pub(crate) definition: CustomResourceDefinition,
    pub(crate) erased: ErasedBackend,
    backend: Arc<B>,
}

impl<B: Backend> VirtualKind<B> {
    /// A kind whose backend is listed at this interval. The definition has the names, the schema and the columns of the
    /// kind.
    pub fn polled(definition: CustomResourceDefinition, backend: Arc<B>, interval: Duration) -> Self
    where
        B: Poll,
    {
        let list = erased::list(&backend);
        Self::new(definition, backend, Feed::Polled { list, interval })
    }

    /// A kind whose backend streams its changes. The definition has the names, the schema and the columns of the kind.
    pub fn watched(definition: CustomResourceDefinition, backend: Arc<B>) -> Self
    where
        B: Watch,
    {
        let (run, get) = (erased::run(&backend), erased::get(&backend));
        Self::new(definition, backend, Feed::Watched { run, get })
    }

    fn new(definition: CustomResourceDefinition, backend: Arc<B>, feed: Feed) -> Self {
        Self { definition, erased: ErasedBackend::new(feed), backend }
    }

    /// Adds the verb `create`.
    pub fn create(mut self) -> Self
    where
        B: Create,
    {
        self.erased.writer.create = Some(calls::create(&self.backend));
        self
    }

    /// Adds the verbs `update` and `patch`, for the objects and for their subresources `status` and `scale`.
    pub fn update(mut self) -> Self
    where
        B: Update,
    {
        self.erased.writer.update = Some(calls::update(&self.backend));
        self
    }

    /// Adds the verbs `delete` and `deletecollection`. Objects with finalizers are only deleted if the backend also
    /// supports [`update`](Self::update).
    pub fn delete(mut self) -> Self
    where
        B: Delete,
    {
        self.erased.writer.delete = Some(calls::delete(&self.backend));
        self
    }

    /// States that the backend stores the whole `metadata` of its objects: `uid`, `labels`, `annotations`,
    /// `finalizers`, `ownerReferences`, `managedFields` and all others. The library stores none of it.
    pub fn keeps_metadata(mut self) -> Self {
        self.erased.writer.keeps_metadata = true;
        self
    }

    /// States that the backend stores these fields of the `metadata`, such as `labels`. The library stores the others.
    pub fn keeps_metadata_fields<F: Into<String>>(
        mut self,
        fields: impl IntoIterator<Item = F>,
    ) -> Self {
        self.erased.writer.kept_metadata = fields.into_iter().map(Into::into).collect();
        self
    }

    /// States that the backend validates dry runs: it receives the writes of dry runs, checks them, and stores nothing if
    /// [`WriteContext::is_dry_run`](super::WriteContext::is_dry_run) is true. Clients receive its errors, or the object that
    /// it returns. Without this statement, dry runs do not reach the backend.
    ///
    /// ```
    /// # use aggregated_apiserver::backend::{Poll, VirtualKind};
    /// # fn kind<B: Poll>(definition: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition, backend: std::sync::Arc<B>) -> VirtualKind<B> {
    /// VirtualKind::polled(definition, backend, std::time::Duration::from_secs(1)).validates_dry_run()
    /// # }
    /// ```
    pub fn validates_dry_run(mut self) -> Self {
        self.erased.writer.validates_dry_run = true;
        self
    }

    /// Sets the timeout of each call of the backend; the default is 30 seconds. The metadata of an object that the
    /// backend does not return any more is stored for twice this time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.erased.writer.timeout = timeout;
        self
    }
}
