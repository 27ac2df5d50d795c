//! Objects that cannot be converted to the requested version. Requests that need them fail with an error; other
//! requests are not affected.

#![allow(clippy::unwrap_used)] // all of it is a test

use aggregated_apiserver::strategy::View;
use aggregated_apiserver::{InProcess, Kind, Kinds};
use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};

const STORED_DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kept.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Kept, plural: kept}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

const SHOWN_DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shown.view.example.com}
spec:
  group: view.example.com
  scope: Namespaced
  names: {kind: Kept, plural: shown}
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .color}]
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        properties: {color: {type: string}}
"#;

const KEPT: &str = "/apis/example.com/v1/namespaces/n/kept";
const SHOWN: &str = "/apis/view.example.com/v1/namespaces/n/shown";
const WHY: &str = "shown.view.example.com \"broken\" cannot be converted to \
                   view.example.com/v1: metadata: must be an object";

/// An object that cannot be converted becomes an invalid object.
fn from_stored(mut tree: Map<String, Value>) -> Map<String, Value> {
    if tree.get("odd").is_some() {
        tree.remove("metadata");
    }
    tree
}

async fn server() -> InProcess {
    let view = View {
        group: "example.com",
        version: "v1",
        plural: "kept",
        to_stored: std::convert::identity,
        from_stored,
    };
    let kinds = Kinds::new().crds_from_yaml(STORED_DEFINITION).unwrap();
    let shown = Kind::crd(serde_saphyr::from_str(SHOWN_DEFINITION).unwrap());
    let kinds = kinds.kind(shown.view(view));
    test_server::server_of(kinds).await
}

async fn respond(server: &InProcess, method: Method, path: &str, body: Body) -> Response<Body> {
    respond_as(server, method, path, body, "application/json").await
}

async fn respond_as(
    server: &InProcess,
    method: Method,
    path: &str,
    body: Body,
    accept: &str,
) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let request = request.header("content-type", "application/json").body(body).unwrap();
    server.respond(test_server::admin(), request).await
}

async fn read(server: &InProcess, path: &str, accept: &str) -> (StatusCode, Value) {
    let response = respond_as(server, Method::GET, path, Body::empty(), accept).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn create(server: &InProcess, name: &str, more: &Value) {
    let mut object = json!({
        "apiVersion": "example.com/v1", "kind": "Kept", "metadata": {"name": name},
    });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let body = Body::from(object.to_string());
    let response = respond(server, Method::POST, KEPT, body).await;
    assert_eq!(response.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn reads_of_an_unconvertible_object_fail_with_the_reason() {
    let server = server().await;
    create(&server, "a", &json!({"color": "red"})).await;
    create(&server, "broken", &json!({"odd": true, "color": "blue"})).await;
    let whole = "application/json";
    let path = |name: &str| format!("{SHOWN}/{name}");
    assert_eq!(read(&server, &path("a"), whole).await.0, StatusCode::OK);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let everything = [
        (path("broken"), whole),
        (SHOWN.to_owned(), whole),
        (SHOWN.to_owned(), table),
        // The color of the object is unknown, so the selector cannot be evaluated.
        (format!("{SHOWN}?fieldSelector=color%3Dred"), whole),
    ];
    for (path, accept) in everything {
        let (status, answer) = read(&server, &path, accept).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        assert_eq!(answer["message"], WHY, "{path}");
    }
    // For the same reason the object cannot be deleted by a selector.
    let red = format!("{SHOWN}?fieldSelector=color%3Dred");
    let deleted = respond(&server, Method::DELETE, &red, Body::empty()).await;
    assert_eq!(deleted.status(), StatusCode::INTERNAL_SERVER_ERROR);
    create(&server, "a", &json!({"color": "red"})).await;
    let (status, list) = read(&server, &format!("{SHOWN}?limit=1"), whole).await;
    assert_eq!((status, list["items"].as_array().unwrap().len()), (StatusCode::OK, 1));
    // The metadata of the object can be read, and the object can be deleted.
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let (status, list) = read(&server, SHOWN, metadata).await;
    assert_eq!((status, list["items"].as_array().unwrap().len()), (StatusCode::OK, 2));
    let replacement = json!({
        "apiVersion": "view.example.com/v1", "kind": "Kept", "metadata": {"name": "broken"},
    });
    let body = Body::from(replacement.to_string());
    let replaced = respond(&server, Method::PUT, &path("broken"), body).await;
    assert_eq!(replaced.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let deleted = respond(&server, Method::DELETE, &path("broken"), Body::empty()).await;
    assert_eq!(deleted.status(), StatusCode::OK);
    assert_eq!(read(&server, SHOWN, whole).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_list_that_fails_after_its_first_bytes_is_aborted() {
    let server = server().await;
    let long = json!({"text": "x".repeat(2_000)});
    for number in 0..100 {
        create(&server, &format!("a-{number:03}"), &long).await;
    }
    create(&server, "broken", &json!({"odd": true})).await;
    let response = respond(&server, Method::GET, SHOWN, Body::empty()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let error = response.into_body().collect().await.unwrap_err();
    assert!(format!("{error:?}").contains("cannot be converted"), "{error:?}");
}

#[tokio::test]
async fn a_watch_ends_with_an_error() {
    let server = server().await;
    create(&server, "a", &json!({})).await;
    let watch = format!("{SHOWN}?watch=true");
    let response = respond(&server, Method::GET, &watch, Body::empty()).await;
    let running = response.into_body();
    create(&server, "broken", &json!({"odd": true})).await;
    create(&server, "c", &json!({})).await;
    // One watch receives the change, the other one starts after it. Both end by themselves.
    let later = respond(&server, Method::GET, &watch, Body::empty()).await.into_body();
    for body in [running, later] {
        let events = body.collect().await.unwrap().to_bytes();
        let events: Vec<Value> =
            serde_json::Deserializer::from_slice(&events).into_iter().map(Result::unwrap).collect();
        let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["ADDED", "ERROR"]);
        assert_eq!(events[1]["object"]["message"], WHY);
        assert_eq!(events[1]["object"]["code"], 500);
    }
}
