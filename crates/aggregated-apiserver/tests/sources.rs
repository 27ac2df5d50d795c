//! Sources of computed kinds: the requests that read them, and the responses while they cannot be read.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

#[path = "sources/any_namespace.rs"]
mod any_namespace;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aggregated_apiserver::computed::{ComputedFromVariants, LookupOptions, SourceOptions, Variant};
use aggregated_apiserver::{ApiServer, Computed, InProcess, Kinds, Lookup};
use axum::body::Body;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::Event as SourceEvent;
use kube::{CustomResource, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use test_server::FakeCluster;

const CONFIG_MAPS: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";
const EVENTS: &str = "/api/v1/events";
const VIEWED: &str = "/apis/example.com/v1/vieweds";

/// The Events about Pods.
struct OfPods;

impl LookupOptions for OfPods {
    const OPTIONS: SourceOptions = SourceOptions::ALL.with_fields("involvedObject.kind=Pod");
}

/// A ConfigMap joined with other objects.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Viewed", namespaced)]
struct ViewedSpec {
    secret: bool,
    can_see_secrets: bool,
    events: usize,
}

impl Computed for Viewed {
    type Source = PartialObjectMeta<ConfigMap>;
    type Related = (Lookup<PartialObjectMeta<Secret>>, Lookup<Event, OfPods>);

    fn compute(source: &Self::Source, (secrets, events): &Self::Related) -> Option<Self> {
        let (name, namespace) =
            (source.metadata.name.as_deref()?, source.metadata.namespace.as_deref());
        let spec = ViewedSpec {
            secret: secrets.get(namespace, name).is_some(),
            can_see_secrets: secrets.is_available(),
            events: events.list(namespace).len(),
        };
        Some(Self::new(name, spec))
    }
}

/// The same Events and Secrets, for ConfigMaps with a label.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Narrow", namespaced)]
struct NarrowSpec {}

impl Computed for Narrow {
    type Source = PartialObjectMeta<ConfigMap>;
    type Related = (Lookup<PartialObjectMeta<Secret>>, Lookup<Event, OfPods>);
    const OPTIONS: SourceOptions = SourceOptions::ALL.in_namespace("n").with_labels("shown=yes");

    fn compute(source: &Self::Source, _: &Self::Related) -> Option<Self> {
        Some(Self::new(source.metadata.name.as_deref()?, NarrowSpec {}))
    }
}

/// A Pod's measurement by metrics-server.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize, Serialize)]
#[resource(inherit = PodMetricsResource)]
struct PodMetrics {
    metadata: ObjectMeta,
    usage: i64,
}

/// The resource of the measurement.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metrics.k8s.io",
    version = "v1beta1",
    kind = "PodMetricsResource",
    plural = "pods",
    namespaced
)]
struct PodMetricsResourceSpec {}

struct Polled;

impl LookupOptions for Polled {
    const OPTIONS: SourceOptions =
        SourceOptions::ALL.polled_every(Duration::from_secs(15)).if_served();
}

/// The usage and the price of a ConfigMap's namesake.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Used", namespaced)]
struct UsedSpec {
    usage: Option<i64>,
    price: Option<i64>,
}

/// A price, which comes from outside of the cluster.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "prices.example.com", version = "v1", kind = "Price")]
struct PriceSpec {
    price: i64,
}

impl Computed for Used {
    type Source = ConfigMap;
    type Related = (Lookup<PodMetrics, Polled>, Lookup<Price>);

    fn compute(source: &ConfigMap, (metrics, prices): &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let used = metrics.get(source.metadata.namespace.as_deref(), name);
        let price = prices.get(None, name).map(|price| price.spec.price);
        Some(Self::new(name, UsedSpec { usage: used.map(|used| used.usage), price }))
    }
}

fn named(name: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}})
}

fn event() -> Value {
    let mut event = named("event");
    event["involvedObject"] = json!({});
    event
}

fn cluster() -> FakeCluster {
    let cluster = FakeCluster::default();
    cluster.set(CONFIG_MAPS, vec![named("a")]);
    cluster.set(SECRETS, vec![named("a")]);
    cluster.set(EVENTS, vec![event()]);
    cluster
}

async fn serve(cluster: &FakeCluster, kinds: Kinds) -> InProcess {
    ApiServer::new("views", kinds).in_process(cluster.client()).await.unwrap()
}

/// Returns the status, the warnings and the body of a response.
async fn ask(server: &InProcess, path: &str) -> (StatusCode, Vec<String>, Value) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = server.respond(test_server::admin(), request).await;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    (status, warnings, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// Polls until one listed object has this spec. Returns the warnings and the elapsed time.
async fn wait_for(server: &InProcess, expected: Value) -> (Vec<String>, Duration) {
    let began = tokio::time::Instant::now();
    let mut last = None;
    for _ in 0..200 {
        let (status, warnings, body) = ask(server, VIEWED).await;
        if status == StatusCode::OK && body["items"][0]["spec"] == expected {
            return (warnings, began.elapsed());
        }
        last = Some((status, warnings, body));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("it does not become {expected}: {last:?}");
}

fn spec(secret: bool, can_see_secrets: bool, events: usize) -> Value {
    json!({"secret": secret, "can_see_secrets": can_see_secrets, "events": events})
}

const NO_SECRETS: &str = "299 - \"secrets cannot be read now: what they would add is left out\"";

#[tokio::test(start_paused = true)]
async fn fields_of_unreadable_lookups_are_omitted_with_a_warning_and_return() {
    let cluster = cluster();
    cluster.refuse(SECRETS, StatusCode::FORBIDDEN);
    let server = serve(&cluster, Kinds::new().computed::<Viewed>()).await;
    let (warnings, took) = wait_for(&server, spec(false, false, 1)).await;
    assert_eq!(warnings, [NO_SECRETS]);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let (_, warnings, _) = ask(&server, "/apis/example.com/v1/namespaces/n/vieweds/a").await;
    assert_eq!(warnings, [NO_SECRETS]);
    let (_, _, metrics) = ask(&server, "/metrics").await;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "apiserver_computed_source_in_view{source=\"secrets\"} 0",
        "apiserver_computed_source_in_view{source=\"configmaps\"} 1",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }

    cluster.allow(SECRETS);
    let (warnings, _) = wait_for(&server, spec(true, true, 1)).await;
    assert_eq!(warnings, [""; 0]);

    // A permission may be missing briefly during an update of roles. The last state is shown for a minute, then it is
    // omitted.
    cluster.refuse(SECRETS, StatusCode::FORBIDDEN);
    let (_, took) = wait_for(&server, spec(false, false, 1)).await;
    assert!(took >= Duration::from_secs(60), "{took:?}");
    // A deleted object is not shown again when the permission is restored.
    cluster.set(SECRETS, Vec::new());
    cluster.allow(SECRETS);
    wait_for(&server, spec(false, true, 1)).await;
    // A removed API has the same effect.
    cluster.refuse(EVENTS, StatusCode::NOT_FOUND);
    let (warnings, _) = wait_for(&server, spec(false, true, 0)).await;
    assert_eq!(warnings, [NO_SECRETS.replace("secrets", "events")]);
    cluster.allow(EVENTS);
    wait_for(&server, spec(false, true, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_sync_waits_about_ten_seconds_for_an_unavailable_lookup() {
    let cluster = cluster();
    cluster.refuse(EVENTS, StatusCode::SERVICE_UNAVAILABLE);
    let server = serve(&cluster, Kinds::new().computed::<Viewed>()).await;
    let (_, took) = wait_for(&server, spec(true, true, 0)).await;
    assert!(took >= Duration::from_secs(9) && took < Duration::from_secs(15), "{took:?}");
    cluster.allow(EVENTS);
    wait_for(&server, spec(true, true, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_waits_for_its_source_and_warns_when_the_source_is_outdated() {
    let cluster = cluster();
    cluster.refuse(CONFIG_MAPS, StatusCode::FORBIDDEN);
    let server = serve(&cluster, Kinds::new().computed::<Viewed>()).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let (status, _, body) = ask(&server, VIEWED).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let message = "storage is (re)initializing: waiting for a list of configmaps";
    assert_eq!(body["message"], message);
    cluster.allow(CONFIG_MAPS);
    wait_for(&server, spec(true, true, 1)).await;

    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::FORBIDDEN] {
        cluster.refuse(CONFIG_MAPS, status);
        tokio::time::sleep(Duration::from_secs(50)).await;
        let (warnings, _) = wait_for(&server, spec(true, true, 1)).await;
        assert_eq!(warnings, [""; 0]);
        // The server notices the error at its next request.
        tokio::time::sleep(Duration::from_secs(100)).await;
        let (warnings, _) = wait_for(&server, spec(true, true, 1)).await;
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let (before, after) = (
            "299 - \"configmaps are shown as they were ",
            " seconds ago: they cannot be read now\"",
        );
        let age = warning.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let age: u64 = age.unwrap_or_else(|| panic!("{warning}")).parse().unwrap();
        assert!((60..=151).contains(&age), "{warning}");
        cluster.allow(CONFIG_MAPS);
        // The interval of retries increases.
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(wait_for(&server, spec(true, true, 1)).await.0, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_source_scope_is_listed_and_watched_once() {
    let cluster = cluster();
    cluster.set("/api/v1/namespaces/n/configmaps", vec![named("b")]);
    let kinds = Kinds::new().computed::<Viewed>().computed::<Narrow>();
    let server = serve(&cluster, kinds).await;
    server.wait_synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut requests = cluster.requests();
    requests.sort();
    let metadata = "PartialObjectMetadata";
    assert_eq!(
        requests,
        [
            format!("list{metadata}List {CONFIG_MAPS}"),
            format!("list{metadata}List /api/v1/namespaces/n/configmaps labelSelector=shown%3Dyes"),
            format!("list{metadata}List {SECRETS}"),
            format!("list {EVENTS} fieldSelector=involvedObject.kind%3DPod"),
            format!("watch{metadata} {CONFIG_MAPS}"),
            format!("watch{metadata} /api/v1/namespaces/n/configmaps labelSelector=shown%3Dyes"),
            format!("watch{metadata} {SECRETS}"),
            format!("watch {EVENTS} fieldSelector=involvedObject.kind%3DPod"),
        ]
        .into_iter()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
    );
    let (_, _, narrow) = ask(&server, "/apis/example.com/v1/narrows").await;
    assert_eq!(narrow["items"][0]["metadata"]["name"], "b");
}

/// More selectable fields than a definition may have.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Broad",
    namespaced,
    selectable = ".spec.text",
    selectable = ".spec.number",
    selectable = ".spec.fraction",
    selectable = ".spec.yes",
    selectable = ".spec.a",
    selectable = ".spec.b",
    selectable = ".spec.c",
    selectable = ".spec.d",
    selectable = ".spec.e",
    selectable = ".spec.f"
)]
struct BroadSpec {
    text: String,
    number: i64,
    fraction: f64,
    yes: bool,
    a: Option<String>,
    b: String,
    c: String,
    d: String,
    e: String,
    f: String,
}

impl Computed for Broad {
    type Source = ConfigMap;
    type Related = ();

    fn compute(source: &ConfigMap, (): &()) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let text = |text: &str| format!("{text}-{name}");
        let (b, c, d, e) = (text("b"), text("c"), text("d"), text("e"));
        let number = i64::try_from(name.len()).ok()?;
        let (f, yes) = ("f".repeat(100) + name, name == "aa");
        let (text, fraction) = (name.to_owned(), 1.5);
        Some(Self::new(name, BroadSpec { text, number, fraction, yes, a: None, b, c, d, e, f }))
    }
}

#[tokio::test(start_paused = true)]
async fn computed_kinds_are_selected_by_any_number_of_scalars() {
    let cluster = FakeCluster::default();
    cluster.set(CONFIG_MAPS, vec![named("a"), named("aa"), named("aaa")]);
    let server = serve(&cluster, Kinds::new().computed::<Broad>()).await;
    server.wait_synced().await;
    for (selector, expected) in [
        ("spec.text=aa", vec!["aa"]),
        ("spec.text%3D%3Daa", vec!["aa"]),
        ("spec.text!=aa", vec!["a", "aaa"]),
        ("spec.number=3", vec!["aaa"]),
        ("spec.fraction=1.5,spec.number!=3", vec!["a", "aa"]),
        ("spec.yes=true", vec!["aa"]),
        ("spec.yes!=true,spec.e=e-a", vec!["a"]),
        ("spec.a=", vec!["a", "aa", "aaa"]),
        ("spec.a!=", vec![]),
        (&format!("spec.f={}aa", "f".repeat(100)), vec!["aa"]),
    ] {
        let path = format!("/apis/example.com/v1/broads?fieldSelector={selector}");
        let (status, _, body) = ask(&server, &path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let names = body["items"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|one| one["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{selector}");
    }
    let path = "/apis/example.com/v1/broads?fieldSelector=spec.x=1";
    assert_eq!(ask(&server, path).await.0, StatusCode::BAD_REQUEST);
}

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1/pods";

fn metrics(usage: i64) -> Value {
    // Like objects of metrics-server: without a resourceVersion from which to watch.
    json!({"metadata": {"namespace": "n", "name": "a"}, "usage": usage})
}

/// The stream of prices, by the number of times that it was opened: a price, then no more events, an error, or the end.
fn prices(opened: usize) -> BoxStream<'static, Result<SourceEvent<Price>, String>> {
    let price = |price| Price::new("a", PriceSpec { price });
    let list = |one| {
        let events = [SourceEvent::Init, SourceEvent::InitApply(price(one)), SourceEvent::InitDone];
        stream::iter(events.map(Ok))
    };
    match opened {
        0 => list(1).chain(stream::iter([Ok(SourceEvent::Apply(price(2)))])).boxed(),
        1 => panic!("what the user wrote may panic"),
        2 => stream::iter([Err("it does not answer".to_owned())]).chain(stream::pending()).boxed(),
        _ => stream::pending().boxed(),
    }
}

async fn used(server: &InProcess) -> (Value, Vec<String>) {
    let (_, warnings, body) = ask(server, "/apis/example.com/v1/useds").await;
    (body["items"][0]["spec"].clone(), warnings)
}

#[tokio::test(start_paused = true)]
async fn sources_without_watch_are_polled_and_ended_streams_are_reopened() {
    let cluster = cluster();
    cluster.set(METRICS, vec![metrics(1)]);
    let opened = Arc::new(AtomicUsize::new(0));
    let kinds = {
        let opened = Arc::clone(&opened);
        let open = move || prices(opened.fetch_add(1, Ordering::Relaxed));
        Kinds::new().computed::<Used>().with_source_stream(open)
    };
    let server = serve(&cluster, kinds).await;
    server.wait_synced().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(used(&server).await, (json!({"usage": 1, "price": 2}), vec![]));
    cluster.set(METRICS, vec![metrics(2)]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(used(&server).await.0["usage"], 1);
    // The interval between two lists starts at the last response.
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(used(&server).await.0["usage"], 2);
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    let requests = cluster.requests();
    let lists = requests.iter().filter(|request| **request == format!("list {METRICS}")).count();
    assert!((63..=78).contains(&lists), "{lists} in 1035 seconds");
    assert!(!requests.iter().any(|request| request.contains("watch /apis/metrics")));
    assert!(!requests.iter().any(|request| request.contains("prices")));

    // The stream has ended, panicked, and reported that it is unavailable. Its last price is still shown.
    let (spec, warnings) = used(&server).await;
    assert_eq!((spec["price"].as_i64(), opened.load(Ordering::Relaxed)), (Some(2), 3));
    assert!(warnings[0].starts_with("299 - \"prices.prices.example.com are shown as they were 10"));

    // Measurements can no longer be read, or the API does not exist. Clients get a warning only in the first case.
    let of_metrics = |warnings: Vec<String>| {
        let of_metrics = warnings.into_iter().filter(|warning| warning.contains("metrics"));
        of_metrics.collect::<Vec<_>>()
    };
    for (status, expected) in [
        (StatusCode::FORBIDDEN, vec![NO_SECRETS.replace("secrets", "pods.metrics.k8s.io")]),
        (StatusCode::NOT_FOUND, vec![]),
    ] {
        let before = cluster.requests().len();
        cluster.refuse(METRICS, status);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let (spec, warnings) = used(&server).await;
        assert_eq!((&spec["usage"], of_metrics(warnings)), (&Value::Null, expected));
        let asked = cluster.requests().len() - before;
        assert!((9..60).contains(&asked), "{asked} times in ten minutes");
        let (_, _, metrics) = ask(&server, "/metrics").await;
        // No alert fires for an API that the cluster does not have.
        let metrics = metrics.as_str().unwrap();
        let is_counted = metrics.contains("{source=\"pods.metrics.k8s.io\"}");
        let line = "apiserver_computed_source_in_view{source=\"pods.metrics.k8s.io\"} 0";
        assert_eq!(metrics.contains(line), status == StatusCode::FORBIDDEN, "{metrics}");
        assert_eq!(is_counted, status == StatusCode::FORBIDDEN, "{metrics}");
    }
    // If the API is installed and does not respond, clients get a warning once the last measurements are old.
    cluster.refuse(METRICS, StatusCode::SERVICE_UNAVAILABLE);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(of_metrics(used(&server).await.1).len(), 1);
    cluster.allow(METRICS);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(used(&server).await.0["usage"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_always_ends_is_reopened_with_backoff() {
    let cluster = cluster();
    cluster.set(METRICS, Vec::new());
    let opened = Arc::new(AtomicUsize::new(0));
    let kinds = {
        let opened = Arc::clone(&opened);
        let open = move || {
            opened.fetch_add(1, Ordering::Relaxed);
            let events = [SourceEvent::<Price>::Init, SourceEvent::InitDone];
            stream::iter(events.map(Ok::<_, String>))
        };
        Kinds::new().computed::<Used>().with_source_stream(open)
    };
    let server = serve(&cluster, kinds).await;
    server.wait_synced().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let opened = opened.load(Ordering::Relaxed);
    assert!((8..60).contains(&opened), "{opened} times in ten minutes");
}

/// A setting of Pods: a ConfigMap, or a Secret if Secrets exist.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Setting", namespaced)]
struct SettingSpec {
    secret: bool,
    events: usize,
}

impl ComputedFromVariants for Setting {
    type Variants = (Maps, Secrets);
}

fn setting(metadata: &ObjectMeta, kind: &str, events: &Lookup<Event>) -> Option<Setting> {
    let events = events.list(metadata.namespace.as_deref()).len();
    let spec = SettingSpec { secret: kind == "secret", events };
    Some(Setting::new(&format!("{}.{kind}", metadata.name.as_deref()?), spec))
}

struct Maps;

impl Variant for Maps {
    type Object = Setting;
    type Source = PartialObjectMeta<ConfigMap>;
    type Related = Lookup<Event>;

    fn compute(map: &Self::Source, events: &Lookup<Event>) -> Option<Setting> {
        setting(&map.metadata, "map", events)
    }

    fn source_name(name: &str) -> Option<String> {
        name.strip_suffix(".map").map(str::to_owned)
    }
}

struct Secrets;

impl Variant for Secrets {
    type Object = Setting;
    type Source = PartialObjectMeta<Secret>;
    type Related = Lookup<Event>;

    const OPTIONS: SourceOptions = SourceOptions::ALL.if_served();

    fn compute(secret: &Self::Source, events: &Lookup<Event>) -> Option<Setting> {
        setting(&secret.metadata, "secret", events)
    }

    fn source_name(name: &str) -> Option<String> {
        name.strip_suffix(".secret").map(str::to_owned)
    }
}

/// If one of several source types cannot be read, its objects are omitted like those of lookups, and shown again later.
#[tokio::test(start_paused = true)]
async fn an_unreadable_source_type_of_several_is_omitted_with_a_warning() {
    let cluster = cluster();
    cluster.refuse(SECRETS, StatusCode::FORBIDDEN);
    cluster.refuse(CONFIG_MAPS, StatusCode::FORBIDDEN);
    let server = serve(&cluster, Kinds::new().computed_from_variants::<Setting>()).await;
    let list = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (status, warnings, body) = ask(&server, "/apis/example.com/v1/settings").await;
        let items = body["items"].as_array().cloned().unwrap_or_default();
        let names = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        (status, names.collect::<Vec<_>>(), warnings)
    };
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(list().await.0, StatusCode::TOO_MANY_REQUESTS, "none of them can be read");
    cluster.allow(CONFIG_MAPS);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let (_, names, warnings) = list().await;
    assert_eq!((names, warnings), (vec!["a.map".to_owned()], vec![NO_SECRETS.to_owned()]));
    cluster.allow(SECRETS);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let both = ["a.map", "a.secret"].map(str::to_owned).to_vec();
    assert_eq!(list().await, (StatusCode::OK, both, vec![]));
}

/// A kind of two variants with the same object names.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Alike", namespaced)]
struct AlikeSpec {
    secret: bool,
}

impl ComputedFromVariants for Alike {
    type Variants = (AlikeMap, AlikeSecret);
}

struct AlikeMap;

impl Variant for AlikeMap {
    type Object = Alike;
    type Source = PartialObjectMeta<ConfigMap>;
    type Related = ();

    fn compute(map: &Self::Source, (): &()) -> Option<Alike> {
        Some(Alike::new(map.metadata.name.as_deref()?, AlikeSpec { secret: false }))
    }

    fn source_name(name: &str) -> Option<String> {
        (!name.ends_with("-secret")).then(|| name.to_owned())
    }
}

struct AlikeSecret;

impl Variant for AlikeSecret {
    type Object = Alike;
    type Source = PartialObjectMeta<Secret>;
    type Related = ();

    fn compute(secret: &Self::Source, (): &()) -> Option<Alike> {
        Some(Alike::new(secret.metadata.name.as_deref()?, AlikeSpec { secret: true }))
    }

    fn source_name(name: &str) -> Option<String> {
        Some(name.to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_name_belongs_to_the_first_variant_that_produces_it() {
    let cluster = cluster();
    cluster.set(SECRETS, vec![named("a"), named("b"), named("b-secret")]);
    let server = serve(&cluster, Kinds::new().computed_from_variants::<Alike>()).await;
    server.wait_synced().await;
    let list = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, _, body) = ask(&server, "/apis/example.com/v1/alikes").await;
        let of = |item: &Value| {
            format!("{} {}", item["metadata"]["name"].as_str().unwrap(), item["spec"]["secret"])
        };
        body["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(list().await, ["a false", "b-secret true"]);
    // No change turns an object into an object of the other variant.
    cluster.tell(CONFIG_MAPS, "DELETED", &named("a"));
    cluster.tell(SECRETS, "MODIFIED", &named("a"));
    assert_eq!(list().await, ["b-secret true"]);
    cluster.tell(CONFIG_MAPS, "ADDED", &named("b"));
    assert_eq!(list().await, ["b false", "b-secret true"]);
}

/// The fields that are read of a ConfigMap, if they are valid.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = ConfigMap)]
struct NumberView {
    metadata: ObjectMeta,
    #[serde(deserialize_with = "no_thirteen")]
    number: i64,
}

fn no_thirteen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = i64::deserialize(deserializer)?;
    assert_ne!(number, 13, "what the user wrote may panic");
    Ok(number)
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Numbered", namespaced)]
struct NumberedSpec {
    number: i64,
}

impl Computed for Numbered {
    type Source = NumberView;
    type Related = ();

    fn compute(source: &NumberView, (): &()) -> Option<Self> {
        assert_ne!(source.number, 14, "and so may this");
        let spec = NumberedSpec { number: source.number };
        Some(Self::new(source.metadata.name.as_deref()?, spec))
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_or_panicking_source_objects_do_not_affect_other_objects() {
    let number = |name: &str, number: Value| {
        json!({
            "metadata": {"namespace": "n", "name": name, "resourceVersion": "2"}, "number": number,
        })
    };
    let cluster = FakeCluster::default();
    let objects = [
        number("a", json!(1)),
        number("b", json!("none")),
        number("c", json!(13)),
        number("d", json!(14)),
        number("e", json!(5)),
    ];
    cluster.set(CONFIG_MAPS, objects.to_vec());
    let server = serve(&cluster, Kinds::new().computed::<Numbered>()).await;
    server.wait_synced().await;
    let list = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, warnings, body) = ask(&server, "/apis/example.com/v1/numbereds").await;
        let of = |item: &Value| {
            format!("{} {}", item["metadata"]["name"].as_str().unwrap(), item["spec"]["number"])
        };
        let shown = body["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>();
        (shown.join(", "), warnings.join(" "))
    };
    let unreadable = |count: usize| {
        format!(
            "299 - \"{count} of configmaps cannot be read: they are shown as they were, or left out\""
        )
    };
    assert_eq!(list().await, ("a 1, e 5".to_owned(), unreadable(2)));
    cluster.tell(CONFIG_MAPS, "MODIFIED", &number("b", json!(2)));
    cluster.tell(CONFIG_MAPS, "MODIFIED", &number("a", json!(null)));
    assert_eq!(list().await, ("a 1, b 2, e 5".to_owned(), unreadable(2)));
    cluster.tell(CONFIG_MAPS, "DELETED", &number("c", json!(13)));
    cluster.tell(CONFIG_MAPS, "MODIFIED", &number("d", json!(4)));
    cluster.tell(CONFIG_MAPS, "MODIFIED", &number("e", json!(14)));
    assert_eq!(list().await, ("a 1, b 2, d 4, e 5".to_owned(), unreadable(1)));
    cluster.tell(CONFIG_MAPS, "MODIFIED", &number("a", json!(1)));
    assert_eq!(list().await, ("a 1, b 2, d 4, e 5".to_owned(), String::new()));
    cluster.tell(CONFIG_MAPS, "DELETED", &number("a", json!("none")));
    assert_eq!(list().await.0, "b 2, d 4, e 5");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_computed_from_several_types() {
    let cluster = cluster();
    cluster.refuse(SECRETS, StatusCode::NOT_FOUND);
    cluster.refuse(EVENTS, StatusCode::FORBIDDEN);
    let server = serve(&cluster, Kinds::new().computed_from_variants::<Setting>()).await;
    server.wait_synced().await;
    let list = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, warnings, body) = ask(&server, "/apis/example.com/v1/settings").await;
        let items = body["items"].as_array().unwrap().iter();
        let of = |item: &Value| {
            let name = item["metadata"]["name"].as_str().unwrap();
            format!("{name} {}", item["spec"]["events"])
        };
        (items.map(of).collect::<Vec<_>>(), warnings)
    };
    // Both variants look up Events, and one warning reports that Events cannot be read.
    let no_events = NO_SECRETS.replace("secrets", "events");
    assert_eq!(list().await, (vec!["a.map 0".to_owned()], vec![no_events]));
    cluster.allow(SECRETS);
    cluster.allow(EVENTS);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let both = ["a.map 1", "a.secret 1"].map(str::to_owned).to_vec();
    assert_eq!(list().await, (both, vec![]));
    // A change of the common lookup recomputes both variants, and each variant follows its own source.
    cluster.tell(EVENTS, "DELETED", &event());
    let both = ["a.map 0", "a.secret 0"].map(str::to_owned).to_vec();
    assert_eq!(list().await.0, both);
    cluster.tell(CONFIG_MAPS, "DELETED", &named("a"));
    cluster.tell(SECRETS, "ADDED", &named("b"));
    assert_eq!(list().await.0, ["a.secret 0", "b.secret 0"]);
    // If a source was synced and then disappears, its objects are still shown, with a warning that they are old.
    cluster.refuse(SECRETS, StatusCode::NOT_FOUND);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let (shown, warnings) = list().await;
    assert_eq!(shown, ["a.secret 0", "b.secret 0"]);
    assert!(warnings[0].starts_with("299 - \"secrets are shown as they were"), "{warnings:?}");
}
