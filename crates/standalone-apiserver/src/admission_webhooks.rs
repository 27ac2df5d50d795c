//! Admission webhooks: calls the webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations for
//! writes, with the behaviour of kube-apiserver.

mod annotations;
mod answer;
mod ask;
mod configured;
mod matching;
mod mutating;
mod review;
mod validating;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aggregated_apiserver::Kinds;
use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Map, Value};

use configured::{Hook, Hooks, Known};

/// A JSON object.
type Tree = Map<String, Value>;

/// The webhooks of a server.
#[derive(Default)]
pub(crate) struct AdmissionWebhooks {
    /// The stored configurations. Before they are set, there are no webhooks.
    objects: OnceLock<RuntimeKinds>,
    known: Mutex<Known>,
}

impl AdmissionWebhooks {
    /// Creates the webhooks of a server that is not started yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the source of the configurations.
    pub(crate) fn set_objects(&self, objects: RuntimeKinds) {
        // A server starts once.
        let _ = self.objects.set(objects);
    }

    /// Adds the webhooks to these kinds as admission plugins.
    pub(crate) fn of(self: &Arc<Self>, kinds: Kinds) -> Kinds {
        let kinds = kinds.with_admission_plugin(MutatingWebhooks(Arc::clone(self)));
        kinds.with_admission_plugin(ValidatingWebhooks(Arc::clone(self)))
    }

    /// The webhooks that are configured now.
    fn hooks(&self) -> Arc<Hooks> {
        let Some(objects) = self.objects.get() else { return Arc::default() };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.refresh(objects) {
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known.clone();
        }
        known.hooks()
    }
}

/// The admission plugin that calls mutating webhooks, sequentially, in the order of the names of their configurations.
struct MutatingWebhooks(Arc<AdmissionWebhooks>);

impl AdmissionPlugin for MutatingWebhooks {
    fn name(&self) -> &str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_any_about(&self.0.hooks().mutating, request)
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let hooks = self.0.hooks();
        mutating::mutate(hooks, request, object).boxed()
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
        let hooks = self.0.hooks();
        async move { mutating::judge_deletion(&hooks.mutating, request).await }.boxed()
    }
}

/// The admission plugin that calls validating webhooks, all concurrently.
struct ValidatingWebhooks(Arc<AdmissionWebhooks>);

impl AdmissionPlugin for ValidatingWebhooks {
    fn name(&self) -> &str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_any_about(&self.0.hooks().validating, request)
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let hooks = self.0.hooks();
        async move { validating::validate(&hooks.validating, request, object).await }.boxed()
    }
}

fn is_any_about(hooks: &[Hook], request: &AdmissionRequest<'_>) -> bool {
    !matching::is_exempt(request)
        && hooks.iter().any(|hook| matching::version(hook, request).is_some())
}
