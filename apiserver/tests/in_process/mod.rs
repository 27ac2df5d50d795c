//! A server in this process, asked by an administrator: the cluster is away,
//! which does not matter to one.

use std::convert::Infallible;

use aggregated_apiserver::{AdmissionPlugin, ApiServer, InProcess, Kinds, User};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use kube::Client;

/// A server of the kinds that a YAML text defines.
pub async fn server(definitions: &str) -> InProcess {
    let away = tower::service_fn(|_: Request<kube::client::Body>| async {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    let kinds = Kinds::new().defined_in(definitions).unwrap();
    let server = ApiServer::new("foos", kinds);
    let server = server.without_admission_plugin(AdmissionPlugin::NamespaceLifecycle);
    server.in_process(Client::new(away, "default")).await.unwrap()
}

/// Who may do everything.
pub fn admin() -> User {
    let groups = vec!["system:masters".to_owned()];
    User { name: "admin".to_owned(), groups, ..User::default() }
}
