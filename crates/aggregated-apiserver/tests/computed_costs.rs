//! The cost of a change for a computed kind. It is proportional to the number of objects to recompute, not to the
//! number of all objects. The tests count computations and use a paused clock, which advances when no task is runnable,
//! so the load of the machine has no influence.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use aggregated_apiserver::computed::{LookupOptions, SourceOptions};
use aggregated_apiserver::{ApiServer, Computed, InProcess, Kinds, Lookup};
use axum::body::Body;
use futures::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::core::Selector;
use kube::{CustomResource, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use test_server::{Events, FakeCluster};
use tokio::time::{Instant, timeout};

const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const SERVICES: &str = "/api/v1/services";
/// Secrets stand for measurements: their annotations contain the usage.
const SECRETS: &str = "/api/v1/secrets";
const PODS_OF_NODE: usize = 20;
const PODS_OF_SERVICE: usize = 50;
/// The timeout for expected and for unexpected events.
const LONG: Duration = Duration::from_secs(60);

/// The fields that are read of a Pod.
#[derive(Resource, Clone, Debug, Default, Deserialize, Serialize)]
#[resource(inherit = Pod)]
struct PodView {
    metadata: ObjectMeta,
    spec: PodViewSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodViewSpec {
    node_name: String,
}

/// The fields that are read of a Service.
#[derive(Resource, Clone, Debug, Default, Deserialize, Serialize)]
#[resource(inherit = Service)]
struct ServiceView {
    metadata: ObjectMeta,
    spec: ServiceViewSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct ServiceViewSpec {
    selector: BTreeMap<String, String>,
}

thread_local! {
    /// The number of computations in this test, all on one thread.
    static COMPUTED: Cell<usize> = const { Cell::new(0) };
    /// The number of calls of a selector function.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of computations and selector calls since the last call, and resets both.
fn take_counts() -> (usize, usize) {
    (COMPUTED.take(), ASKED.take())
}

fn selector(service: &ServiceView) -> Option<Selector> {
    ASKED.set(ASKED.get() + 1);
    Some(service.spec.selector.clone().into_iter().collect())
}

struct Polled;

impl LookupOptions for Polled {
    const OPTIONS: SourceOptions = SourceOptions::ALL.polled_every(Duration::from_secs(2));
}

/// A Pod joined with other objects.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Joined", namespaced)]
struct JoinedSpec {
    version: String,
    zone: Option<String>,
    services: Vec<String>,
    used: i64,
}

impl Computed for Joined {
    type Source = PodView;
    type Related = (
        Lookup<PartialObjectMeta<Node>>,
        Lookup<ServiceView>,
        Lookup<PartialObjectMeta<Secret>, Polled>,
    );
    const MEASURED_AT_MOST_EVERY: Duration = Duration::ZERO;

    fn compute(pod: &PodView, (nodes, services, used): &Self::Related) -> Option<Self> {
        COMPUTED.set(COMPUTED.get() + 1);
        let name = pod.metadata.name.as_deref()?;
        let namespace = pod.metadata.namespace.as_deref();
        let node = nodes.get(None, &pod.spec.node_name);
        let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get("zone").cloned());
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let services = services.find_selecting(selector, namespace, &labels);
        let services = services.iter().filter_map(|service| service.metadata.name.clone());
        let annotation = |metadata: &ObjectMeta, key: &str| {
            metadata.annotations.as_ref().and_then(|all| all.get(key).cloned())
        };
        let used = used.get(namespace, name);
        let used = used.and_then(|used| annotation(&used.metadata, "used")?.parse().ok());
        let version = annotation(&pod.metadata, "version").unwrap_or_default();
        let (services, used) = (services.collect(), used.unwrap_or_default());
        Some(Self::new(name, JoinedSpec { version, zone, services, used }))
    }

    fn is_worth_publishing(shown: &Self, computed: &Self) -> bool {
        (shown.spec.used - computed.spec.used).abs() > 10
    }
}

fn pod(number: usize, version: usize) -> Value {
    let app = format!("app-{}", number / PODS_OF_SERVICE);
    json!({
        "metadata": {
            "namespace": "n", "name": format!("pod-{number}"), "uid": format!("pod-{number}"),
            "resourceVersion": "2", "labels": {"app": app, "tier": "any"},
            "annotations": {"version": version.to_string()},
        },
        "spec": {"nodeName": format!("node-{}", number / PODS_OF_NODE)},
    })
}

fn node(number: usize, zone: &str) -> Value {
    json!({"metadata": {"name": format!("node-{number}"), "resourceVersion": "2", "labels": {"zone": zone}}})
}

fn service(name: &str, app: usize) -> Value {
    json!({
        "metadata": {"namespace": "n", "name": name, "resourceVersion": "2"},
        "spec": {"selector": {"app": format!("app-{app}")}},
    })
}

fn used(count: usize, used: i64) -> Vec<Value> {
    let one = |number: usize| json!({"metadata": {"namespace": "n", "name": format!("pod-{number}"), "annotations": {"used": used.to_string()}}});
    (0..count).map(one).collect()
}

/// A server with a number of Pods, and a watch of the computed kind.
struct World {
    cluster: FakeCluster,
    _server: InProcess,
    watch: Events,
}

impl World {
    async fn start(count: usize) -> Self {
        let cluster = FakeCluster::default();
        cluster.set(PODS, (0..count).map(|number| pod(number, 0)).collect());
        let nodes = (0..count / PODS_OF_NODE).map(|number| node(number, "a"));
        cluster.set(NODES, nodes.collect());
        let services =
            (0..count / PODS_OF_SERVICE).map(|one| service(&format!("service-{one}"), one));
        cluster.set(SERVICES, services.collect());
        cluster.set(SECRETS, used(count, 0));
        let kinds = Kinds::new().computed::<Joined>();
        let server = ApiServer::new("costs", kinds).in_process(cluster.client()).await.unwrap();
        server.wait_synced().await;
        let path = "/apis/example.com/v1/joineds?watch=true";
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = server.respond(test_server::admin(), request).await;
        let watch = Events::of(response.into_body());
        let mut world = Self { cluster, _server: server, watch };
        assert_eq!(world.events(count).await.len(), count);
        world
    }

    /// Returns the next `count` events.
    async fn events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(timeout(LONG, self.watch.next()).await.unwrap().unwrap());
        }
        assert!(self.watch.next().now_or_never().is_none(), "more than one event of a change");
        events
    }

    /// Changes Pods sequentially.
    async fn change_pods(&mut self, count: usize) {
        for version in 1..=POD_CHANGES {
            self.cluster.tell(PODS, "MODIFIED", &pod(version * 31 % count, version));
            let events = self.events(1).await;
            assert_eq!(events[0]["object"]["spec"]["version"], version.to_string());
        }
    }

    /// Changes the objects that Pods are joined with.
    async fn change_others(&mut self) {
        for round in 0..10 {
            self.cluster.tell(NODES, "MODIFIED", &node(round, "b"));
            let events = self.events(PODS_OF_NODE).await;
            assert!(events.iter().all(|event| event["object"]["spec"]["zone"] == "b"));
            self.cluster.tell(SERVICES, "ADDED", &service("more", round));
            self.events(PODS_OF_SERVICE).await;
            self.cluster.tell(SERVICES, "DELETED", &service("more", round));
            self.events(PODS_OF_SERVICE).await;
        }
    }
}

/// The number of Pod changes.
const POD_CHANGES: usize = 200;

#[tokio::test(start_paused = true)]
async fn a_source_change_recomputes_only_affected_objects() {
    let mut figures = Vec::new();
    for count in [500, 5_000] {
        let mut world = World::start(count).await;
        take_counts();
        world.change_pods(count).await;
        let (of_pods, asked) = take_counts();
        assert_eq!(of_pods, POD_CHANGES, "{count} Pods");
        world.change_others().await;
        let (of_others, asked_again) = take_counts();
        assert_eq!(of_others, 10 * (PODS_OF_NODE + 2 * PODS_OF_SERVICE), "{count} Pods");
        figures.push((asked, asked_again));
    }
    // With ten times as many Pods and Services, a change evaluates no more of them.
    let [small, large] = figures[..] else { panic!() };
    assert!(small.0 > 0 && small == large, "{small:?} {large:?}");
}

#[tokio::test(start_paused = true)]
async fn small_usage_changes_cause_no_watch_events() {
    const COUNT: usize = 2_000;
    let mut world = World::start(COUNT).await;
    let polls = |cluster: &FakeCluster| {
        cluster.requests().iter().filter(|one| one.contains(SECRETS)).count()
    };
    let before = polls(&world.cluster);
    for little in 1..4 {
        world.cluster.set(SECRETS, used(COUNT, little));
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert!(timeout(Duration::from_secs(3), world.watch.next()).await.is_err(), "a storm");
    assert!(polls(&world.cluster) >= before + 3);
    world.cluster.set(SECRETS, used(COUNT, 50));
    let events = world.events(COUNT).await;
    assert!(events.iter().all(|event| event["object"]["spec"]["used"] == 50));
    assert!(timeout(Duration::from_secs(3), world.watch.next()).await.is_err(), "told twice");
}

const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

/// Deserializes only the namespace and the name, which never change.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    struct Named {
        namespace: String,
        name: String,
    }

    let Named { namespace, name } = Named::deserialize(deserializer)?;
    Ok(ObjectMeta { namespace: Some(namespace), name: Some(name), ..ObjectMeta::default() })
}

/// The fields that are read of a budget, without its counters.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = PodDisruptionBudget)]
struct BudgetView {
    #[serde(deserialize_with = "named")]
    metadata: ObjectMeta,
    spec: ServiceViewSpec,
}

/// The counters of a budget.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = PodDisruptionBudget)]
struct CountedView {
    #[serde(deserialize_with = "named")]
    metadata: ObjectMeta,
    status: CountedStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct CountedStatus {
    allowed: i64,
}

struct SomeTimes;

impl LookupOptions for SomeTimes {
    const OPTIONS: SourceOptions = SourceOptions::ALL.measured_every(Duration::from_secs(2));
}

/// A Pod with its budgets.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Covered", namespaced)]
struct CoveredSpec {
    version: String,
    allowed: Option<i64>,
}

fn covers(budget: &BudgetView) -> Option<Selector> {
    Some(budget.spec.selector.clone().into_iter().collect())
}

impl Computed for Covered {
    type Source = PodView;
    type Related = (Lookup<BudgetView>, Lookup<CountedView, SomeTimes>);
    const MEASURED_AT_MOST_EVERY: Duration = Duration::ZERO;

    fn compute(pod: &PodView, (budgets, counted): &Self::Related) -> Option<Self> {
        COMPUTED.set(COMPUTED.get() + 1);
        let namespace = pod.metadata.namespace.as_deref();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let budgets = budgets.find_selecting(covers, namespace, &labels);
        let counted = budgets
            .iter()
            .filter_map(|budget| counted.get(namespace, budget.metadata.name.as_deref()?));
        let allowed = counted.map(|counted| counted.status.allowed).min();
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        let version = annotations.get("version").cloned().unwrap_or_default();
        Some(Self::new(pod.metadata.name.as_deref()?, CoveredSpec { version, allowed }))
    }
}

/// The counters of a budget change with each Pod that becomes ready, and all Pods of the budget depend on them.
#[tokio::test(start_paused = true)]
async fn a_rollout_costs_as_much_as_there_are_pods() {
    const COUNT: usize = 1_000;
    let budget = |allowed: usize, revision: usize| {
        json!({
            "metadata": {"namespace": "n", "name": "all", "resourceVersion": revision.to_string()},
            "spec": {"selector": {"tier": "any"}}, "status": {"allowed": allowed, "healthy": revision},
        })
    };
    let cluster = FakeCluster::default();
    cluster.set(PODS, (0..COUNT).map(|number| pod(number, 0)).collect());
    cluster.set(BUDGETS, vec![budget(0, 2)]);
    let kinds = Kinds::new().computed::<Covered>();
    let server = ApiServer::new("costs", kinds).in_process(cluster.client()).await.unwrap();
    server.wait_synced().await;
    let shown = async || {
        let path = "/apis/example.com/v1/covereds";
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = server.respond(test_server::admin(), request).await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap();
        let items = list["items"].as_array().unwrap().clone();
        items.into_iter().map(|item| item["spec"].clone()).collect::<Vec<_>>()
    };
    assert!(shown().await.iter().all(|spec| spec["allowed"] == 0));
    take_counts();
    let began = Instant::now();
    for number in 0..COUNT {
        cluster.tell(PODS, "MODIFIED", &pod(number, 1));
        cluster.tell(BUDGETS, "MODIFIED", &budget(number + 1, number + 3));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let expected = json!({"version": "1", "allowed": COUNT});
    while !shown().await.iter().all(|spec| *spec == expected) {
        assert!(began.elapsed() < LONG, "{:?}", shown().await.first());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (computed, _) = take_counts();
    // Each Pod is computed once for its own change, and all Pods once every two seconds.
    let rounds = usize::try_from(began.elapsed().as_secs()).unwrap() / 2 + 2;
    assert!(computed <= COUNT * (1 + rounds), "{computed} computations in {rounds} rounds");
    assert!(computed >= 2 * COUNT);
}
