//! The cost of field ownership: writes of an object with stored managers, writes of the same object without them, and
//! applies.
//!
//! `cargo bench -p aggregated-apiserver --bench managed_fields`; `docs/explanation/performance.md` has figures.

#![allow(clippy::unwrap_used, missing_docs)] // a benchmark is a test, and its macros document nothing

use std::cell::Cell;

use aggregated_apiserver::{InProcess, Kinds};
use axum::body::Body;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use http::Request;
use http_body_util::BodyExt;
use mimalloc::MiMalloc;
use test_server::{admin, api_server, unreachable_cluster};
use tokio::runtime::{Builder, Runtime};

/// As in the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer}
              containers:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    image: {type: string}
                    args: {type: array, items: {type: string}}
                    ports:
                      type: array
                      x-kubernetes-list-type: map
                      x-kubernetes-list-map-keys: [port, protocol]
                      items:
                        type: object
                        required: [port]
                        properties:
                          port: {type: integer}
                          protocol: {type: string, default: TCP}
                    env:
                      type: array
                      x-kubernetes-list-type: map
                      x-kubernetes-list-map-keys: [name]
                      items:
                        type: object
                        required: [name]
                        properties: {name: {type: string}, value: {type: string}}
";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

struct World {
    runtime: Runtime,
    server: InProcess,
    number: Cell<u32>,
}

impl World {
    fn new(drops: bool) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let server = api_server(Kinds::new().crds_from_yaml(DEFINITION).unwrap());
        let server = if drops { server.without_managed_fields() } else { server };
        let server = runtime.block_on(async { server.in_process(unreachable_cluster()).await });
        Self { runtime, server: server.unwrap(), number: Cell::new(0) }
    }

    /// Answers with what is answered.
    fn ask(&self, method: &str, path: &str, language: &str, body: String) -> String {
        let request = Request::builder().method(method).uri(path).header("content-type", language);
        let request = request.body(Body::from(body)).unwrap();
        self.runtime.block_on(async {
            let response = self.server.respond(admin(), request).await;
            assert!(response.status().is_success(), "{method} {path}: {}", response.status());
            let answer = response.into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(answer.into()).unwrap()
        })
    }

    fn next(&self) -> u32 {
        self.number.replace(self.number.get() + 1)
    }
}

/// An object of so many containers: 3 of them are 1.6 kB.
fn object(containers: usize, replicas: u32) -> String {
    let text = "x".repeat(80);
    let containers = (0..containers).map(|number| {
        format!(
            r#"{{"name":"c{number}","image":"registry.example.com/some/where/c{number}:1.{number}","args":["--a={text}","--b={text}"],"ports":[{{"port":80}},{{"port":443}}],"env":[{{"name":"A","value":"{text}"}},{{"name":"B","value":"{number}"}}]}}"#
        )
    });
    let containers: Vec<String> = containers.collect();
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"a","labels":{{"app":"web"}}}},"spec":{{"replicas":{replicas},"containers":[{}]}}}}"#,
        containers.join(",")
    )
}

/// Each way of writing, with managers and without.
fn writes(criterion: &mut Criterion) {
    let one = format!("{FOOS}/a");
    for containers in [3, 100] {
        let mut group = criterion.benchmark_group(format!("{containers} containers"));
        for (managers, drops) in [("kept", false), ("dropped", true)] {
            let world = World::new(drops);
            world.ask(
                "POST",
                &format!("{FOOS}?fieldManager=me"),
                "application/json",
                object(containers, 0),
            );
            let all = || object(containers, 0);
            group.bench_function(BenchmarkId::new("merge patch of nothing", managers), |bencher| {
                bencher.iter(|| world.ask("PATCH", &one, MERGE, all()));
            });
            group.bench_function(BenchmarkId::new("merge patch of a field", managers), |bencher| {
                let patch = || format!(r#"{{"spec":{{"replicas":{}}}}}"#, world.next());
                bencher.iter(|| world.ask("PATCH", &one, MERGE, patch()));
            });
            group.bench_function(BenchmarkId::new("merge patch of all", managers), |bencher| {
                bencher.iter(|| world.ask("PATCH", &one, MERGE, object(containers, world.next())));
            });
            // The sent object is the one that was read, with its managers.
            let mut read = world.ask("GET", &one, MERGE, String::new());
            group.bench_function(BenchmarkId::new("put of a field", managers), |bencher| {
                bencher.iter(|| {
                    let (before, after) = read.split_once("\"replicas\":").unwrap();
                    let (_, after) = after.split_once('}').unwrap();
                    let changed = format!("{before}\"replicas\":{}}}{after}", world.next());
                    read = world.ask("PUT", &one, "application/json", changed);
                });
            });
            group.bench_function(BenchmarkId::new("create and delete", managers), |bencher| {
                bencher.iter(|| {
                    let object = all().replace(r#""name":"a","labels""#, r#""name":"b","labels""#);
                    world.ask("POST", FOOS, "application/json", object);
                    world.ask("DELETE", &format!("{FOOS}/b"), "application/json", String::new());
                });
            });
        }
        let world = World::new(false);
        let path = format!("{one}?fieldManager=me&force=true");
        world.ask("PATCH", &path, APPLY, object(containers, 0));
        group.bench_function("apply of nothing", |bencher| {
            bencher.iter(|| world.ask("PATCH", &path, APPLY, object(containers, 0)));
        });
        group.bench_function("apply of a field", |bencher| {
            bencher.iter(|| world.ask("PATCH", &path, APPLY, object(containers, world.next())));
        });
        let other = format!("{one}?fieldManager=other&force=true");
        group.bench_function("apply of one field by another", |bencher| {
            let spec = || {
                format!(
                    r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"a"}},"spec":{{"replicas":{}}}}}"#,
                    world.next()
                )
            };
            bencher.iter(|| world.ask("PATCH", &other, APPLY, spec()));
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = writes
}
criterion_main!(benches);
