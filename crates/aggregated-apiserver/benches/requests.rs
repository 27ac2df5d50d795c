//! The cost of requests in the same process, without sockets, by the number of objects.
//!
//! `cargo bench -p aggregated-apiserver`; `docs/explanation/performance.md` has figures.

#![allow(clippy::unwrap_used, missing_docs)] // a benchmark is a test, and its macros document nothing

use std::cell::Cell;
use std::time::{Duration, Instant};

use aggregated_apiserver::InProcess;
use axum::body::Body;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::Request;
use http_body_util::BodyExt;
use mimalloc::MiMalloc;
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
    additionalPrinterColumns: [{name: Colour, type: string, jsonPath: .spec.colour}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {colour: {type: string}, text: {type: string}}
";
/// Everything that a schema can ask for, nearly.
const STRICT: &str = "
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
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name, image]
                  properties:
                    name: {type: string, maxLength: 63, pattern: '^[a-z]([-a-z0-9]*[a-z0-9])?$'}
                    image: {type: string, minLength: 1}
                    policy: {type: string, default: Always, enum: [Always, Never]}
                    count: {type: integer, format: int32, minimum: 0, default: 1}
                    address: {type: string, format: ipv4}
                    ports:
                      type: array
                      items:
                        type: object
                        properties:
                          port: {x-kubernetes-int-or-string: true}
                          protocol: {type: string, default: TCP}
";
const FEW: usize = 1_000;
const MANY: usize = 50_000;
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const BARS: &str = "/apis/example.com/v1/namespaces/default/bars";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

struct World {
    runtime: Runtime,
    server: InProcess,
}

impl World {
    fn of(definition: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(test_server::server(definition));
        Self { runtime, server }
    }

    /// A server with so many objects of 1 kB.
    fn with(objects: usize) -> Self {
        let world = Self::of(DEFINITION);
        for number in 0..objects {
            world.create(&format!("foo-{number:06}"));
        }
        world
    }

    /// Asks, and reads the answer; says how long it was.
    fn ask(&self, method: &str, path: &str, accept: &str, body: String) -> usize {
        let request = Request::builder().method(method).uri(path).header("accept", accept);
        let language = match method {
            "PATCH" if body.starts_with('[') => "application/json-patch+json",
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = request.header("content-type", language);
        let request = request.body(Body::from(body)).unwrap();
        self.runtime.block_on(async {
            let response = self.server.respond(test_server::admin(), request).await;
            assert!(response.status().is_success(), "{method} {path}: {}", response.status());
            response.into_body().collect().await.unwrap().to_bytes().len()
        })
    }

    fn get(&self, path: &str, accept: &str) -> usize {
        self.ask("GET", path, accept, String::new())
    }

    fn version(&self) -> String {
        self.version_of(&format!("{FOOS}?limit=1"))
    }

    fn version_of(&self, path: &str) -> String {
        let request = Request::get(path).body(Body::empty()).unwrap();
        self.runtime.block_on(async {
            let response = self.server.respond(test_server::admin(), request).await;
            let list = response.into_body().collect().await.unwrap().to_bytes();
            let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
            list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
        })
    }

    fn create(&self, name: &str) -> usize {
        self.ask("POST", FOOS, "application/json", object("Foo", name))
    }
}

/// An object of 1 kB.
fn object(kind: &str, name: &str) -> String {
    let text = "x".repeat(600);
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"{kind}","metadata":{{"name":"{name}","labels":{{"app":"web"}}}},"spec":{{"colour":"red","text":"{text}"}}}}"#
    )
}

/// GET, CREATE with DELETE, and a page, among few and among many.
fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("among");
    for objects in [FEW, MANY] {
        let world = World::with(objects);
        let middle = format!("{FOOS}/foo-{:06}", objects / 2);
        group.bench_function(BenchmarkId::new("get", objects), |bencher| {
            bencher.iter(|| world.get(&middle, "application/json"));
        });
        let number = Cell::new(0);
        group.bench_function(BenchmarkId::new("create and delete", objects), |bencher| {
            bencher.iter(|| {
                let name = format!("new-{}", number.replace(number.get() + 1));
                world.create(&name);
                world.ask("DELETE", &format!("{FOOS}/{name}"), "*/*", String::new())
            });
        });
        let page = format!("{FOOS}?limit=100");
        group.bench_function(BenchmarkId::new("page of 100", objects), |bencher| {
            bencher.iter(|| world.get(&page, "application/json"));
        });
    }
    group.finish();
}

/// Changes of an object of 1 kB, and what a schema asks of one of 10 kB.
fn writes(criterion: &mut Criterion) {
    let world = World::with(FEW);
    let one = format!("{FOOS}/foo-000500");
    let mut group = criterion.benchmark_group("write");
    let number = Cell::new(0);
    let next = || number.replace(number.get() + 1);
    group.bench_function("merge patch", |bencher| {
        bencher.iter(|| {
            let patch = format!(r#"{{"spec":{{"colour":"c{}"}}}}"#, next());
            world.ask("PATCH", &one, "application/json", patch)
        });
    });
    group.bench_function("JSON patch", |bencher| {
        bencher.iter(|| {
            let number = next();
            let patch =
                format!(r#"[{{"op":"replace","path":"/spec/colour","value":"c{number}"}}]"#);
            world.ask("PATCH", &one, "application/json", patch)
        });
    });
    // Each request has the resourceVersion of the previous response.
    let text = "x".repeat(600);
    let version = Cell::new(world.version_of(&one));
    group.bench_function("replace", |bencher| {
        bencher.iter(|| {
            let (number, last) = (next(), version.take());
            let object = format!(
                r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"foo-000500","resourceVersion":"{last}"}},"spec":{{"colour":"c{number}","text":"{text}"}}}}"#
            );
            world.ask("PUT", &one, "application/json", object);
            version.set(world.version_of(&one));
        });
    });
    let strict = World::of(STRICT);
    let parts: Vec<String> = (0..60)
        .map(|part| {
            format!(
                r#"{{"name":"part-{part}","image":"registry.example.com/some/where/part-{part}:1.{part}","address":"10.0.0.{part}","ports":[{{"port":80}},{{"port":"https"}}]}}"#
            )
        })
        .collect();
    let object = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"a"}},"spec":{{"parts":[{}]}}}}"#,
        parts.join(",")
    );
    group.throughput(Throughput::Bytes(object.len() as u64));
    group.bench_function("check and fill in 10 kB", |bencher| {
        let rehearsal = format!("{FOOS}?dryRun=All");
        bencher.iter(|| strict.ask("POST", &rehearsal, "application/json", object.clone()));
    });
    group.finish();
}

/// Lists of a thousand, in all their forms.
fn forms(criterion: &mut Criterion) {
    let world = World::with(FEW);
    let mut group = criterion.benchmark_group("list of 1000");
    group.throughput(Throughput::Elements(FEW as u64));
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let rows = [
        ("json", FOOS.to_owned(), "application/json"),
        ("metadata", FOOS.to_owned(), metadata),
        ("table", FOOS.to_owned(), TABLE),
        ("yaml", FOOS.to_owned(), "application/yaml"),
        ("label that all have", format!("{FOOS}?labelSelector=app%3Dweb"), "application/json"),
        ("label that none has", format!("{FOOS}?labelSelector=app%3Ddb"), "application/json"),
    ];
    for (name, path, accept) in &rows {
        group.bench_function(*name, |bencher| bencher.iter(|| world.get(path, accept)));
    }
    group.finish();
}

/// Lists whose objects were written under another definition than that of now.
fn generations(criterion: &mut Criterion) {
    let world = World::of(STRICT);
    let kinds = world.server.runtime_kinds();
    let serve = |default: &str| {
        let text = DEFINITION.replace("foos", "bars").replace("Foo", "Bar");
        let text =
            text.replace("text: {type: string}", &format!("text: {{type: string}}{default}"));
        let definition = serde_saphyr::from_str(&text).unwrap();
        world.runtime.block_on(kinds.serve(&definition)).unwrap();
    };
    serve("");
    for number in 0..FEW {
        let object = object("Bar", &format!("bar-{number:06}"));
        world.ask("POST", BARS, "application/json", object);
    }
    let mut group = criterion.benchmark_group("list of 1000 written");
    group.throughput(Throughput::Elements(FEW as u64));
    let list = || world.get(BARS, "application/json");
    group.bench_function("under this definition", |bencher| bencher.iter(list));
    let defaults = [", more: {type: string, default: a}", ", more: {type: string, default: b}"];
    serve(defaults[0]);
    let served = Cell::new(1);
    group.bench_function("under an older one", |bencher| bencher.iter(list));
    group.bench_function("under an older one, the first time", |bencher| {
        bencher.iter_custom(|times| {
            let mut taken = Duration::ZERO;
            for _ in 0..times {
                serve(defaults[served.replace(1 - served.get())]);
                let start = Instant::now();
                list();
                taken += start.elapsed();
            }
            taken
        });
    });
    group.finish();
}

/// One change, until a thousand watchers have received the event.
fn watchers(criterion: &mut Criterion) {
    const WATCHERS: usize = 1_000;
    let watch = |world: &World, query: &str, accept: &str| {
        let request = Request::get(format!("{FOOS}?watch=true{query}")).header("accept", accept);
        let request = request.body(Body::empty()).unwrap();
        let response = world.server.respond(test_server::admin(), request);
        world.runtime.block_on(response).into_body()
    };
    let mut group = criterion.benchmark_group("change for 1000 watchers");
    group.throughput(Throughput::Elements(WATCHERS as u64));
    let rows = [
        ("of everything", "", "application/json"),
        ("of what matches", "&labelSelector=app%3Dweb", "application/json"),
        ("as tables", "", TABLE),
        ("as metadata", "", METADATA),
    ];
    for (name, query, accept) in rows {
        // A world for each: what all of them make is too much for a namespace.
        let world = World::with(0);
        // From now on: without a version a watch begins with what there is.
        let query = format!("{query}&resourceVersion={}", world.version());
        let mut watches: Vec<Body> = (0..WATCHERS).map(|_| watch(&world, &query, accept)).collect();
        let number = Cell::new(0);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                world.create(&format!("w-{}", number.replace(number.get() + 1)));
                world.runtime.block_on(async {
                    for watch in &mut watches {
                        watch.frame().await.unwrap().unwrap();
                    }
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, growth, writes, forms, generations, watchers);
criterion_main!(benches);
