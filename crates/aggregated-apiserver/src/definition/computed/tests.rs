//! Tests of a computed kind through its watch cache.

mod completed;
mod completion_order;
mod measured;
mod model;
mod several;

use std::collections::HashSet;

use super::*;
use crate::cluster::{SourceInformer, SourceStreams, Sources};
use crate::definition::Lookup;
use crate::definition::lookup::{self, AnyLookup, LookupContext};
use crate::object::Object;
use crate::storage::RevisionSequencer;
use crate::watch_cache::{Scope, WINDOW_LIMIT};
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::CustomResource;
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// The data of a ConfigMap, joined with the Secret of the same name.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Joined", namespaced)]
struct JoinedSpec {
    value: String,
    has_secret: bool,
}

impl Computed for Joined {
    type Source = ConfigMap;
    type Related = (Lookup<Secret>,);

    fn compute(source: &ConfigMap, (secrets,): &Self::Related) -> Option<Self> {
        let data = source.data.clone().unwrap_or_default();
        let value = data.get("value")?.clone();
        assert_ne!(value, "panic");
        let name = source.metadata.name.as_deref()?;
        let has_secret = secrets.get(source.metadata.namespace.as_deref(), name).is_some();
        let name = data.get("name").map_or(name, String::as_str);
        let mut joined = Self::new(name, JoinedSpec { value, has_secret });
        joined.metadata.namespace = data.get("namespace").cloned();
        Some(joined)
    }

    /// The names `x` and `y` lead to the ConfigMap `a`. Any ConfigMap can choose its object's name in its data, but
    /// only `a` may choose `x` or `y`.
    fn source_name(name: &str) -> Option<String> {
        Some(if ["x", "y"].contains(&name) { "a" } else { name }.to_owned())
    }
}

fn key(name: &str) -> Key {
    Key::new(Some("default"), name)
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        uid: Some(format!("uid-{name}")),
        creation_timestamp: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            Timestamp::UNIX_EPOCH,
        )),
        ..ObjectMeta::default()
    }
}

fn config_map(name: &str, rows: &[(&str, &str)]) -> ConfigMap {
    let data = rows.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ConfigMap { metadata: metadata(name), data: Some(data.collect()), ..ConfigMap::default() }
}

struct Fixture {
    config_maps: Arc<SourceInformer<ConfigMap>>,
    secrets: Arc<SourceInformer<Secret>>,
    cache: Arc<WatchCache>,
    _running: tokio::task::JoinHandle<()>,
}

/// A client with requests that never complete.
fn unreachable_client() -> kube::Client {
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        std::future::pending::<()>().await;
        Ok::<_, std::convert::Infallible>(http::Response::new(axum::body::Body::empty()))
    });
    kube::Client::new(nobody, "default")
}

/// Runs the computation of one kind and updates its watch cache.
async fn run_one<C: Computed>(sources: Arc<Sources>, cache: Arc<WatchCache>) {
    run(<(Only<C>,)>::open(&sources, &cache, &C::field_permissions().in_namespace().into()), cache)
        .await;
}

/// A view over informers that the test fills itself; the client's requests never complete.
fn start() -> Fixture {
    start_of::<Joined>(SourceOptions::ALL)
}

/// The same for another kind, whose sources have these options.
fn start_of<C: Computed>(options: SourceOptions) -> Fixture {
    let cluster = crate::cluster::Cluster::new(unreachable_client());
    let sources = Arc::new(cluster.sources(SourceStreams::default()));
    let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
    let cache = Arc::new(WatchCache::new(sequencer, WINDOW_LIMIT));
    Fixture {
        config_maps: sources.open(options, ""),
        secrets: sources.open(SourceOptions::ALL, ""),
        cache: Arc::clone(&cache),
        _running: tokio::spawn(run_one::<C>(sources, cache)),
    }
}

impl Fixture {
    async fn synced(self) -> Self {
        self.config_maps.complete(&self.config_maps_present());
        self.secrets.complete(&HashSet::new());
        self.cache.wait_synced().await;
        self
    }

    fn config_maps_present(&self) -> HashSet<Key> {
        ["a", "b", "c"].into_iter().map(key).collect()
    }

    /// Waits for the next change of the cache. Returns its key and the new spec.
    async fn next(
        &self,
        subscription: &mut crate::watch_cache::Subscription,
    ) -> Vec<(String, Value)> {
        let changes = subscription.next().await.unwrap();
        let spec = |change: &crate::watch_cache::WatchCacheEvent| {
            change.after().map(|after| after.object.to_tree()["spec"].clone()).unwrap_or_default()
        };
        changes.iter().map(|change| (change.key().name().to_owned(), spec(change))).collect()
    }
}

#[tokio::test]
async fn a_computed_kind_is_synced_after_all_its_sources() {
    let fixture = start();
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
    fixture.config_maps.complete(&fixture.config_maps_present());
    tokio::task::yield_now().await;
    assert!(!fixture.cache.is_synced());
    fixture.secrets.complete(&HashSet::new());
    fixture.cache.wait_synced().await;
    let shown = fixture.cache.get(&key("a")).unwrap();
    let tree = shown.object.to_tree();
    assert_eq!(tree["metadata"]["creationTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!(tree["kind"], "Joined");
    assert_eq!(shown.object.key(), &key("a"));
}

#[tokio::test]
async fn only_objects_that_depend_on_a_change_are_recomputed() {
    let fixture = start();
    for name in ["a", "b"] {
        fixture.config_maps.set(key(name), Some(config_map(name, &[("value", "1")])));
    }
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    // An unrelated Secret changes nothing. The Secret of `a` changes `a`, because its absence was recorded too.
    for name in ["x", "a"] {
        let secret = Secret { metadata: metadata(name), ..Secret::default() };
        fixture.secrets.set(key(name), Some(secret));
    }
    let expected = serde_json::json!({"value": "1", "has_secret": true});
    assert_eq!(fixture.next(&mut watch).await, [("a".to_owned(), expected)]);
    fixture.secrets.set(key("a"), None);
    let expected = serde_json::json!({"value": "1", "has_secret": false});
    assert_eq!(fixture.next(&mut watch).await, [("a".to_owned(), expected)]);
}

#[tokio::test]
async fn a_source_change_without_effect_sends_no_event() {
    let fixture = start();
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1"), ("other", "2")])));
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("value", "1")])));
    assert_eq!(fixture.next(&mut watch).await[0].0, "b");
}

#[tokio::test]
async fn another_source_of_the_same_name_is_another_object() {
    let fixture = start();
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    let mut other = config_map("a", &[("value", "2")]);
    other.metadata.uid = Some("another".to_owned());
    fixture.config_maps.set(key("a"), Some(other));
    let mut told = fixture.next(&mut watch).await;
    while told.len() < 2 {
        told.extend(fixture.next(&mut watch).await);
    }
    assert_eq!(told[0], ("a".to_owned(), Value::Null));
    assert_eq!(told[1].1["value"], "2");
}

#[tokio::test]
async fn computed_objects_are_deleted_with_their_source() {
    let fixture = start();
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("value", "1")])));
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    fixture.config_maps.set(key("a"), None);
    assert_eq!(fixture.next(&mut watch).await, [("a".to_owned(), Value::Null)]);
    fixture.config_maps.set(key("b"), Some(config_map("b", &[])));
    assert_eq!(fixture.next(&mut watch).await, [("b".to_owned(), Value::Null)], "computed to none");
    // A relist without an object removes it.
    fixture.config_maps.set(key("c"), Some(config_map("c", &[("value", "1")])));
    fixture.next(&mut watch).await;
    fixture.config_maps.complete(&HashSet::new());
    assert_eq!(fixture.next(&mut watch).await, [("c".to_owned(), Value::Null)]);
}

#[tokio::test]
async fn a_name_can_change() {
    let fixture = start();
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1"), ("name", "x")])));
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1"), ("name", "y")])));
    let mut told = fixture.next(&mut watch).await;
    while told.len() < 2 {
        told.extend(fixture.next(&mut watch).await);
    }
    assert_eq!(told[0], ("x".to_owned(), Value::Null));
    assert_eq!(told[1].0, "y");
}

/// Permissions are checked on the source that a name leads to, so an object whose name leads elsewhere is not served.
#[tokio::test]
async fn computed_objects_with_the_key_of_another_source_are_omitted() {
    let fixture = start();
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("value", "1"), ("name", "a")])));
    let elsewhere = [("value", "1"), ("namespace", "elsewhere")];
    fixture.config_maps.set(key("c"), Some(config_map("c", &elsewhere)));
    let fixture = fixture.synced().await;
    let shown: Vec<String> = fixture
        .cache
        .snapshot()
        .from(&Scope::All, None)
        .map(|versioned| versioned.object.key().to_string())
        .collect();
    assert_eq!(shown, ["default/a"]);
}

#[tokio::test]
async fn a_panic_in_a_computation_preserves_the_published_object() {
    let fixture = start();
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "panic")])));
    tokio::task::yield_now().await;
    assert!(watch.next().now_or_never().is_none());
    assert!(fixture.cache.get(&key("a")).is_some());
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "2")])));
    let expected = serde_json::json!({"value": "2", "has_secret": false});
    assert_eq!(fixture.next(&mut watch).await, [("a".to_owned(), expected)]);
}

#[tokio::test]
async fn uids_are_the_same_after_a_restart() {
    let mut uids = Vec::new();
    for _ in 0..2 {
        let fixture = start();
        fixture.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
        let fixture = fixture.synced().await;
        uids.push(fixture.cache.get(&key("a")).unwrap().object.uid().to_owned());
    }
    assert_eq!(uids[0], uids[1]);
    assert_ne!(uids[0], "uid-a");
}
