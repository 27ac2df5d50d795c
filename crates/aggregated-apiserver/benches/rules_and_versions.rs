//! The costs of CEL rules for a write, of conversion for a list, and of the most expensive rules for concurrent
//! requests.
//!
//! `cargo bench -p aggregated-apiserver --bench rules_and_versions`.

#![allow(clippy::unwrap_used, missing_docs)] // a benchmark is a test, and its macros document nothing

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aggregated_apiserver::versions::ConversionError;
use aggregated_apiserver::{Convert, InProcess, Kinds, Stored, Versions};
use axum::body::Body;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use mimalloc::MiMalloc;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

/// As in the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
/// Objects of a list.
const MANY: usize = 10_000;

/// Ten terms, all of which are looked at.
const TEN_TERMS: &str = "self.least <= self.count && self.count <= self.most \
     && self.colour in ['red', 'green', 'blue'] && size(self.text) > 1 && self.text != self.colour \
     && self.parts.all(p, p.port > 0) && self.parts.exists(p, p.name == 'part-1') \
     && self.name.startsWith('a') && !self.paused && self.labels['tier'] != 'none'";

mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
    pub(crate) struct FooSpec {
        pub(crate) colour: String,
        pub(crate) text: String,
        pub(crate) grams: i64,
        pub(crate) parts: Vec<String>,
    }
}

mod v1alpha {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1alpha", kind = "Foo", namespaced)]
    pub(crate) struct FooSpec {
        pub(crate) paint: String,
        pub(crate) text: String,
        pub(crate) kilograms: f64,
        pub(crate) parts: Vec<String>,
    }
}

impl Stored for v1::Foo {
    fn versions() -> Versions<Self> {
        Versions::new().storage_version::<v1alpha::Foo>()
    }
}

impl Convert<v1::Foo> for v1alpha::Foo {
    fn into_hub(self) -> Result<v1::Foo, ConversionError> {
        let Self { metadata, spec } = self;
        let v1alpha::FooSpec { paint: colour, text, kilograms, parts } = spec;
        let grams = (kilograms * 1_000.0) as i64;
        Ok(v1::Foo { metadata, spec: v1::FooSpec { colour, text, grams, parts } })
    }

    fn from_hub(hub: v1::Foo) -> Result<Self, ConversionError> {
        let v1::FooSpec { colour: paint, text, grams, parts } = hub.spec;
        let kilograms = grams as f64 / 1_000.0;
        let spec = v1alpha::FooSpec { paint, text, kilograms, parts };
        Ok(Self { metadata: hub.metadata, spec })
    }
}

struct World {
    runtime: Runtime,
    server: Arc<InProcess>,
}

impl World {
    /// A server of a definition whose spec has these properties and rules.
    fn of(spec: &serde_json::Value) -> Self {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }],
            },
        });
        // Of so many threads as the machine has cores, as the program.
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let server = runtime.block_on(test_server::server(&definition.to_string()));
        Self { runtime, server: Arc::new(server) }
    }

    fn ask(&self, method: &str, path: &str, body: String) -> usize {
        self.runtime.block_on(async {
            let (status, length) = ask(&self.server, method, path, body).await;
            assert!(status.is_success(), "{method} {path}: {status}");
            length
        })
    }
}

async fn ask(server: &InProcess, method: &str, path: &str, body: String) -> (StatusCode, usize) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from(body)).unwrap();
    let response = server.respond(test_server::admin(), request).await;
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes().len())
}

/// Creations of an object of 1.6 kB, without a rule, and with one of ten terms.
fn writes(criterion: &mut Criterion) {
    let text = json!({"type": "string", "maxLength": 2_000});
    let part = json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 63}, "port": {"type": "integer"}, "note": text,
    }});
    let mut spec = json!({"type": "object", "properties": {
        "least": {"type": "integer"}, "count": {"type": "integer"}, "most": {"type": "integer"},
        "colour": {"type": "string", "maxLength": 63}, "text": text, "name": text,
        "paused": {"type": "boolean"},
        "labels": {"type": "object", "maxProperties": 9, "additionalProperties": {"type": "string", "maxLength": 63}},
        "parts": {"type": "array", "maxItems": 9, "items": part},
    }});
    let note = "y".repeat(200);
    let parts: Vec<_> = (0..3)
        .map(|part| json!({"name": format!("part-{part}"), "port": 80 + part, "note": note}))
        .collect();
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"},
        "spec": {
            "least": 1, "count": 2, "most": 3, "colour": "red", "name": "abc", "paused": false,
            "labels": {"tier": "front", "app": "web"}, "parts": parts, "text": "x".repeat(630),
        },
    })
    .to_string();
    let rehearsal = format!("{FOOS}?dryRun=All");
    let mut group = criterion.benchmark_group("write of 1.6 kB");
    group.throughput(Throughput::Bytes(object.len() as u64));
    for (name, rules) in
        [("without rules", json!([])), ("a rule of ten terms", json!([{"rule": TEN_TERMS}]))]
    {
        spec["x-kubernetes-validations"] = rules;
        let world = World::of(&spec);
        group.bench_function(name, |bencher| {
            bencher.iter(|| world.ask("POST", &rehearsal, object.clone()));
        });
    }
    group.finish();
}

/// Lists of ten thousand objects, in the stored version and in another version.
fn lists(criterion: &mut Criterion) {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let server = test_server::server_of(Kinds::new().stored::<v1::Foo>());
    let world = World { server: Arc::new(runtime.block_on(server)), runtime };
    let kept = "/apis/example.com/v1alpha/namespaces/default/foos";
    for number in 0..MANY {
        let parts: Vec<String> = (0..10).map(|part| format!("part-{part}-{number}")).collect();
        let object = json!({
            "apiVersion": "example.com/v1alpha", "kind": "Foo",
            "metadata": {"name": format!("foo-{number:06}")},
            "spec": {"paint": "red", "text": "x".repeat(1_000), "kilograms": 1.5, "parts": parts},
        });
        world.ask("POST", kept, object.to_string());
    }
    let mut group = criterion.benchmark_group("list of 10000");
    group.sample_size(20).throughput(Throughput::Elements(MANY as u64));
    for (name, path) in [("as they are kept", kept), ("converted", FOOS)] {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| world.ask("GET", path, String::new()));
        });
    }
    group.finish();
}

/// An object that costs nearly all that its rules may, and reads beside writes of it.
fn dearest(criterion: &mut Criterion) {
    /// How many rules share what an object may cost, each as much as a call may.
    const RULES: usize = 10;
    /// How many numbers there may be, so that the definition is not refused.
    const MOST: usize = 900;
    let rule = json!({"rule": "self.all(x, self.all(y, x + y >= 0))"});
    let list = json!({
        "type": "array", "maxItems": MOST, "items": {"type": "integer"},
        "x-kubernetes-validations": vec![rule; RULES],
    });
    let world = World::of(&json!({"type": "object", "properties": {"list": list}}));
    let rehearsal = format!("{FOOS}?dryRun=All");
    let object = |items: usize| {
        let spec = json!({"list": vec![1; items]});
        let metadata = json!({"name": "a"});
        json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata, "spec": spec})
            .to_string()
    };
    let post = |items: usize| {
        world.runtime.block_on(ask(&world.server, "POST", &rehearsal, object(items))).0
    };
    // As many as are not refused.
    let (mut fits, mut too_many) = (1, MOST);
    while too_many - fits > 1 {
        let middle = usize::midpoint(fits, too_many);
        if post(middle).is_success() { fits = middle } else { too_many = middle }
    }
    let mut said = String::new();
    let mut group = criterion.benchmark_group("the dearest rules");
    group.sample_size(20);
    for (name, items) in [("that are kept", fits), ("that are refused", too_many)] {
        group.bench_function(name, |bencher| bencher.iter(|| post(items)));
        let _ = write!(said, "{name}: {items} items; ");
    }
    world.ask("POST", FOOS, object(1));
    let one = format!("{FOOS}/a");
    let get = |longest: &Cell<Duration>| {
        let start = Instant::now();
        world.ask("GET", &one, String::new());
        longest.set(longest.get().max(start.elapsed()));
    };
    for writers in [0, 1, 4] {
        let ended = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..writers)
            .map(|_| {
                let (server, ended) = (Arc::clone(&world.server), Arc::clone(&ended));
                let (path, body) = (rehearsal.clone(), object(fits));
                world.runtime.spawn(async move {
                    while !ended.load(Ordering::Relaxed) {
                        ask(&server, "POST", &path, body.clone()).await;
                    }
                })
            })
            .collect();
        let longest = Cell::new(Duration::ZERO);
        group.bench_function(BenchmarkId::new("GET beside writers", writers), |bencher| {
            bencher.iter(|| get(&longest));
        });
        ended.store(true, Ordering::Relaxed);
        for task in tasks {
            world.runtime.block_on(task).unwrap();
        }
        let _ = write!(said, "longest GET beside {writers} writers: {:?}; ", longest.get());
    }
    group.finish();
    println!("{said}");
}

criterion_group!(benches, writes, lists, dearest);
criterion_main!(benches);
