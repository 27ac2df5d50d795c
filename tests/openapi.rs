//! Compares the OpenAPI documents of the repository with those that the server serves. After an intended change,
//! `BLESS=1 cargo test --test openapi` updates the files.

use std::convert::Infallible;
use std::path::Path;

use aggregated_apiserver::User;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::Value;

const DOCUMENTS: [&str; 4] = [
    "openapi/v2",
    "openapi/v3",
    "openapi/v3/apis/farm.example.com/v1",
    "openapi/v3/apis/farm.example.com/v1alpha",
];

/// A cluster that is unavailable; the documents do not need it.
fn nobody() -> Client {
    let service = tower::service_fn(|_: Request<kube::client::Body>| async {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn openapi_files_equal_the_served_documents() {
    let server = farm_operator::server().in_process(nobody()).await.unwrap();
    for path in DOCUMENTS {
        let request = Request::get(format!("/{path}")).body(Body::empty()).unwrap();
        let groups = vec!["system:masters".to_owned()];
        let user = User { name: "admin".to_owned(), groups, ..User::default() };
        let response = server.respond(user, request).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let served: Value = serde_json::from_slice(&body).unwrap();
        let served = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{path}.json"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, served).unwrap();
        } else {
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(kept == served, "{path}: write it anew, BLESS=1 cargo test --test openapi");
        }
    }
}
