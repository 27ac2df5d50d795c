//! Servers in this process. Where a cluster is unreachable, that does not affect administrators.

use std::convert::Infallible;
use std::sync::Arc;

use aggregated_apiserver::serving::{AdmissionPluginName, AuditArgs, TracingArgs};
use aggregated_apiserver::store::{NamespaceLimit, Store};
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use kube::Client;

/// An access review that is allowed.
pub(crate) const ALLOWED: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{},"status":{"allowed":true}}"#;

/// The definition of a kind whose objects can contain any field.
pub const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A server of the kinds that a YAML document defines.
pub async fn server(definitions: &str) -> InProcess {
    configured(definitions).in_process(unreachable_cluster()).await.unwrap()
}

/// A server of these kinds.
pub async fn server_of(kinds: Kinds) -> InProcess {
    api_server(kinds).in_process(unreachable_cluster()).await.unwrap()
}

/// A server of these kinds, with this store.
pub async fn server_with_store(kinds: Kinds, store: Arc<dyn Store>) -> InProcess {
    api_server(kinds).with_store(store).in_process(unreachable_cluster()).await.unwrap()
}

/// A server of the kinds that a YAML document defines, with an audit log.
pub async fn audited_server(definitions: &str, audit: &AuditArgs) -> InProcess {
    let server = configured(definitions).with_audit(audit).unwrap();
    server.in_process(unreachable_cluster()).await.unwrap()
}

/// A server of these kinds, with an audit log.
pub async fn audited_server_of(kinds: Kinds, audit: &AuditArgs) -> InProcess {
    let server = api_server(kinds).with_audit(audit).unwrap();
    server.in_process(unreachable_cluster()).await.unwrap()
}

/// A server of the kinds that a YAML document defines, with traces.
pub async fn traced_server(definitions: &str, tracing: &TracingArgs) -> InProcess {
    let server = configured(definitions).with_traces(tracing).unwrap();
    server.in_process(unreachable_cluster()).await.unwrap()
}

/// A client of a cluster that answers every request with 503.
pub fn unreachable_cluster() -> Client {
    let unavailable = tower::service_fn(|_: Request<kube::client::Body>| async {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    Client::new(unavailable, "default")
}

/// A server of the kinds that a YAML document defines, for a cluster that allows everything to all users.
pub async fn server_of_all(definitions: &str) -> InProcess {
    configured(definitions).in_process(permissive_cluster()).await.unwrap()
}

/// A server of these kinds, for a cluster that allows everything to all users.
pub async fn server_of_kinds_for_all(kinds: Kinds) -> InProcess {
    api_server(kinds).in_process(permissive_cluster()).await.unwrap()
}

/// A client of a cluster that allows everything to all users.
pub fn permissive_cluster() -> Client {
    let allows = tower::service_fn(|_: Request<kube::client::Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from(ALLOWED)))
    });
    Client::new(allows, "default")
}

fn configured(definitions: &str) -> ApiServer {
    api_server(Kinds::new().crds_from_yaml(definitions).unwrap())
}

/// The plugins that call webhooks or evaluate policies. They refuse writes while the cluster cannot be read.
pub const WEBHOOKS: [AdmissionPluginName; 3] = [
    AdmissionPluginName::MutatingAdmissionWebhook,
    AdmissionPluginName::ValidatingAdmissionPolicy,
    AdmissionPluginName::ValidatingAdmissionWebhook,
];

/// This server without the plugins that call webhooks or evaluate policies.
pub fn without_webhooks(server: ApiServer) -> ApiServer {
    WEBHOOKS.into_iter().fold(server, ApiServer::without_admission_plugin)
}

/// A server of these kinds, without admission plugins that need a cluster, and with the whole store for one namespace.
pub fn api_server(kinds: Kinds) -> ApiServer {
    let server = without_webhooks(ApiServer::new("foos", kinds));
    let server = server.without_admission_plugin(AdmissionPluginName::NamespaceLifecycle);
    server.with_store_namespace_limit(NamespaceLimit::WHOLE)
}
