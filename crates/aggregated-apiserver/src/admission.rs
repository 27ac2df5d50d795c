//! Admission: code that is asked about writes, after they were authorized and before
//! anything is kept.
//!
//! It is what kube-apiserver has plugins and webhooks for. A write passes two stages: in
//! the first, objects may be changed; in the second, they are as they will be kept, and
//! may only be refused. `write` says where the stages stand among the others.

mod audit_annotations;
mod error;
mod kind_rules;
mod namespace_lifecycle;
mod object;
mod reinvocation;
mod request;
mod resource_quota;

pub use audit_annotations::AuditAnnotations;
pub use error::AdmissionError;
pub use kind_rules::KindRules;
pub use namespace_lifecycle::{AdmittedNamespace, NamespaceLifecycle};
pub use object::AdmissionObject;
pub(crate) use request::Form;
pub use request::{AdmissionOperation, AdmissionRequest, OldObject, ReservedMemory};
pub use resource_quota::{QuotaLimits, QuotaUsages, Reservation, ResourceQuota};

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, ready};

use crate::object::Tree;

/// An admission plugin: code that is asked about writes to any kind of a server.
///
/// For a single kind `Rules` say the same with its Rust type.
///
/// Kubernetes' own NamespaceLifecycle is asked first, then plugins in the order in which they
/// were registered, then the `Rules` of the kind, then Kubernetes' own ResourceQuota. [`mutate`](AdmissionPlugin::mutate)
/// of all plugins is called a second time if one of them [asks for it](AdmissionRequest::reinvoke); the `Rules` change the
/// object once, after that. A write that another one has overtaken is asked about anew. A plugin that panics fails the request with 500, and the server goes on. While a plugin
/// waits, its request holds its place among those in flight, and its memory; a slow plugin
/// may lose every race for an object that changes often, until the request's time is over.
/// Of built-in kinds, what depends on other fields is filled in behind the first stage, unless a plugin
/// [needs](AdmissionPlugin::needs_defaults) it.
///
/// ```
/// use aggregated_apiserver::{
///     AdmissionPlugin, AdmissionError, AdmissionOperation, AdmissionRequest, Kinds,
/// };
/// use futures::future::BoxFuture;
/// use serde_json::{Map, Value};
///
/// /// Objects that are labelled as protected are not deleted.
/// struct Protection;
///
/// impl AdmissionPlugin for Protection {
///     fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
///         request.operation == AdmissionOperation::Delete
///     }
///
///     fn validate<'a>(
///         &'a self,
///         request: &'a AdmissionRequest<'_>,
///         _object: Option<&'a Map<String, Value>>,
///     ) -> BoxFuture<'a, Result<(), AdmissionError>> {
///         Box::pin(async move {
///             let old: Value = request.old().unwrap_or_default();
///             if old["metadata"]["labels"]["protected"] == "true" {
///                 return Err(AdmissionError::forbidden("it is protected"));
///             }
///             Ok(())
///         })
///     }
/// }
///
/// let kinds = Kinds::new().with_admission_plugin(Protection);
/// ```
///
/// Objects come without `metadata.managedFields`, and what a plugin says there is not kept.
pub trait AdmissionPlugin: Send + Sync + 'static {
    /// The name of the plugin, for messages; without one that of its type.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Whether the plugin is asked about such writes. It is part of every write, so it must be
    /// quick; a look at the object that is to be deleted costs reading it.
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool;

    /// Whether the plugin needs objects with all their defaults, as webhooks are sent them: then [`mutate`](Self::mutate) gets objects of
    /// built-in kinds so, and what it changes belongs to no field manager.
    fn needs_defaults(&self) -> bool {
        false
    }

    /// Changes an object that is created or updated, before its validation. The object is as the client has sent it: a write to the object
    /// itself has the status of the request, and a write to `status` has the spec of the request. The server resets these parts, and system
    /// fields such as uid and generation, after the plugins. An object that a plugin has changed is pruned and defaulted again.
    ///
    /// A plugin that changes the name, the namespace, apiVersion or kind fails the request with 500. A new object has no uid and no
    /// creation time yet, and no name if the name is generated.
    ///
    /// The function may be called a second time for one write, with the object that the first calls of all plugins have left. The second call must
    /// change only fields that do not have the wanted value: a list must not get an item twice.
    ///
    /// # Errors
    /// Why the write is refused.
    fn mutate<'a>(
        &'a self,
        _request: &'a AdmissionRequest<'_>,
        _object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(Ok(())))
    }

    /// Judges a write. `object` is what would be kept; a deletion has none, and the object
    /// that would go is `request.old()`.
    ///
    /// # Errors
    /// Why the write is refused.
    fn validate<'a>(
        &'a self,
        _request: &'a AdmissionRequest<'_>,
        _object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(Ok(())))
    }
}

/// The plugins of a server, in the order in which they are asked.
#[derive(Clone, Default)]
pub struct AdmissionChain {
    plugins: Vec<Arc<dyn AdmissionPlugin>>,
    last: Option<Arc<dyn AdmissionPlugin>>,
    observer: Option<AdmissionObserver>,
}

/// How long a plugin, or all of them, took over a write.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionTime<'a> {
    /// The plugin; `None` for all of them together.
    pub plugin: Option<&'a str>,
    /// What was to be done.
    pub operation: AdmissionOperation,
    /// Whether it validated; else it could change the object.
    pub validates: bool,
    /// Whether it has refused the write.
    pub rejected: bool,
    /// How long it took.
    pub took: Duration,
}

/// Is told how long plugins took.
pub type AdmissionObserver = Arc<dyn Fn(&AdmissionTime<'_>) + Send + Sync>;

impl AdmissionChain {
    /// Adds a plugin, behind the others.
    pub fn push(&mut self, plugin: Arc<dyn AdmissionPlugin>) {
        self.plugins.push(plugin);
    }

    /// Adds plugins, behind the others.
    pub fn extend(&mut self, others: Self) {
        self.plugins.extend(others.plugins);
    }

    /// Sets the plugin that judges when all others have, also the rules of the kind.
    pub fn set_last(&mut self, plugin: Arc<dyn AdmissionPlugin>) {
        self.last = Some(plugin);
    }

    /// Tells this observer how long plugins took.
    pub fn set_observer(&mut self, observer: AdmissionObserver) {
        self.observer = Some(observer);
    }

    /// Tells the observer how long a plugin, or all of them, took.
    pub fn observe(&self, time: &AdmissionTime<'_>) {
        if let Some(observer) = &self.observer {
            observer(time);
        }
    }

    /// The plugins but the last one, in the order in which they are asked.
    pub fn iter(&self) -> impl Iterator<Item = &dyn AdmissionPlugin> {
        self.plugins.iter().map(AsRef::as_ref)
    }

    /// The plugin that judges when all others have.
    pub fn last(&self) -> Option<&dyn AdmissionPlugin> {
        self.last.as_deref()
    }
}

impl std::fmt::Debug for AdmissionChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AdmissionChain").field(&self.plugins.len()).finish()
    }
}
