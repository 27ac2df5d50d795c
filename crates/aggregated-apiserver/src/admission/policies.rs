//! ValidatingAdmissionPolicies: evaluates the CEL expressions of policies for writes, with the behaviour of
//! kube-apiserver.

mod check;
mod constraints;
mod decision;
mod dispatch;
mod evaluate;
mod params;
mod policy;
mod registry;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

pub use check::PolicyExpressions;
pub use registry::{BindingReader, PolicyReader, PolicyRegistry};

use super::matching::is_exempt_from_policies;
use super::{AdmissionError, AdmissionPlugin, AdmissionRequest, LazyNamespaces};
use crate::object::Tree;

/// The name of the plugin.
const PLUGIN: &str = "ValidatingAdmissionPolicy";

/// The policies of a server, and the source of namespaces for their selectors and expressions.
pub struct Policies {
    registry: Arc<PolicyRegistry>,
    /// The namespaces of the cluster; `None` if this server stores them.
    namespaces: Option<Arc<LazyNamespaces>>,
}

impl Policies {
    /// Creates the plugin of these policies.
    pub fn new(registry: Arc<PolicyRegistry>, namespaces: Option<Arc<LazyNamespaces>>) -> Self {
        Self { registry, namespaces }
    }
}

/// The admission plugin that validates writes by the expressions of policies.
impl AdmissionPlugin for Policies {
    fn name(&self) -> &str {
        PLUGIN
    }

    /// Whether a policy applies to a write. While the policies are unknown, each of them may.
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        if is_exempt_from_policies(request) || is_review(request) {
            return false;
        }
        let Some(bound) = self.registry.known() else { return true };
        bound.iter().any(|one| one.policy.applies_to(request))
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        async move {
            let bound = self.registry.bound().await?;
            let namespaces = self.namespaces.as_deref();
            let params = self.registry.params();
            dispatch::Dispatch { request, object, namespaces, params }.validate(&bound).await
        }
        .boxed()
    }
}

/// Whether a request is a review of credentials or permissions, to which no policy applies.
fn is_review(request: &AdmissionRequest<'_>) -> bool {
    matches!(request.group, "authentication.k8s.io" | "authorization.k8s.io")
}
