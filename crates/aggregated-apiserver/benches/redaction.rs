//! The cost of omitted fields: a list of a thousand computed objects, for a reader with the permission for all fields
//! and for a reader without it.
//!
//! `cargo bench -p aggregated-apiserver --bench redaction`.

#![allow(clippy::unwrap_used, missing_docs)] // a benchmark is a test, and its macros document nothing

use aggregated_apiserver::{ApiServer, Computed, FieldPermissions, InProcess, Kinds, Lookup, User};
use axum::body::Body;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::CustomResource;
use kube::api::PartialObjectMeta;
use mimalloc::MiMalloc;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use test_server::FakeCluster;
use tokio::runtime::{Builder, Runtime};

/// As in the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const SIGHTS: &str = "/apis/example.com/v1/namespaces/n/sights";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// About as much as a farm pod says.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Sight",
    namespaced,
    selectable = ".spec.secret",
    printcolumn(name = "Secret", type_ = "string", json_path = ".spec.secret")
)]
struct SightSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    facts: BTreeMap<String, String>,
}

impl Computed for Sight {
    type Source = ConfigMap;
    type Related = Lookup<PartialObjectMeta<Secret>>;

    fn compute(source: &ConfigMap, secrets: &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let secret = secrets.get(source.metadata.namespace.as_deref(), name);
        let secret = secret.and_then(|secret| secret.metadata.uid.clone());
        let fact = |number: usize| (format!("fact-{number}"), "what is so, in a word".to_owned());
        Some(Self::new(name, SightSpec { secret, facts: (0..30).map(fact).collect() }))
    }

    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new().protects_in_namespace::<PartialObjectMeta<Secret>>(["spec.secret"])
    }
}

struct World {
    runtime: Runtime,
    server: InProcess,
}

impl World {
    fn new() -> Self {
        let object = |number: usize| {
            let name = format!("name-{number:04}");
            let metadata =
                json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"});
            json!({"metadata": metadata})
        };
        let objects: Vec<Value> = (0..1_000).map(object).collect();
        let cluster = FakeCluster::default();
        cluster.set("/api/v1/configmaps", objects.clone());
        cluster.set("/api/v1/secrets", objects);
        cluster.authorize_by(|spec| {
            let is_secret = spec["resourceAttributes"]["resource"] == "secrets";
            Some(!is_secret || spec["user"] == "all")
        });
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(async {
            let server = ApiServer::new("sights", Kinds::new().computed::<Sight>());
            let server = server.in_process(cluster.client()).await.unwrap();
            server.wait_synced().await;
            server
        });
        Self { runtime, server }
    }

    fn get(&self, user: &str, path: &str, accept: &str) -> usize {
        self.runtime.block_on(async {
            let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
            let user = User { name: user.to_owned(), ..User::default() };
            let response = self.server.respond(user, request).await;
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.unwrap().to_bytes().len()
        })
    }
}

fn lists(criterion: &mut Criterion) {
    let world = World::new();
    let mut group = criterion.benchmark_group("list_of_1000");
    group.throughput(Throughput::Elements(1_000));
    let selected = format!("{SIGHTS}?fieldSelector=spec.secret!=x");
    for (form, path, accept) in [
        ("objects", SIGHTS, "application/json"),
        ("table", SIGHTS, TABLE),
        ("selected", &selected, "application/json"),
    ] {
        for user in ["all", "some"] {
            let id = BenchmarkId::new(form, user);
            group.bench_function(id, |bencher| bencher.iter(|| world.get(user, path, accept)));
        }
    }
    group.finish();
}

criterion_group!(benches, lists);
criterion_main!(benches);
