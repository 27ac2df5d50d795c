//! Several groups, and several versions of a kind, in one server.

#![allow(clippy::unwrap_used)] // all of it is a test

use aggregated_apiserver::InProcess;
use http::StatusCode;
use serde_json::{Value, json};
use test_server::ask;

const DEFINITIONS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: larks.birds.example.com}
spec:
  group: birds.example.com
  scope: Namespaced
  names: {plural: larks, kind: Lark}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: larks.songs.example.com}
spec:
  group: songs.example.com
  scope: Cluster
  names: {plural: larks, kind: Lark}
  versions:
  - {name: v2alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

async fn get(server: &InProcess, path: &str) -> Value {
    let (status, body) = ask(server, "GET", path, &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    body
}

#[tokio::test]
async fn each_group_version_has_its_own_discovery_and_openapi_documents() {
    let server = test_server::server(DEFINITIONS).await;
    let groups = get(&server, "/apis").await;
    let names: Vec<&str> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["preferredVersion"]["groupVersion"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["birds.example.com/v1", "songs.example.com/v2alpha1"]);
    let birds = get(&server, "/apis/birds.example.com").await;
    assert_eq!(birds["versions"].as_array().unwrap().len(), 2);
    for (version, namespaced) in [
        ("birds.example.com/v1", true),
        ("birds.example.com/v1beta1", true),
        ("songs.example.com/v2alpha1", false),
    ] {
        let list = get(&server, &format!("/apis/{version}")).await;
        assert_eq!(list["groupVersion"], version);
        assert_eq!(list["resources"].as_array().unwrap().len(), 1);
        assert_eq!(list["resources"][0]["namespaced"], namespaced);
        let index = get(&server, "/openapi/v3").await;
        let url = index["paths"][format!("apis/{version}")]["serverRelativeURL"].clone();
        let document = get(&server, url.as_str().unwrap()).await;
        let prefix = format!("/apis/{version}/");
        assert!(
            document["paths"].as_object().unwrap().keys().all(|path| path.starts_with(&prefix))
        );
    }
    let v2 = get(&server, "/openapi/v2").await;
    for name in ["com.example.birds.v1.Lark", "com.example.songs.v2alpha1.Lark"] {
        assert!(v2["definitions"][name].is_object(), "{name}");
    }
    assert_eq!(ask(&server, "GET", "/apis/birds.example.com/v2alpha1", &Value::Null).await.0, 404);
}

#[tokio::test]
async fn the_same_plural_in_two_groups_is_two_kinds() {
    let server = test_server::server(DEFINITIONS).await;
    let birds = "/apis/birds.example.com/v1/namespaces/n/larks";
    let songs = "/apis/songs.example.com/v2alpha1/larks";
    for (path, version) in [(birds, "birds.example.com/v1"), (songs, "songs.example.com/v2alpha1")]
    {
        let lark = json!({"apiVersion": version, "kind": "Lark", "metadata": {"name": "a"}});
        assert_eq!(ask(&server, "POST", path, &lark).await.0, StatusCode::CREATED);
        let list = get(&server, path).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        assert_eq!(list["items"][0]["apiVersion"], version);
    }
    let (status, _) = ask(&server, "DELETE", &format!("{birds}/a"), &Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(get(&server, songs).await["items"].as_array().unwrap().len(), 1);
    // The same object in the other version.
    let lark =
        json!({"apiVersion": "birds.example.com/v1", "kind": "Lark", "metadata": {"name": "b"}});
    ask(&server, "POST", birds, &lark).await;
    let older = get(&server, "/apis/birds.example.com/v1beta1/namespaces/n/larks/b").await;
    assert_eq!(older["apiVersion"], "birds.example.com/v1beta1");
}
