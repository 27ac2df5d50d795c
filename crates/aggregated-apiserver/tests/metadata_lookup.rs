//! Lookups of objects of any kind by references: the requests to the cluster, and the objects that are shown meanwhile.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::time::Duration;

use aggregated_apiserver::computed::MetadataLookup;
use aggregated_apiserver::{ApiServer, Computed, InProcess, Kinds};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use kube::api::PartialObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_server::FakeCluster;
use tokio::time::Instant;

const CONFIG_MAPS: &str = "/api/v1/configmaps";
const OWNED: &str = "/apis/example.com/v1/owneds";
const FARMS: &str = "/apis/farms.io/v1/farms";
const OLD_FARMS: &str = "/apis/farms.io/v1beta1/farms";
const LANDS: &str = "/apis/farms.io/v1/lands";

/// The team label of a ConfigMap's owner.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Owned", namespaced)]
struct OwnedSpec {
    team: Option<String>,
}

impl Computed for Owned {
    type Source = PartialObjectMeta<ConfigMap>;
    type Related = MetadataLookup<PartialObjectMeta<ConfigMap>>;

    fn compute(source: &Self::Source, owners: &Self::Related) -> Option<Self> {
        let metadata = &source.metadata;
        let owner = metadata.owner_references.as_ref().and_then(|owners| owners.first());
        let owner = owner.and_then(|owner| {
            let namespace = metadata.namespace.as_deref();
            owners.get(&owner.api_version, &owner.kind, namespace, &owner.name)
        });
        let labels = owner.and_then(|owner| owner.metadata.labels.clone());
        let team = labels.and_then(|mut labels| labels.remove("team"));
        Some(Self::new(metadata.name.as_deref()?, OwnedSpec { team }))
    }
}

/// A ConfigMap whose owner has the name `top`.
fn owned(name: &str, api_version: &str, kind: &str) -> Value {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "top", "uid": "u"});
    json!({"metadata": {
        "namespace": "n", "name": name, "uid": name, "resourceVersion": "1", "ownerReferences": [owner],
    }})
}

fn top(namespace: Option<&str>, team: &str) -> Value {
    let mut top =
        json!({"metadata": {"name": "top", "resourceVersion": "2", "labels": {"team": team}}});
    if let Some(namespace) = namespace {
        top["metadata"]["namespace"] = namespace.into();
    }
    top
}

/// Serves Farms, which are namespaced and have two versions, and Lands, which are cluster-scoped.
fn serve_farms(cluster: &FakeCluster) {
    let versions = json!([{"groupVersion": "farms.io/v1"}, {"groupVersion": "farms.io/v1beta1"}]);
    cluster.set_document("/apis", json!({"groups": [{"name": "farms.io", "versions": versions}]}));
    let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "kind": kind, "namespaced": namespaced, "verbs": ["get", "list", "watch"]});
    let status = json!({"name": "farms/status", "kind": "Farm", "namespaced": true, "verbs": ["get", "list", "watch"]});
    let unwatched =
        json!({"name": "silos", "kind": "Silo", "namespaced": true, "verbs": ["create"]});
    let farms = resource("farms", "Farm", true);
    let lands = resource("lands", "Land", false);
    let resources = json!([status, farms, lands, unwatched]);
    cluster.set_document("/apis/farms.io/v1", json!({"resources": resources}));
    cluster.set_document("/apis/farms.io/v1beta1", json!({"resources": [farms]}));
    cluster.set_document("/api/v1", json!({"resources": []}));
    cluster.set(FARMS, vec![top(Some("n"), "red"), top(Some("m"), "other")]);
    cluster.set(OLD_FARMS, vec![top(Some("n"), "old red")]);
    cluster.set(LANDS, vec![top(None, "green")]);
}

fn cluster(config_maps: Vec<Value>) -> FakeCluster {
    let cluster = FakeCluster::default();
    cluster.set(CONFIG_MAPS, config_maps);
    cluster
}

async fn serve(cluster: &FakeCluster) -> InProcess {
    let kinds = Kinds::new().computed::<Owned>();
    ApiServer::new("views", kinds).in_process(cluster.client()).await.unwrap()
}

async fn ask(server: &InProcess, path: &str) -> (StatusCode, usize, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = server.respond(test_server::admin(), request).await;
    let (status, warnings) =
        (response.status(), response.headers().get_all("warning").iter().count());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, warnings, String::from_utf8(body.to_vec()).unwrap())
}

/// Polls until the list has these teams, in the order of names. Returns the elapsed time. No response has a warning.
async fn wait_for(server: &InProcess, expected: &[Option<&str>]) -> Duration {
    let began = Instant::now();
    let mut last = String::new();
    for _ in 0..2_000 {
        let (status, warnings, body) = ask(server, OWNED).await;
        assert_eq!(warnings, 0);
        if status == StatusCode::OK {
            let list: Value = serde_json::from_str(&body).unwrap();
            let items = list["items"].as_array().unwrap();
            let teams: Vec<_> = items.iter().map(|item| item["spec"]["team"].as_str()).collect();
            if teams == expected {
                return began.elapsed();
            }
        }
        last = body;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("it does not become {expected:?}: {last}");
}

fn count(cluster: &FakeCluster, request: &str) -> usize {
    cluster.requests().iter().filter(|one| *one == request).count()
}

#[tokio::test(start_paused = true)]
async fn owners_of_each_scope_and_version_are_looked_up_and_watched() {
    let cluster = cluster(vec![
        owned("a", "farms.io/v1", "Farm"),
        owned("b", "farms.io/v1beta1", "Farm"),
        owned("c", "farms.io/v1", "Land"),
        owned("d", "farms.io/v1", "Silo"),
        owned("e", "not/a/version", "Farm"),
    ]);
    serve_farms(&cluster);
    let server = serve(&cluster).await;
    let took = wait_for(&server, &[Some("red"), Some("old red"), Some("green"), None, None]).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    for path in [FARMS, OLD_FARMS, LANDS] {
        assert_eq!(count(&cluster, &format!("watchPartialObjectMetadata {path}")), 1, "{path}");
    }
    assert_eq!(count(&cluster, "list /apis"), 1);
    assert_eq!(count(&cluster, "list /apis/farms.io/v1"), 1);

    // A cluster-scoped owner can have dependents in any namespace.
    cluster.tell(LANDS, "MODIFIED", &top(None, "blue"));
    wait_for(&server, &[Some("red"), Some("old red"), Some("blue"), None, None]).await;
    cluster.tell(FARMS, "DELETED", &top(Some("n"), "red"));
    wait_for(&server, &[None, Some("old red"), Some("blue"), None, None]).await;
    cluster.tell(FARMS, "ADDED", &top(Some("n"), "pink"));
    wait_for(&server, &[Some("pink"), Some("old red"), Some("blue"), None, None]).await;
    let (_, _, metrics) = ask(&server, "/metrics").await;
    let line = "apiserver_computed_source_in_view{source=\"metadata-of-farms.farms.io\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_kind_installed_later_is_discovered() {
    let cluster = cluster(vec![owned("a", "farms.io/v1", "Farm")]);
    cluster.set_document("/apis", json!({"groups": []}));
    let server = serve(&cluster).await;
    // No request waits for the unknown kind.
    let took = wait_for(&server, &[None]).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    // Discovery of the unknown kind is seldom retried.
    let asked = count(&cluster, "list /apis");
    assert!((6..=16).contains(&asked), "{asked}");
    assert_eq!(count(&cluster, "list /apis/farms.io/v1"), 0, "no group says that it has that");
    serve_farms(&cluster);
    let took = wait_for(&server, &[Some("red")]).await;
    assert!(took <= Duration::from_secs(730), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn owners_appear_and_disappear_with_the_permission_to_read_them() {
    let cluster = cluster(vec![owned("a", "farms.io/v1", "Farm")]);
    serve_farms(&cluster);
    cluster.refuse(FARMS, StatusCode::FORBIDDEN);
    let server = serve(&cluster).await;
    wait_for(&server, &[None]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (_, _, metrics) = ask(&server, "/metrics").await;
    assert!(!metrics.contains("metadata-of"), "an alert would never end: {metrics}");
    assert_eq!(count(&cluster, &format!("watchPartialObjectMetadata {FARMS}")), 0);

    cluster.allow(FARMS);
    wait_for(&server, &[Some("red")]).await;
    // The owner is shown for another minute, and found again when the permission is restored.
    cluster.refuse(FARMS, StatusCode::FORBIDDEN);
    let took = wait_for(&server, &[None]).await;
    assert!(took >= Duration::from_secs(60), "{took:?}");
    cluster.allow(FARMS);
    wait_for(&server, &[Some("red")]).await;
}

#[tokio::test(start_paused = true)]
async fn thousands_of_unknown_owner_kinds_cause_few_requests() {
    let mut config_maps: Vec<Value> = (0..3_000)
        .map(|number| {
            let name = format!("a-{number}");
            match number % 2 {
                0 => owned(&name, &format!("g{number}.example.com/v1"), "Farm"),
                _ => owned(&name, "farms.io/v1", &format!("Farm{number}")),
            }
        })
        .collect();
    config_maps.push(owned("z", "farms.io/v1", "Farm"));
    let cluster = cluster(config_maps);
    serve_farms(&cluster);
    let server = serve(&cluster).await;
    let mut expected = vec![None; 3_000];
    expected.push(Some("red"));
    let took = wait_for(&server, &expected).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let requests = cluster.requests();
    assert!(requests.len() < 150, "{} requests in ten minutes", requests.len());
    assert!(!requests.iter().any(|request| request.contains("example.com")), "a made-up group");
    let (_, _, metrics) = ask(&server, "/metrics").await;
    assert_eq!(metrics.matches("source_in_view{source=\"metadata-of").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn unavailable_discovery_is_retried_at_most_every_ten_seconds() {
    let made_up = |number| owned(&format!("a-{number}"), &format!("g{number}.example.com/v1"), "X");
    let cluster = cluster((0..1_000).map(made_up).collect());
    serve_farms(&cluster);
    cluster.refuse("/apis", StatusCode::SERVICE_UNAVAILABLE);
    let server = serve(&cluster).await;
    wait_for(&server, &[None; 1_000]).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let asked = count(&cluster, "list /apis");
    assert!((1..=31).contains(&asked), "{asked} times in rounds that are ten seconds apart");
    // A kind that becomes available later is found.
    cluster.allow("/apis");
    cluster.tell(CONFIG_MAPS, "ADDED", &owned("z", "farms.io/v1", "Farm"));
    let mut expected = vec![None; 1_000];
    expected.push(Some("red"));
    wait_for(&server, &expected).await;
}

/// More kinds than the limit of watched kinds, all of which can be read.
#[tokio::test(start_paused = true)]
async fn only_so_many_kinds_are_watched() {
    let kinds: Vec<usize> = (10..50).collect();
    let config_map =
        |number: &usize| owned(&format!("a-{number}"), "farms.io/v1", &format!("Farm{number}"));
    let cluster = cluster(kinds.iter().map(config_map).collect());
    serve_farms(&cluster);
    let resource = |number: &usize| {
        let path = format!("/apis/farms.io/v1/farms{number}");
        cluster.set(&path, vec![top(Some("n"), "red")]);
        json!({"name": format!("farms{number}"), "kind": format!("Farm{number}"), "namespaced": true, "verbs": ["list", "watch"]})
    };
    let resources: Vec<Value> = kinds.iter().map(resource).collect();
    cluster.set_document("/apis/farms.io/v1", json!({"resources": resources}));
    let server = serve(&cluster).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let (status, warnings, body) = ask(&server, OWNED).await;
    assert_eq!((status, warnings), (StatusCode::OK, 0));
    assert_eq!(body.matches("\"red\"").count(), 32, "{body}");
    let watches = |number: &usize| cluster.watches(&format!("/apis/farms.io/v1/farms{number}"));
    assert_eq!(kinds.iter().map(watches).sum::<usize>(), 32);
    // When no object refers to those kinds any more, the other kinds are watched.
    let watched: Vec<&usize> = kinds.iter().filter(|number| watches(number) == 1).collect();
    for number in &watched {
        cluster.tell(CONFIG_MAPS, "DELETED", &config_map(number));
    }
    wait_for(&server, &[Some("red"); 8]).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(watched.iter().map(|number| watches(number)).sum::<usize>(), 0, "forgotten");
}
