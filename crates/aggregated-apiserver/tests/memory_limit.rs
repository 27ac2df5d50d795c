//! A server in a container whose memory limit is lower than the sum of all limits: the memory budgets are smaller, and
//! the largest request of one client still fits.

#![allow(clippy::unwrap_used)] // all of it is a test

use aggregated_apiserver::{InProcess, Kinds};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use test_server::{api_server, permissive_cluster, user};

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
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {text: {type: string}}}}
";
const MIB: usize = 1 << 20;
/// Almost the maximum size of a stored object, in bytes.
const LARGEST: usize = 3 * MIB / 2 - 1_000;

async fn server(memory_limit: Option<usize>) -> InProcess {
    let server = api_server(Kinds::new().crds_from_yaml(DEFINITION).unwrap());
    let server = match memory_limit {
        Some(bytes) => server.with_memory_limit(bytes),
        None => server,
    };
    server.in_process(permissive_cluster()).await.unwrap()
}

async fn ask(
    server: &InProcess,
    method: &str,
    path: &str,
    language: &str,
    body: String,
) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).header("content-type", language);
    let response = server.respond(user("jane"), request.body(Body::from(body)).unwrap()).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn foos(namespace: usize) -> String {
    format!("/apis/example.com/v1/namespaces/n{namespace}/foos")
}

fn foo(size: usize) -> String {
    let text = "x".repeat(size);
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"generateName":"a"}},"spec":{{"text":"{text}"}}}}"#
    )
}

/// Creates objects, two in a namespace, until one is rejected. Returns the number of stored bytes and the error
/// message.
async fn fill(server: &InProcess, most: usize) -> (usize, Option<String>) {
    let mut taken = 0;
    for number in 0.. {
        if taken >= most {
            break;
        }
        let body = foo(LARGEST - 2_000);
        let (status, said) = ask(server, "POST", &foos(number / 2), "application/json", body).await;
        if status != StatusCode::CREATED {
            return (taken, Some(said));
        }
        taken += LARGEST;
    }
    (taken, None)
}

#[tokio::test]
async fn the_store_is_smaller_only_in_a_small_container() {
    let (taken, said) = fill(&server(Some(256 * MIB)).await, 32 * MIB).await;
    assert!((16 * MIB..=28 * MIB).contains(&taken), "{taken}");
    assert!(said.as_ref().is_some_and(|said| said.contains("the store is full")), "{said:?}");
    for limit in [None, Some(1_024 * MIB), Some(64 << 30)] {
        let (taken, said) = fill(&server(limit).await, 32 * MIB).await;
        assert!(taken >= 32 * MIB, "{limit:?}: {said:?}");
    }
}

#[tokio::test]
async fn the_largest_requests_of_one_client_fit_the_smallest_container() {
    let server = server(Some(256 * MIB)).await;
    let (status, said) =
        ask(&server, "POST", &foos(0), "application/json", foo(LARGEST - 2_000)).await;
    assert_eq!(status, StatusCode::CREATED, "{said}");
    let created: serde_json::Value = serde_json::from_str(&said).unwrap();
    let path = format!("{}/{}", foos(0), created["metadata"]["name"].as_str().unwrap());
    // A patch of 3 MiB, most of which is not stored.
    let (kept, dropped) = ("y".repeat(LARGEST - 2_000), "z".repeat(3 * MIB - LARGEST - 1_000));
    let patch = format!(r#"{{"spec":{{"text":"{kept}"}},"dropped":"{dropped}"}}"#);
    assert!((3 * MIB - 10_000..=3 * MIB).contains(&patch.len()));
    let (status, said) = ask(&server, "PATCH", &path, "application/merge-patch+json", patch).await;
    assert_eq!(status, StatusCode::OK, "{said:.500}");
    let (status, said) = ask(&server, "GET", &path, "", String::new()).await;
    assert!(status == StatusCode::OK && said.len() > LARGEST - 2_000);
    // YAML needs memory for its parser too, and the list contains all created objects.
    let (status, said) = ask(&server, "POST", &foos(1), "application/yaml", foo(MIB)).await;
    assert_eq!(status, StatusCode::CREATED, "{said:.500}");
    let everywhere = "/apis/example.com/v1/foos";
    let (status, said) = ask(&server, "GET", everywhere, "", String::new()).await;
    assert!(status == StatusCode::OK && said.len() > LARGEST + MIB - 2_000);
    // An object tree that uses 16 MiB of memory, from a body of few bytes.
    let many = vec!["{}"; 49_000].join(",");
    let tree = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"b"}},"many":[{many}]}}"#
    );
    let (status, said) = ask(&server, "POST", &foos(1), "application/json", tree).await;
    assert_eq!(status, StatusCode::CREATED, "{said:.500}");
}
