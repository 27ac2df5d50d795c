//! A server that does not store `metadata.managedFields`.

#![allow(clippy::unwrap_used)] // all of it is a test

use aggregated_apiserver::{InProcess, Kinds};
use http::StatusCode;
use serde_json::{Value, json};
use test_server::{admin, api_server, request, send, unreachable_cluster};

const DEFINITION: &str = "
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
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, properties: {size: {type: integer}}}
";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

async fn server() -> InProcess {
    let kinds = Kinds::new().crds_from_yaml(DEFINITION).unwrap();
    let server = api_server(kinds).without_managed_fields();
    server.in_process(unreachable_cluster()).await.unwrap()
}

async fn ask(
    server: &InProcess,
    (method, path, content_type): (&str, &str, &str),
    body: Value,
) -> (StatusCode, Value) {
    let response = send(server, admin(), request(method, path, content_type, &body)).await;
    (response.status(), response.into_body())
}

fn foo(size: i64) -> Value {
    let managed = json!([{"manager": "me", "operation": "Update", "apiVersion": "example.com/v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Foo",
        "metadata": {"name": "a", "managedFields": managed},
        "spec": {"size": size}
    })
}

#[tokio::test]
async fn no_write_stores_managed_fields_when_they_are_disabled() {
    let server = server().await;
    let (object, status, scale) =
        (format!("{FOOS}/a"), format!("{FOOS}/a/status"), format!("{FOOS}/a/scale"));
    let merge = "application/merge-patch+json";
    let json = "application/json";
    let (code, created) = ask(&server, ("POST", FOOS, json), foo(1)).await;
    assert!(code.is_success() && created["metadata"].get("managedFields").is_none(), "{created}");
    let mut put = foo(2);
    put["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    for (of, body) in [
        (("PUT", object.as_str(), json), put),
        (("PATCH", &object, merge), json!({"spec": {"size": 3}})),
        (("PATCH", &object, merge), json!({"metadata": foo(1)["metadata"]})),
        (("PATCH", &status, merge), json!({"status": {"size": 1}})),
        (("PATCH", &scale, merge), json!({"spec": {"replicas": 5}})),
    ] {
        let (code, answer) = ask(&server, of, body).await;
        assert!(code.is_success(), "{of:?}: {answer}");
        assert_eq!(answer["metadata"].get("managedFields"), None, "{of:?}");
    }
    let (_, kept) = ask(&server, ("GET", &object, json), Value::Null).await;
    assert_eq!((&kept["spec"]["size"], &kept["status"]["size"]), (&json!(5), &json!(1)));
    assert_eq!(kept["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn server_side_apply_is_rejected_when_managed_fields_are_disabled() {
    let server = server().await;
    let path = format!("{FOOS}/a?fieldManager=me");
    let of = ("PATCH", path.as_str(), "application/apply-patch+yaml");
    let (code, refused) = ask(&server, of, foo(1)).await;
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(
        refused["message"],
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json"
    );
}
