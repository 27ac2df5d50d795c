//! A server in this process, whose requests come from an administrator. The cluster is unreachable, which does not
//! affect administrators.

use std::convert::Infallible;
use std::sync::Arc;

use aggregated_apiserver::serving::{AdmissionPluginName, AuditArgs, TracingArgs};
use aggregated_apiserver::store::{NamespaceLimit, Store};
use aggregated_apiserver::{ApiServer, InProcess, Kinds, User};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use kube::Client;

/// The definition of a kind whose objects can contain any field.
#[allow(dead_code)] // some tests have one of their own
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
#[allow(dead_code)] // some tests have users
pub async fn server(definitions: &str) -> InProcess {
    configured(definitions).in_process(away()).await.unwrap()
}

/// A server of these kinds.
#[allow(dead_code)] // most are of definitions
pub async fn server_of(kinds: Kinds) -> InProcess {
    of_kinds(kinds).in_process(away()).await.unwrap()
}

/// A server of these kinds, with this store.
#[allow(dead_code)] // most have a store of their own
pub async fn server_with_store(kinds: Kinds, store: Arc<dyn Store>) -> InProcess {
    of_kinds(kinds).with_store(store).in_process(away()).await.unwrap()
}

/// A server of the kinds that a YAML document defines, with an audit log.
#[allow(dead_code)] // most are not
pub async fn audited_server(definitions: &str, audit: &AuditArgs) -> InProcess {
    let server = configured(definitions).with_audit(audit).unwrap();
    server.in_process(away()).await.unwrap()
}

/// A server of these kinds, with an audit log.
#[allow(dead_code)] // most have none
pub async fn audited_server_of(kinds: Kinds, audit: &AuditArgs) -> InProcess {
    let server = of_kinds(kinds).with_audit(audit).unwrap();
    server.in_process(away()).await.unwrap()
}

/// A server of the kinds that a YAML document defines, with traces.
#[allow(dead_code)] // most leave none
pub async fn traced_server(definitions: &str, tracing: &TracingArgs) -> InProcess {
    let server = configured(definitions).with_traces(tracing).unwrap();
    server.in_process(away()).await.unwrap()
}

fn away() -> Client {
    let away = tower::service_fn(|_: Request<kube::client::Body>| async {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    Client::new(away, "default")
}

/// A server of the kinds that a YAML document defines, for a cluster that allows everything to all users.
#[allow(dead_code)] // others have none
pub async fn server_of_all(definitions: &str) -> InProcess {
    server_of_kinds_for_all(Kinds::new().crds_from_yaml(definitions).unwrap()).await
}

/// A server of these kinds, for a cluster that allows everything to all users.
#[allow(dead_code)] // most are for an administrator
pub async fn server_of_kinds_for_all(kinds: Kinds) -> InProcess {
    let allows = tower::service_fn(|_: Request<kube::client::Body>| async {
        let review = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{},"status":{"allowed":true}}"#;
        Ok::<_, Infallible>(Response::new(Body::from(review)))
    });
    of_kinds(kinds).in_process(Client::new(allows, "default")).await.unwrap()
}

fn configured(definitions: &str) -> ApiServer {
    of_kinds(Kinds::new().crds_from_yaml(definitions).unwrap())
}

fn of_kinds(kinds: Kinds) -> ApiServer {
    let server = ApiServer::new("foos", kinds);
    let server = server.without_admission_plugin(AdmissionPluginName::NamespaceLifecycle);
    // The tests store all objects in one namespace.
    server.with_store_namespace_limit(NamespaceLimit::WHOLE)
}

/// A user with all permissions.
#[allow(dead_code)] // others have users
pub fn admin() -> User {
    let groups = vec!["system:masters".to_owned()];
    User { name: "admin".to_owned(), groups, ..User::default() }
}
