//! Admission webhooks: calls the webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations for
//! writes, with the behaviour of kube-apiserver.

mod annotations;
mod answer;
mod ask;
mod hook;
mod matching;
mod mutating;
mod registry;
mod review;
mod validating;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use serde_json::{Map, Value};

pub use ask::calls;
pub use registry::{Configuration, Registry};

use crate::admission::matching::is_exempt_from_webhooks;
use crate::admission::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
    LazyNamespaces,
};

/// A JSON object.
type Tree = Map<String, Value>;

/// The webhooks of one type of configurations, and the source of namespaces for their selectors.
pub struct Webhooks<K> {
    registry: Arc<Registry<K>>,
    /// The namespaces of the cluster; `None` if this server stores them.
    namespaces: Option<Arc<LazyNamespaces>>,
}

impl<K: Configuration> Webhooks<K> {
    /// Creates the plugin of these webhooks.
    pub fn new(registry: Arc<Registry<K>>, namespaces: Option<Arc<LazyNamespaces>>) -> Self {
        Self { registry, namespaces }
    }

    /// Whether a webhook may be called about a write. While the webhooks are unknown, each of them may.
    fn may_be_called(&self, request: &AdmissionRequest<'_>) -> bool {
        if is_exempt_from_webhooks(request) {
            return false;
        }
        let Some(hooks) = self.registry.known() else { return true };
        hooks.iter().any(|hook| matching::version(hook, request).is_some())
    }

    fn namespaces(&self) -> Option<&LazyNamespaces> {
        self.namespaces.as_deref()
    }
}

/// The admission plugin that calls mutating webhooks, sequentially, in the order of the names of their configurations.
impl AdmissionPlugin for Webhooks<MutatingWebhookConfiguration> {
    fn name(&self) -> &str {
        MutatingWebhookConfiguration::PLUGIN
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        self.may_be_called(request)
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        async move {
            let hooks = self.registry.hooks().await?;
            mutating::mutate(hooks, self.namespaces(), request, object).await
        }
        .boxed()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        _object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        // A deletion or a connection cannot be changed, so mutating webhooks validate it.
        if !matches!(request.operation, AdmissionOperation::Delete | AdmissionOperation::Connect) {
            return ready(Ok(())).boxed();
        }
        async move {
            let hooks = self.registry.hooks().await?;
            mutating::judge_deletion(&hooks, self.namespaces(), request).await
        }
        .boxed()
    }
}

/// The admission plugin that calls validating webhooks, all concurrently.
impl AdmissionPlugin for Webhooks<ValidatingWebhookConfiguration> {
    fn name(&self) -> &str {
        ValidatingWebhookConfiguration::PLUGIN
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        self.may_be_called(request)
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        async move {
            let hooks = self.registry.hooks().await?;
            validating::validate(&hooks, self.namespaces(), request, object).await
        }
        .boxed()
    }
}
