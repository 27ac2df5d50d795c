//! The builder of a direct kind.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::Semaphore;

use super::{DirectBackend, get, list};
use crate::backend::calls::{self, CALLS, Writer};
use crate::backend::{Backend, Create, Delete, Read, Update};

/// A kind whose backend is called for every read. It has the verbs `get` and `list`; [`create`](Self::create),
/// [`update`](Self::update) and [`delete`](Self::delete) add others. `Kinds::kind` takes it.
///
/// A write reads the object first, with [`Read::get`] and as the user of the request. The object has the resourceVersion
/// that its [etag](Read) determines, or its content if it has no etag, so an outdated update receives 409 from every
/// replica.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
///
/// use aggregated_apiserver::Kinds;
/// use aggregated_apiserver::backend::{
///     Backend, BackendError, DirectKind, Item, Read, ReadContext, Update, WriteContext,
/// };
/// use kube::{CustomResource, CustomResourceExt, ResourceExt};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "lab.example.com", version = "v1", kind = "Valve")]
/// pub struct ValveSpec {
///     pub is_open: bool,
/// }
///
/// /// Valves, each with the number of its changes.
/// struct Valves(Mutex<BTreeMap<String, (bool, u64)>>);
///
/// fn valve((name, (is_open, changes)): (&String, &(bool, u64))) -> Valve {
///     let mut valve = Valve::new(name, ValveSpec { is_open: *is_open });
///     valve.metadata.resource_version = Some(changes.to_string());
///     valve
/// }
///
/// impl Backend for Valves {
///     type Object = Valve;
/// }
///
/// impl Read for Valves {
///     async fn get(
///         &self,
///         _: &ReadContext,
///         _: Option<&str>,
///         name: &str,
///     ) -> Result<Option<Valve>, BackendError> {
///         let valves = self.0.lock().map_err(BackendError::internal_from)?;
///         Ok(valves.get_key_value(name).map(valve))
///     }
///
///     async fn list(&self, _: &ReadContext, _: Option<&str>) -> Result<Vec<Valve>, BackendError> {
///         let valves = self.0.lock().map_err(BackendError::internal_from)?;
///         Ok(valves.iter().map(valve).collect())
///     }
/// }
///
/// impl Update for Valves {
///     async fn update(
///         &self,
///         _: &WriteContext,
///         old: Item<Valve>,
///         new: Valve,
///     ) -> Result<Item<Valve>, BackendError> {
///         let mut valves = self.0.lock().map_err(BackendError::internal_from)?;
///         let name = new.name_any();
///         let (is_open, changes) = valves.get_mut(&name).ok_or(BackendError::NotFound)?;
///         if old.etag != Some(changes.to_string()) {
///             return Err(BackendError::Conflict);
///         }
///         (*is_open, *changes) = (new.spec.is_open, *changes + 1);
///         Ok(Item::new(valve((&name, &(*is_open, *changes)))))
///     }
/// }
///
/// let valves = Arc::new(Valves(Mutex::default()));
/// let kinds = Kinds::new().kind(DirectKind::new(Valve::crd(), valves).update());
/// ```
#[must_use]
pub struct DirectKind<B> {
    pub(crate) definition: CustomResourceDefinition,
    pub(crate) erased: DirectBackend,
    backend: Arc<B>,
}

impl<B: Backend> DirectKind<B> {
    /// A kind with this backend. The definition has the names, the schema and the columns of the kind.
    pub fn new(definition: CustomResourceDefinition, backend: Arc<B>) -> Self
    where
        B: Read,
    {
        let (get, list) = (get(&backend), list(&backend));
        let (calls, writer) = (Semaphore::new(CALLS), Writer::default());
        Self { definition, erased: DirectBackend { get, list, calls, writer }, backend }
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

    /// Adds the verbs `delete` and `deletecollection`.
    pub fn delete(mut self) -> Self
    where
        B: Delete,
    {
        self.erased.writer.delete = Some(calls::delete(&self.backend));
        self
    }

    /// States that the backend stores the whole `metadata` of its objects: `uid`, `labels`, `annotations`,
    /// `finalizers`, `ownerReferences`, `managedFields` and all others. Without it, writes that set metadata receive
    /// 422, because the library stores no metadata of direct kinds.
    pub fn keeps_metadata(mut self) -> Self {
        self.erased.writer.keeps_metadata = true;
        self
    }

    /// States that the backend stores these fields of the `metadata`, such as `labels`. Writes that set other fields
    /// receive 422. Server-side apply needs `managedFields`, and finalizers need `finalizers`, `deletionTimestamp` and
    /// `deletionGracePeriodSeconds`.
    pub fn keeps_metadata_fields<F: Into<String>>(
        mut self,
        fields: impl IntoIterator<Item = F>,
    ) -> Self {
        self.erased.writer.kept_metadata = fields.into_iter().map(Into::into).collect();
        self
    }

    /// States that the backend validates dry runs: it receives the writes of dry runs, checks them, and stores nothing if
    /// [`WriteContext::is_dry_run`](crate::backend::WriteContext::is_dry_run) is true. Clients receive its errors, or the object that
    /// it returns. Without this statement, dry runs do not reach the backend.
    pub fn validates_dry_run(mut self) -> Self {
        self.erased.writer.validates_dry_run = true;
        self
    }

    /// Sets the timeout of each call of the backend; the default is 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.erased.writer.timeout = timeout;
        self
    }
}

impl<B> fmt::Debug for DirectKind<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectKind").field("backend", &self.erased).finish_non_exhaustive()
    }
}
