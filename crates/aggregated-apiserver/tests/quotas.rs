//! ResourceQuotas of a cluster, and the per-namespace limit of the store, as clients see them.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::admission::{AdmissionError, AdmissionPlugin, AdmissionRequest};
use aggregated_apiserver::serving::AdmissionPluginName;
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use axum::body::Body;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use kube::Client;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, watch};

const DEFINITIONS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Foo, plural: foos}
  versions:
  - &version
    name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          text: {type: string}
          slow: {type: boolean}
  - {<<: *version, name: v2, storage: false}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bars.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Bar, plural: bars}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {text: {type: string}}}}
"#;

const FOOS: &str = "/apis/example.com/v1/namespaces/n/foos";
const COUNT: &str = "count/foos.example.com";
/// The timeout for a change to arrive, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster whose quotas change. With `None`, the quotas cannot be read.
struct Cluster(watch::Sender<Option<Vec<Value>>>);

impl Cluster {
    fn client(&self) -> Client {
        let quotas = self.0.subscribe();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let answer = answer(request.uri(), quotas.clone());
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn set(&self, quotas: &[(&str, &str, Value)]) {
        self.0.send_replace(Some(quotas.iter().map(quota).collect()));
    }
}

fn quota((namespace, name, spec): &(&str, &str, Value)) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"},
        "spec": spec,
    })
}

fn answer(uri: &Uri, mut quotas: watch::Receiver<Option<Vec<Value>>>) -> Response<Body> {
    let status = |code: StatusCode, body: Body| {
        let mut response = Response::new(body);
        *response.status_mut() = code;
        response
    };
    if uri.path() != "/api/v1/resourcequotas" {
        return status(StatusCode::NOT_FOUND, Body::from("{}"));
    }
    let Some(before) = quotas.borrow_and_update().clone() else {
        let forbidden = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "resourcequotas is forbidden",
        });
        return status(StatusCode::FORBIDDEN, Body::from(forbidden.to_string()));
    };
    if !uri.query().unwrap_or_default().contains("watch=true") {
        let list = json!({
            "apiVersion": "v1", "kind": "ResourceQuotaList", "metadata": {"resourceVersion": "1"},
            "items": before,
        });
        return status(StatusCode::OK, Body::from(list.to_string()));
    }
    let events = futures::stream::unfold((quotas, before), |(mut quotas, before)| async move {
        quotas.changed().await.ok()?;
        let now = quotas.borrow_and_update().clone().unwrap_or_default();
        let event = |kind: &str, object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = "v1".into();
            object["kind"] = "ResourceQuota".into();
            json!({"type": kind, "object": object}).to_string() + "\n"
        };
        let name = |one: &Value| one["metadata"]["name"].clone();
        let gone = before.iter().filter(|one| !now.iter().any(|other| name(other) == name(one)));
        let mut lines: Vec<String> = gone.map(|one| event("DELETED", one)).collect();
        lines.extend(now.iter().map(|one| event("MODIFIED", one)));
        Some((Ok::<_, Infallible>(lines.concat()), (quotas, now)))
    });
    status(StatusCode::OK, Body::from_stream(events.boxed()))
}

/// A plugin that blocks objects with the field `slow` before the quota check, until the test releases them.
struct Slow {
    arrived: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl AdmissionPlugin for Slow {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.resource == "foos"
    }

    fn validate<'a>(
        &'a self,
        _: &'a AdmissionRequest<'_>,
        object: Option<&'a Map<String, Value>>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(async move {
            if object.is_some_and(|object| object.get("slow") == Some(&json!(true))) {
                self.arrived.add_permits(1);
                self.go_on.acquire().await.unwrap().forget();
            }
            Ok(())
        })
    }
}

struct World {
    server: InProcess,
    cluster: Cluster,
    /// One permit for each blocked request.
    arrived: Arc<Semaphore>,
    /// One permit for each request to release.
    go_on: Arc<Semaphore>,
}

impl World {
    async fn behind(cluster: Cluster, disabled: Option<AdmissionPluginName>) -> Self {
        let (arrived, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = Slow { arrived: Arc::clone(&arrived), go_on: Arc::clone(&go_on) };
        let kinds = Kinds::new().with_admission_plugin(slow);
        let kinds = kinds.merge(Kinds::new().crds_from_yaml(DEFINITIONS).unwrap());
        let server = test_server::without_webhooks(ApiServer::new("foos", kinds));
        let off = disabled.into_iter().chain([AdmissionPluginName::NamespaceLifecycle]);
        let server = off.fold(server, ApiServer::without_admission_plugin);
        let server = server.in_process(cluster.client()).await.unwrap();
        Self { server, cluster, arrived, go_on }
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        test_server::ask(&self.server, method, path, body).await
    }

    async fn create(&self, name: &str) -> (StatusCode, Value) {
        self.ask(Method::POST, FOOS, &foo(name)).await
    }

    /// Polls until the response has this status, because changes of quotas arrive after a delay.
    async fn eventually(&self, path: &str, body: &Value, expected: StatusCode) -> Value {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let dry = format!("{path}?dryRun=All");
                let (status, answer) = self.ask(Method::POST, &dry, body).await;
                if status == expected {
                    return answer;
                }
                tokio::task::yield_now().await;
            }
        });
        found.await.unwrap()
    }
}

fn foo(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}})
}

fn hard(count: &str) -> Value {
    json!({"hard": {COUNT: count}})
}

/// The initial list of quotas is complete before the first write is checked.
fn in_view(quotas: &[(&str, &str, Value)]) -> Cluster {
    Cluster(watch::Sender::new(Some(quotas.iter().map(quota).collect())))
}

#[tokio::test]
async fn object_count_quotas_are_enforced_same_as_in_kube_apiserver() {
    let quotas = [("n", "q", hard("2")), ("m", "other", hard("0"))];
    let world = World::behind(in_view(&quotas), None).await;
    for name in ["a", "b"] {
        assert_eq!(world.create(name).await.0, StatusCode::CREATED);
    }
    let (status, refused) = world.create("c").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let exceeded =
        format!("exceeded quota: q, requested: {COUNT}=1, used: {COUNT}=2, limited: {COUNT}=2");
    assert_eq!(
        refused,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("foos.example.com \"c\" is forbidden: {exceeded}"),
            "reason": "Forbidden",
            "details": {"name": "c", "group": "example.com", "kind": "foos"},
            "code": 403,
        })
    );
    // Objects in another version count for the same quota. A name conflict is detected only after the quota check. A
    // dry run is checked too.
    let v2 = FOOS.replace("v1", "v2");
    let mut second = foo("c");
    second["apiVersion"] = "example.com/v2".into();
    assert_eq!(world.ask(Method::POST, &v2, &second).await.0, StatusCode::FORBIDDEN);
    assert_eq!(world.create("a").await.0, StatusCode::FORBIDDEN);
    let dry = format!("{FOOS}?dryRun=All");
    assert_eq!(world.ask(Method::POST, &dry, &foo("c")).await.0, StatusCode::FORBIDDEN);
    // Updates do not count. Rejected objects of other namespaces do not count either.
    let path = format!("{FOOS}/a");
    let (status, _) = world.ask(Method::PATCH, &path, &json!({"text": "x"})).await;
    assert_eq!(status, StatusCode::OK);
    // An object with a finalizer counts until it is removed.
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.ask(Method::PATCH, &path, &held).await;
    world.ask(Method::DELETE, &path, &Value::Null).await;
    assert_eq!(world.create("c").await.0, StatusCode::FORBIDDEN);
    let released = json!({"metadata": {"finalizers": null}});
    world.ask(Method::PATCH, &path, &released).await;
    assert_eq!(world.ask(Method::GET, &path, &Value::Null).await.0, StatusCode::NOT_FOUND);
    // A dry run does not use up the quota.
    assert_eq!(world.ask(Method::POST, &dry, &foo("c")).await.0, StatusCode::CREATED);
    let mut generated = foo("");
    generated["metadata"] = json!({"generateName": "g-"});
    assert_eq!(world.ask(Method::POST, FOOS, &generated).await.0, StatusCode::CREATED);
    let (_, refused) = world.ask(Method::POST, FOOS, &generated).await;
    let name = refused["details"]["name"].as_str().unwrap();
    assert!(name.starts_with("g-") && name.len() > 2, "{refused}");
    // After the deletion of a collection, as many objects can be created again.
    world.ask(Method::DELETE, FOOS, &Value::Null).await;
    for (name, expected) in
        [("a", StatusCode::CREATED), ("b", StatusCode::CREATED), ("c", StatusCode::FORBIDDEN)]
    {
        assert_eq!(world.create(name).await.0, expected);
    }
}

#[tokio::test]
async fn added_changed_and_deleted_quotas_take_effect() {
    let world = World::behind(in_view(&[]), None).await;
    for name in ["a", "b", "c"] {
        assert_eq!(world.create(name).await.0, StatusCode::CREATED);
    }
    // A limit below the current count rejects new objects, and does not affect updates.
    world.cluster.set(&[("n", "low", hard("1"))]);
    let refused = world.eventually(FOOS, &foo("d"), StatusCode::FORBIDDEN).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("used: {COUNT}=3, limited: {COUNT}=1")), "{message}");
    let path = format!("{FOOS}/a");
    let (status, _) = world.ask(Method::PATCH, &path, &json!({"text": "x"})).await;
    assert_eq!(status, StatusCode::OK);
    // Every quota must allow the object.
    world.cluster.set(&[("n", "low", hard("4")), ("n", "lower", hard("3"))]);
    let refused = world.eventually(FOOS, &foo("d"), StatusCode::FORBIDDEN).await;
    assert!(refused["message"].as_str().unwrap().contains("quota: low"), "{refused}");
    world.cluster.set(&[("n", "low", hard("4"))]);
    world.eventually(FOOS, &foo("d"), StatusCode::CREATED).await;
    assert_eq!(world.create("d").await.0, StatusCode::CREATED);
    assert_eq!(world.create("e").await.0, StatusCode::FORBIDDEN);
    // Quotas with scopes apply only to Pods and claims.
    let scoped = json!({"hard": {COUNT: "0"}, "scopes": ["BestEffort"]});
    world.cluster.set(&[("n", "low", scoped)]);
    world.eventually(FOOS, &foo("e"), StatusCode::CREATED).await;
    world.cluster.set(&[]);
    assert_eq!(world.create("e").await.0, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn simultaneous_creations_do_not_overshoot() {
    const ALL: usize = 200;
    const LIMIT: usize = 50;
    let world = Arc::new(World::behind(in_view(&[("n", "q", hard("50"))]), None).await);
    let tasks: Vec<_> = (0..ALL)
        .map(|number| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.create(&format!("f{number}")).await.0 })
        })
        .collect();
    let mut created = 0;
    for task in tasks {
        match task.await.unwrap() {
            StatusCode::CREATED => created += 1,
            status => assert_eq!(status, StatusCode::FORBIDDEN),
        }
    }
    assert_eq!(created, LIMIT);
    let (_, list) = world.ask(Method::GET, FOOS, &Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), LIMIT);
    // After the objects are deleted, the whole quota is available again, whatever was reserved in between.
    world.ask(Method::DELETE, FOOS, &Value::Null).await;
    for number in 0..LIMIT {
        assert_eq!(world.create(&format!("g{number}")).await.0, StatusCode::CREATED);
    }
    assert_eq!(world.create("more").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn creations_and_deletions_side_by_side_leave_the_count_exact() {
    const LIMIT: usize = 5;
    let world = Arc::new(World::behind(in_view(&[("n", "q", hard("5"))]), None).await);
    let tasks: Vec<_> = (0..20)
        .map(|worker| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                for round in 0..20 {
                    // Some workers use the same names, so that some names conflict.
                    let name = format!("f{}", (worker + round) % 8);
                    world.create(&name).await;
                    world.ask(Method::DELETE, &format!("{FOOS}/{name}"), &Value::Null).await;
                    let (_, list) = world.ask(Method::GET, FOOS, &Value::Null).await;
                    assert!(list["items"].as_array().unwrap().len() <= LIMIT);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    world.ask(Method::DELETE, FOOS, &Value::Null).await;
    for number in 0..LIMIT {
        assert_eq!(world.create(&number.to_string()).await.0, StatusCode::CREATED);
    }
    assert_eq!(world.create("more").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn quotas_are_checked_after_other_admission_plugins() {
    let world = Arc::new(World::behind(in_view(&[("n", "q", hard("1"))]), None).await);
    let mut slow = foo("slow");
    slow["slow"] = true.into();
    let waiting = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.ask(Method::POST, FOOS, &slow).await.0 }
    });
    world.arrived.acquire().await.unwrap().forget();
    // The blocked request has not been checked yet, and does not count.
    assert_eq!(world.create("a").await.0, StatusCode::CREATED);
    world.go_on.add_permits(1);
    assert_eq!(waiting.await.unwrap(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn creates_succeed_while_quotas_cannot_be_read() {
    let world = World::behind(Cluster(watch::Sender::new(None)), None).await;
    assert_eq!(world.create("a").await.0, StatusCode::CREATED);
    // The quotas apply as soon as they can be read.
    world.cluster.set(&[("n", "q", hard("1"))]);
    world.eventually(FOOS, &foo("b"), StatusCode::FORBIDDEN).await;
}

#[tokio::test]
async fn the_plugin_can_be_disabled() {
    let disabled = Some(AdmissionPluginName::ResourceQuota);
    let world = World::behind(in_view(&[("n", "q", hard("0"))]), disabled).await;
    assert_eq!(world.create("a").await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_full_namespace_leaves_store_capacity_for_other_namespaces() {
    const SIZE: usize = 1 << 20;
    let world = World::behind(in_view(&[]), None).await;
    let large = |name: &str, size: usize| {
        let mut foo = foo(name);
        foo["text"] = "x".repeat(size).into();
        foo
    };
    let mut created = 0;
    let refused = loop {
        let (status, answer) =
            world.ask(Method::POST, FOOS, &large(&format!("f{created}"), SIZE)).await;
        if status != StatusCode::CREATED {
            break (status, answer);
        }
        created += 1;
    };
    assert_eq!((refused.0, created), (StatusCode::FORBIDDEN, 31));
    let message = refused.1["message"].as_str().unwrap();
    let expected = "foos.example.com \"f31\" is forbidden: exceeded quota: share of namespace n in the store, requested: bytes=";
    assert!(message.starts_with(expected), "{message}");
    let limit = "limited: bytes=33554432: objects must be deleted or made smaller first";
    assert!(message.ends_with(limit), "{message}");
    let other = FOOS.replace("/n/", "/m/");
    assert_eq!(world.ask(Method::POST, &other, &large("a", SIZE)).await.0, StatusCode::CREATED);
    let mut bar = large("a", SIZE);
    bar["kind"] = "Bar".into();
    let bars = "/apis/example.com/v1/bars";
    assert_eq!(world.ask(Method::POST, bars, &bar).await.0, StatusCode::CREATED);
    // An existing object cannot grow; it can shrink, and can be deleted.
    let path = format!("{FOOS}/f0");
    let rest = large("rest", SIZE / 4 * 3);
    assert_eq!(world.ask(Method::POST, FOOS, &rest).await.0, StatusCode::CREATED);
    let grow = json!({"text": "x".repeat(SIZE / 4 * 5)});
    let (status, refused) = world.ask(Method::PATCH, &path, &grow).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    let (status, _) = world.ask(Method::PATCH, &path, &json!({"text": "x"})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(world.ask(Method::POST, FOOS, &large("g", SIZE / 2)).await.0, StatusCode::CREATED);
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.ask(Method::PATCH, &format!("{FOOS}/g"), &held).await;
    assert_eq!(world.ask(Method::POST, FOOS, &large("h", SIZE / 4)).await.0, StatusCode::CREATED);
    for name in ["f1", "g"] {
        let (status, _) = world.ask(Method::DELETE, &format!("{FOOS}/{name}"), &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{name}");
    }
    assert_eq!(world.ask(Method::POST, FOOS, &large("i", SIZE)).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_full_store_rejects_creates_with_507() {
    const SIZE: usize = 1 << 20;
    let world = World::behind(in_view(&[]), None).await;
    let mut answer = Value::Null;
    'all: for namespace in 0..5 {
        for number in 0..32 {
            let path = FOOS.replace("/n/", &format!("/n{namespace}/"));
            let mut foo = foo(&number.to_string());
            foo["text"] = "x".repeat(SIZE).into();
            let (status, refused) = world.ask(Method::POST, &path, &foo).await;
            if status == StatusCode::INSUFFICIENT_STORAGE {
                answer = refused;
                break 'all;
            }
        }
    }
    assert_eq!(
        answer["message"],
        "the store is full: its limit is 134217728 bytes (--store-memory-mib): objects must be deleted or made smaller first"
    );
    assert_eq!(answer["reason"], "InsufficientStorage");
}
