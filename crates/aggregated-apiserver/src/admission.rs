//! Admission: code that changes, accepts or rejects writes, after they were authorized and before anything is stored.
//!
//! It corresponds to the admission plugins and webhooks of kube-apiserver. A write passes two stages. In the mutating
//! stage, plugins may change the object. In the validating stage, the object is final, and plugins may only reject it.
//! `write` defines the position of the stages in the pipeline.

mod audit_annotations;
mod conditions;
mod configurations;
mod error;
mod expressions;
mod kind_rules;
pub mod label_selector;
mod matching;
mod namespace_lifecycle;
mod object;
mod policies;
mod reinvocation;
mod request;
mod resource_quota;
mod undecoded;
mod webhooks;

pub(crate) use audit_annotations::AuditAnnotations;
pub use conditions::check_match_condition;
pub(crate) use configurations::UnreadConfigurations;
pub use error::AdmissionError;
pub(crate) use kind_rules::KindRules;
pub(crate) use namespace_lifecycle::{AdmittedNamespace, NamespaceLifecycle};
pub use object::AdmissionObject;
pub use policies::PolicyExpressions;
pub(crate) use policies::{BindingReader, Policies, PolicyReader, PolicyRegistry};
pub use request::{AdmissionOperation, AdmissionRequest, ReservedMemory};
pub(crate) use request::{Form, OldObject};
pub use resource_quota::QuotaStatuses;
pub(crate) use resource_quota::{QuotaLimits, QuotaUsages, Reservation, ResourceQuota};
pub(crate) use webhooks::{Configuration, Registry, Webhooks, calls as webhook_calls};

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::{BoxFuture, ready};

use crate::cluster::Namespaces;
use crate::object::Tree;
use crate::watch_cache::SourceState;

/// The namespaces of the cluster, which are followed from the first use on.
pub(crate) type LazyNamespaces =
    LazyLock<Namespaces, Box<dyn FnOnce() -> Namespaces + Send + Sync>>;

/// An admission plugin: code that is called for the writes to every kind of a server.
///
/// `Validation` do the same for a single kind, with its Rust type.
///
/// The plugins are called in this order: NamespaceLifecycle, the plugins of the program in the order of their
/// registration, MutatingAdmissionWebhook, ValidatingAdmissionPolicy and ValidatingAdmissionWebhook. After them come the
/// `Validation` of the kind and ResourceQuota. [`mutate`](AdmissionPlugin::mutate) of all plugins is called a second time
/// if one of them [requests it](AdmissionRequest::reinvoke). The `Validation` changes the object once, after that. A write
/// that conflicts with a concurrent write runs through admission again.
///
/// A plugin that panics fails the request with 500, and the server continues. While a plugin waits, its request holds
/// its permit in flight and its memory. A slow plugin may lose every race for an object that changes often, until the
/// request times out. Objects have their defaults before the first plugin is called, and the changes of plugins belong to
/// no field manager.
///
/// ```
/// use aggregated_apiserver::Kinds;
/// use aggregated_apiserver::admission::{
///     AdmissionPlugin, AdmissionError, AdmissionOperation, AdmissionRequest,
/// };
/// use futures::future::BoxFuture;
/// use serde_json::{Map, Value};
///
/// /// Rejects the deletion of objects that are labelled as protected.
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
/// Objects are passed without `metadata.managedFields`, and a plugin cannot set them.
pub trait AdmissionPlugin: Send + Sync + 'static {
    /// The name of the plugin in messages; the name of its type by default.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Whether the plugin is called for this write. `handles` is called for every write, so it must be fast; reading
    /// the object of a deletion decodes it.
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool;

    /// Changes an object that is created or updated, before its validation. The object is as the client has sent it: a
    /// write to the object itself has the status of the request, and a write to `status` has the spec of the request.
    /// The server resets these parts, and system fields such as uid and generation, after the plugins. An object that a
    /// plugin has changed is pruned and defaulted again.
    ///
    /// A plugin that changes the name, the namespace, apiVersion or kind fails the request with 500. A new object has
    /// no uid and no creation time yet, and no name if the name is generated.
    ///
    /// The function may be called a second time for one write, with the object that the first calls of all plugins have
    /// left. The second call must change only fields that do not have the wanted value: a list must not get an item
    /// twice.
    ///
    /// # Errors
    /// The reason for which the write is rejected.
    fn mutate<'a>(
        &'a self,
        _request: &'a AdmissionRequest<'_>,
        _object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(Ok(())))
    }

    /// Validates a write. `object` is the object as it would be stored. A deletion has none; the object to delete is
    /// `request.old()`.
    ///
    /// # Errors
    /// The reason for which the write is rejected.
    fn validate<'a>(
        &'a self,
        _request: &'a AdmissionRequest<'_>,
        _object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(Ok(())))
    }
}

/// The plugins of a server, in the order of their calls.
#[derive(Clone, Default)]
pub(crate) struct AdmissionChain {
    plugins: Vec<Arc<dyn AdmissionPlugin>>,
    last: Option<Arc<dyn AdmissionPlugin>>,
    observer: Option<AdmissionObserver>,
    sources: Vec<AdmissionSource>,
}

/// The duration of the calls of one plugin, or of all plugins, for one write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionTime<'a> {
    /// The plugin; `None` for the total of all plugins.
    pub plugin: Option<&'a str>,
    /// The operation of the write.
    pub operation: AdmissionOperation,
    /// Whether the call was a validation; otherwise it was a mutation.
    pub validates: bool,
    /// Whether the write was rejected.
    pub rejected: bool,
    /// The duration.
    pub took: Duration,
}

/// Receives the durations of plugin calls.
pub(crate) type AdmissionObserver = Arc<dyn Fn(&AdmissionTime<'_>) + Send + Sync>;

/// Returns the state of the objects of the cluster that a plugin follows, if it follows some.
pub(crate) type AdmissionSource = Arc<dyn Fn() -> Option<SourceState> + Send + Sync>;

impl AdmissionChain {
    /// Adds a plugin after the others.
    pub fn push(&mut self, plugin: Arc<dyn AdmissionPlugin>) {
        self.plugins.push(plugin);
    }

    /// Adds plugins after the others.
    pub fn extend(&mut self, others: Self) {
        self.plugins.extend(others.plugins);
    }

    /// Adds objects of the cluster that a plugin follows.
    pub fn add_source(&mut self, source: AdmissionSource) {
        self.sources.push(source);
    }

    /// The state of the objects of the cluster that plugins follow.
    pub fn sources(&self) -> Vec<SourceState> {
        self.sources.iter().filter_map(|source| source()).collect()
    }

    /// Sets the plugin that validates after all others and after the rules of the kind.
    pub fn set_last(&mut self, plugin: Arc<dyn AdmissionPlugin>) {
        self.last = Some(plugin);
    }

    /// Sets the observer of the durations of plugin calls.
    pub fn set_observer(&mut self, observer: AdmissionObserver) {
        self.observer = Some(observer);
    }

    /// Reports the duration of a call to the observer.
    pub fn observe(&self, time: &AdmissionTime<'_>) {
        if let Some(observer) = &self.observer {
            observer(time);
        }
    }

    /// The plugins except the last one, in the order of their calls.
    pub fn iter(&self) -> impl Iterator<Item = &dyn AdmissionPlugin> {
        self.plugins.iter().map(AsRef::as_ref)
    }

    /// The plugin that validates after all others.
    pub fn last(&self) -> Option<&dyn AdmissionPlugin> {
        self.last.as_deref()
    }
}

impl std::fmt::Debug for AdmissionChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AdmissionChain").field(&self.plugins.len()).finish()
    }
}
