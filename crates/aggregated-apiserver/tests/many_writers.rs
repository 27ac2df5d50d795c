//! Many concurrent writers, readers and watches. No write is lost, every later read sees every acknowledged write, and
//! watches receive events in the order of revisions.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aggregated_apiserver::InProcess;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use test_server::{Events, admin, request, send};

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
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
";
const FOOS: &str = "/apis/example.com/v1/namespaces/n/foos";
const WRITERS: usize = 8;
const WRITES: usize = 40;

#[derive(Clone)]
struct Server(Arc<InProcess>);

impl Server {
    async fn start() -> Self {
        Self(Arc::new(test_server::server(DEFINITION).await))
    }

    async fn watch(&self, from: u64) -> Events {
        let path = format!("{FOOS}?watch=true&resourceVersion={from}");
        let request = request("GET", &path, "", &Value::Null);
        Events::of(self.0.respond(admin(), request).await.into_body())
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        test_server::ask(&self.0, method, path, body).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, object) = self.ask(Method::GET, path, &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{object}");
        object
    }

    async fn create(&self, name: &str) {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}, "count": 0,
        });
        let (status, answer) = self.ask(Method::POST, FOOS, &object).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_with_a_resource_version_lose_no_write() {
    let server = Server::start().await;
    server.create("a").await;
    let conflicts = Arc::new(AtomicUsize::new(0));
    let writers = (0..WRITERS).map(|_| {
        let (server, conflicts) = (server.clone(), Arc::clone(&conflicts));
        tokio::spawn(async move {
            let path = format!("{FOOS}/a");
            let mut left = WRITES;
            while left > 0 {
                let mut object = server.get(&path).await;
                object["count"] = (object["count"].as_u64().unwrap() + 1).into();
                match server.ask(Method::PUT, &path, &object).await {
                    (StatusCode::OK, written) => {
                        left -= 1;
                        // Every later read sees an acknowledged write.
                        let read = server.get(&path).await;
                        assert!(revision(&read) >= revision(&written));
                        assert!(read["count"].as_u64() >= written["count"].as_u64());
                    }
                    (StatusCode::CONFLICT, _) => {
                        conflicts.fetch_add(1, Ordering::Relaxed);
                    }
                    other => panic!("{other:?}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let object = server.get(&format!("{FOOS}/a")).await;
    assert_eq!(object["count"], WRITERS * WRITES, "{conflicts:?} conflicts");
    assert_eq!(object["metadata"]["generation"], WRITERS * WRITES + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_patches_of_different_fields_are_all_stored() {
    let server = Server::start().await;
    server.create("a").await;
    let from = revision(&server.get(FOOS).await);
    let mut watch = server.watch(from).await;
    let writers = (0..WRITERS).map(|writer| {
        let server = server.clone();
        tokio::spawn(async move {
            for number in 0..WRITES {
                // Half of the writers write the status.
                let (path, patch) = if writer % 2 == 0 {
                    (format!("{FOOS}/a"), json!({"spec": {format!("w{writer}"): number}}))
                } else {
                    let status = json!({"status": {format!("w{writer}"): number}});
                    (format!("{FOOS}/a/status"), status)
                };
                let (status, answer) = server.ask(Method::PATCH, &path, &patch).await;
                assert_eq!(status, StatusCode::OK, "{answer}");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let object = server.get(&format!("{FOOS}/a")).await;
    for writer in 0..WRITERS {
        let part = if writer % 2 == 0 { "spec" } else { "status" };
        assert_eq!(object[part][format!("w{writer}")], WRITES - 1, "{object}");
    }
    assert_eq!(object["metadata"]["generation"], 1 + (WRITERS / 2) * WRITES);
    // The watch has sent each change once, in the order of revisions.
    let mut last = from;
    for _ in 0..WRITERS * WRITES {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "MODIFIED", "{event}");
        assert!(revision(&event["object"]) > last);
        last = revision(&event["object"]);
    }
    assert_eq!(last, revision(&object));
}

/// Workers create, hold, release and remove the same few objects. In the end, a client that follows the watch has the
/// existing objects.
#[tokio::test(flavor = "multi_thread")]
async fn applying_all_watch_events_yields_the_listed_objects() {
    let server = Server::start().await;
    let from = revision(&server.get(FOOS).await);
    let mut watch = server.watch(from).await;
    let workers = (0..WRITERS).map(|worker| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(worker as u64);
            for _ in 0..WRITES {
                let path = format!("{FOOS}/f{}", rng.u32(..3));
                let name = path.rsplit('/').next().unwrap();
                let (method, path, body) = match rng.u32(..5) {
                    0 | 1 => {
                        let object = json!({
                            "apiVersion": "example.com/v1", "kind": "Foo",
                            "metadata": {"name": name, "finalizers": ["x/hold"]},
                        });
                        (Method::POST, FOOS, object)
                    }
                    2 => (Method::DELETE, path.as_str(), Value::Null),
                    3 => {
                        let release = json!({"metadata": {"finalizers": null}});
                        (Method::PATCH, path.as_str(), release)
                    }
                    _ => (Method::PATCH, path.as_str(), json!({"count": rng.u32(..9)})),
                };
                let (status, answer) = server.ask(method, path, &body).await;
                assert!(!status.is_server_error(), "{answer}");
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    // The last change, which tells the reader to stop.
    server.create("last").await;
    let list = server.get(FOOS).await;
    let mut followed: BTreeMap<String, Value> = BTreeMap::new();
    while !followed.contains_key("last") {
        let event = watch.next().await.unwrap();
        let object = event["object"].clone();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let known = match event["type"].as_str().unwrap() {
            "ADDED" => followed.insert(name, object).is_none(),
            "MODIFIED" => followed.insert(name, object).is_some(),
            "DELETED" => followed.remove(&name).is_some(),
            other => panic!("{other}"),
        };
        assert!(known, "{event}");
    }
    let there: Vec<&Value> = followed.values().collect();
    let listed: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
    assert_eq!(there, listed);
}

/// Every object that fits can be marked for deletion, and can be deleted.
#[tokio::test]
async fn an_object_of_maximum_size_can_be_deleted() {
    let server = Server::start().await;
    let object = |length: usize| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"},
            "text": "x".repeat(length),
        })
    };
    // The maximum size of an object, exact to the byte.
    let mut length = (3 << 19) - 180;
    let created = loop {
        let (status, answer) = server.ask(Method::POST, FOOS, &object(length)).await;
        if status == StatusCode::CREATED {
            break answer;
        }
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
        length -= 1;
    };
    assert_eq!(created["text"].as_str().unwrap().len(), length);
    let path = format!("{FOOS}/a");
    let foreground = json!({"propagationPolicy": "Foreground"});
    let (status, marked) = server.ask(Method::DELETE, &path, &foreground).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    // The object can keep its size, but cannot grow.
    let grow = json!({"metadata": {"labels": {"app": "x"}}});
    let (status, _) = server.ask(Method::PATCH, &path, &grow).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let release = json!({"metadata": {"finalizers": null}});
    let (status, answer) = server.ask(Method::PATCH, &path, &release).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(server.ask(Method::GET, &path, &Value::Null).await.0, StatusCode::NOT_FOUND);
}

/// The result of a patch can be read again, and is no larger than an object that could be sent.
#[tokio::test]
async fn patches_cannot_exceed_the_depth_and_value_limits() {
    let server = Server::start().await;
    server.create("a").await;
    let path = format!("{FOOS}/a");
    let patch = |operations: Value| {
        let (server, path) = (server.clone(), path.clone());
        async move {
            let request = request("PATCH", &path, "application/json-patch+json", &operations);
            send(&server.0, admin(), request).await.status()
        }
    };
    for depth in 1..130_usize {
        let at = "/d".repeat(depth);
        let status = patch(json!([{"op": "add", "path": at, "value": {}}])).await;
        let expected = if depth < 127 { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        assert_eq!(status, expected, "{depth}");
    }
    let (status, _) = server.ask(Method::GET, &path, &Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let items = json!([{"op": "add", "path": "/a", "value": vec![0; 30_000]}]);
    assert_eq!(patch(items).await, StatusCode::OK);
    let twice = json!([{"op": "copy", "from": "/a", "path": "/b"}]);
    assert_eq!(patch(twice).await, StatusCode::PAYLOAD_TOO_LARGE);
}
