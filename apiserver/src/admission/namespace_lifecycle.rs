//! NamespaceLifecycle: nothing is created in a namespace that is missing or being deleted,
//! or the deletion of namespaces would never end; and some namespaces stay.

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::error::name;
use super::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use crate::cluster::{NamespaceState, Namespaces};
use crate::error::ApiError;
use crate::object::Tree;

/// Namespaces that a cluster always has.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Kubernetes' admission plugin of this name.
pub struct NamespaceLifecycle(Option<Namespaces>);

impl NamespaceLifecycle {
    /// The plugin. Without namespaces to look at, only deletions of namespaces are judged.
    pub fn new(namespaces: Option<Namespaces>) -> Self {
        Self(namespaces)
    }
}

impl AdmissionPlugin for NamespaceLifecycle {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        match request.operation {
            AdmissionOperation::Create => self.0.is_some() && request.namespace.is_some(),
            AdmissionOperation::Delete => is_namespace(request),
            AdmissionOperation::Update => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let (Some(namespaces), Some(namespace)) = (&self.0, request.namespace) else {
            return ready(Ok(())).boxed();
        };
        check(namespaces, namespace, request, object).boxed()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let is_deleted = object.is_none() && is_namespace(request);
        let judged = if is_deleted && IMMORTAL.contains(&request.name) {
            Err(AdmissionError::forbidden("this namespace may not be deleted"))
        } else {
            Ok(())
        };
        ready(judged).boxed()
    }
}

fn is_namespace(request: &AdmissionRequest<'_>) -> bool {
    request.group.is_empty() && request.resource == "namespaces"
}

/// Refuses an object whose namespace takes none.
async fn check(
    namespaces: &Namespaces,
    namespace: &str,
    request: &AdmissionRequest<'_>,
    object: &AdmissionObject<'_>,
) -> Result<(), AdmissionError> {
    let state = namespaces.state(namespace, &request.user.name).await.map_err(|error| {
        AdmissionError::answer(ApiError::internal(&error).caused_by(error.why()))
    })?;
    let forbidden = |why: &str| {
        ApiError::forbidden(request.group, request.resource, &name(request, object), why)
    };
    let refused = match state {
        NamespaceState::Active => return Ok(()),
        NamespaceState::Unknown => forbidden("not yet ready to handle request"),
        NamespaceState::Missing => ApiError::not_found("", "namespaces", namespace),
        NamespaceState::Terminating => forbidden(&format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ))
        .with_cause(
            "NamespaceTerminating",
            &format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        ),
    };
    Err(AdmissionError::answer(refused))
}
