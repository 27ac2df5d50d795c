//! ResourceQuotas of a server without a cluster: they are stored in the same server, and take effect at once.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ResourceQuota, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, CustomResource, CustomResourceExt, Resource};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

/// The timeout for a status to become current, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
struct FooSpec {}

fn object<K: DeserializeOwned>(tree: Value) -> K {
    serde_json::from_value(tree).unwrap()
}

async fn limit(client: &Client, name: &str, hard: Value) {
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    let quota = object(json!({"metadata": {"name": name}, "spec": {"hard": hard}}));
    quotas.create(&PostParams::default(), &quota).await.unwrap();
}

/// Returns the message with which an object is rejected, if it is.
async fn refusal<K>(client: &Client, object: &K) -> Option<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    match api.create(&PostParams::default(), object).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            Some(status.message.split_once(" is forbidden: ").unwrap().1.to_owned())
        }
        Err(other) => panic!("{other}"),
    }
}

/// The status of a quota: the limits and the usage.
fn status(quota: &ResourceQuota) -> Value {
    let status = quota.status.clone().unwrap_or_default();
    json!({"hard": status.hard, "used": status.used})
}

/// The usage in the status of a quota, as it is now.
async fn used(client: &Client, name: &str) -> Value {
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    status(&quotas.get(name).await.unwrap())["used"].clone()
}

/// Waits until the status of a quota has this usage.
async fn until_used(client: &Client, name: &str, expected: Value) {
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    let is_expected = {
        let expected = expected.clone();
        move |quota: Option<&ResourceQuota>| {
            quota.is_some_and(|quota| status(quota)["used"] == expected)
        }
    };
    let waiting = await_condition(quotas, name, is_expected);
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        panic!("{} is used instead of {expected}", used(client, name).await);
    }
}

async fn remove<K>(client: &Client, name: &str)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

fn pod_with(name: &str, spec: Value, resources: Value) -> Pod {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i", "resources": resources}]);
    object(pod)
}

fn claim(name: &str, class: &str, storage: &str) -> PersistentVolumeClaim {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
        },
    }))
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}}))
}

fn foo(name: &str) -> Foo {
    Foo::new(name, FooSpec {})
}

fn pod(name: &str) -> Pod {
    object(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }))
}

fn service(name: &str, spec_type: &str) -> Service {
    let ports = json!([{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]);
    object(json!({"metadata": {"name": name}, "spec": {"type": spec_type, "ports": ports}}))
}

#[tokio::test]
async fn kinds_of_your_own_are_counted_from_the_start() {
    let server =
        TestServer::builder().crd(Foo::crd()).objects([foo("a"), foo("b")]).start().await.unwrap();
    let client = server.client();
    limit(&client, "q", json!({"count/foos.example.com": "3"})).await;
    assert_eq!(refusal(&client, &foo("c")).await, None);
    let name = "count/foos.example.com";
    let exceeded =
        format!("exceeded quota: q, requested: {name}=1, used: {name}=3, limited: {name}=3");
    assert_eq!(refusal(&client, &foo("d")).await, Some(exceeded));
    let foos: Api<Foo> = Api::default_namespaced(client.clone());
    foos.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(&client, &foo("d")).await, None);
    // A deleted quota has no effect.
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    quotas.delete("q", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(&client, &foo("e")).await, None);
    // A quota counts itself.
    limit(&client, "r", json!({"resourcequotas": "1"})).await;
    let another: ResourceQuota = object(json!({"metadata": {"name": "s"}}));
    let exceeded = "exceeded quota: r, requested: resourcequotas=1, used: resourcequotas=1, limited: resourcequotas=1";
    assert_eq!(refusal(&client, &another).await.as_deref(), Some(exceeded));
}

#[tokio::test]
async fn terminated_pods_free_the_pods_quota_but_not_count_pods() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    limit(&client, "q", json!({"pods": "1", "count/pods": "2"})).await;
    assert_eq!(refusal(&client, &pod("a")).await, None);
    let exceeded = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!(refusal(&client, &pod("b")).await.as_deref(), Some(exceeded));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let over = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status("a", &PatchParams::default(), &over).await.unwrap();
    assert_eq!(refusal(&client, &pod("b")).await, None);
    // The Pod still counts as an object.
    let exceeded = "exceeded quota: q, requested: count/pods=1,pods=1, used: count/pods=2,pods=1, limited: count/pods=2,pods=1";
    assert_eq!(refusal(&client, &pod("c")).await.as_deref(), Some(exceeded));
}

#[tokio::test]
async fn a_change_of_a_service_is_charged() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    // One of them is `kubernetes`.
    limit(&client, "q", json!({"services": "3", "services.nodeports": "3"})).await;
    assert_eq!(refusal(&client, &service("a", "NodePort")).await, None);
    let exceeded = "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=2, limited: services.nodeports=3";
    assert_eq!(refusal(&client, &service("b", "NodePort")).await.as_deref(), Some(exceeded));
    assert_eq!(refusal(&client, &service("b", "ClusterIP")).await, None);
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let patch = |spec: Value| Patch::Merge(json!({"spec": spec}));
    let to_nodes = patch(json!({"type": "NodePort"}));
    let refused = services.patch("b", &PatchParams::default(), &to_nodes).await.unwrap_err();
    assert!(refused.to_string().contains(exceeded), "{refused}");
    let to_cluster = patch(json!({"type": "ClusterIP"}));
    services.patch("a", &PatchParams::default(), &to_cluster).await.unwrap();
    services.patch("b", &PatchParams::default(), &to_nodes).await.unwrap();
    // A change that does not increase usage is not limited.
    limit(&client, "none", json!({"services": "0", "services.nodeports": "0"})).await;
    let other = patch(json!({"sessionAffinity": "ClientIP"}));
    services.patch("b", &PatchParams::default(), &other).await.unwrap();
}

#[tokio::test]
async fn simultaneous_creations_do_not_overshoot() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    limit(&client, "q", json!({"configmaps": "5"})).await;
    let tasks = (0..50).map(|number| {
        let (client, map) = (client.clone(), config_map(&number.to_string()));
        tokio::spawn(async move { refusal(&client, &map).await })
    });
    let mut created = 0;
    for task in tasks.collect::<Vec<_>>() {
        created += usize::from(task.await.unwrap().is_none());
    }
    assert_eq!(created, 5);
}

#[tokio::test]
async fn the_status_of_a_quota_follows_the_objects() {
    let server = TestServer::builder().crd(Foo::crd()).objects([foo("a")]).start().await.unwrap();
    let client = server.client();
    assert_eq!(refusal(&client, &config_map("before")).await, None);
    let gold = "gold.storageclass.storage.k8s.io/requests.storage";
    let count = "count/foos.example.com";
    let hard = json!({
        "configmaps": "5", "services": "5", "services.nodeports": "4", count: "3", gold: "10Gi",
        "requests.storage": "20Gi", "count/unknowns.example.com": "1", "resourcequotas": "2",
    });
    limit(&client, "q", hard.clone()).await;
    // One of the Services is `kubernetes`.
    let mut expected = json!({
        "configmaps": "1", "services": "1", "services.nodeports": "0", count: "1", gold: "0",
        "requests.storage": "0", "resourcequotas": "1",
    });
    until_used(&client, "q", expected.clone()).await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    assert_eq!(status(&quotas.get("q").await.unwrap())["hard"], hard);
    // Admission writes the usage before the object is stored.
    assert_eq!(refusal(&client, &config_map("a")).await, None);
    assert_eq!(refusal(&client, &service("s", "NodePort")).await, None);
    assert_eq!(refusal(&client, &claim("c", "gold", "6Gi")).await, None);
    assert_eq!(refusal(&client, &foo("b")).await, None);
    for (name, amount) in [
        ("configmaps", "2"),
        ("services", "2"),
        ("services.nodeports", "2"),
        (count, "2"),
        (gold, "6Gi"),
        ("requests.storage", "6Gi"),
    ] {
        expected[name] = amount.into();
    }
    assert_eq!(used(&client, "q").await, expected);
    let exceeded =
        format!("exceeded quota: q, requested: {gold}=5Gi, used: {gold}=6Gi, limited: {gold}=10Gi");
    assert_eq!(refusal(&client, &claim("d", "gold", "5Gi")).await, Some(exceeded));
    // A create that fails after its admission releases its usage.
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    until_used(&client, "q", expected.clone()).await;
    remove::<ConfigMap>(&client, "a").await;
    remove::<Foo>(&client, "a").await;
    remove::<PersistentVolumeClaim>(&client, "c").await;
    for (name, amount) in
        [("configmaps", "1"), (count, "1"), (gold, "0"), ("requests.storage", "0")]
    {
        expected[name] = amount.into();
    }
    until_used(&client, "q", expected).await;
    let now = quotas.get("q").await.unwrap();
    let managers = now.metadata.managed_fields.unwrap().into_iter();
    let managers = managers.filter(|one| one.subresource.as_deref() == Some("status"));
    let managers: Vec<_> = managers.filter_map(|one| one.manager).collect();
    assert_eq!(managers, ["kube-apiserver", "kube-controller-manager"]);
    // The status has the limits of the changed spec.
    let patch = Patch::Merge(json!({"spec": {"hard": null}}));
    quotas.patch("q", &PatchParams::default(), &patch).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"hard": {"secrets": "7"}}}));
    quotas.patch("q", &PatchParams::default(), &patch).await.unwrap();
    until_used(&client, "q", json!({"secrets": "0"})).await;
    assert_eq!(status(&quotas.get("q").await.unwrap())["hard"], json!({"secrets": "7"}));
}

#[tokio::test]
async fn requests_and_limits_of_pods_are_summed() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let hard = json!({
        "pods": "3", "requests.cpu": "2", "limits.memory": "2Gi", "requests.example.com/gpu": "1",
        "ephemeral-storage": "1Gi",
    });
    limit(&client, "q", hard).await;
    let missing = "failed quota: q: must specify limits.memory for: c; requests.cpu for: c";
    assert_eq!(refusal(&client, &pod("a")).await.as_deref(), Some(missing));
    let resources = json!({
        "requests": {"cpu": "750m", "example.com/gpu": "1", "ephemeral-storage": "100Mi"},
        "limits": {"memory": "512Mi", "example.com/gpu": "1"},
    });
    assert_eq!(refusal(&client, &pod_with("a", json!({}), resources)).await, None);
    let expected = json!({
        "pods": "1", "requests.cpu": "750m", "limits.memory": "512Mi",
        "requests.example.com/gpu": "1", "ephemeral-storage": "100Mi",
    });
    assert_eq!(used(&client, "q").await, expected);
    let resources = json!({"requests": {"cpu": "1500m"}, "limits": {"memory": "2Gi"}});
    let exceeded = "exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=1500m, used: limits.memory=512Mi,requests.cpu=750m, limited: limits.memory=2Gi,requests.cpu=2";
    let refused = refusal(&client, &pod_with("b", json!({}), resources)).await;
    assert_eq!(refused.as_deref(), Some(exceeded));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let over = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    pods.patch_status("a", &PatchParams::default(), &over).await.unwrap();
    let expected = json!({
        "pods": "0", "requests.cpu": "0", "limits.memory": "0", "requests.example.com/gpu": "0",
        "ephemeral-storage": "0",
    });
    until_used(&client, "q", expected).await;
}

#[tokio::test]
async fn quotas_with_scopes_limit_the_pods_and_claims_in_their_scopes() {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 7,
    });
    let server = TestServer::builder().objects([class]).start().await.unwrap();
    let client = server.client();
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    let expression = |scope: &str, operator: &str, values: Value| {
        let expression = json!({"scopeName": scope, "operator": operator, "values": values});
        json!({"matchExpressions": [expression]})
    };
    let high = expression("PriorityClass", "In", json!(["high"]));
    let fast = expression("VolumeAttributesClass", "In", json!(["fast"]));
    for (name, hard, scopes, selector) in [
        ("best-effort", json!({"pods": "1"}), json!(["BestEffort"]), Value::Null),
        ("terminating", json!({"pods": "1", "cpu": "1"}), json!(["Terminating"]), Value::Null),
        ("high", json!({"pods": "1"}), Value::Null, high),
        ("fast", json!({"persistentvolumeclaims": "1"}), Value::Null, fast),
    ] {
        let spec = json!({"hard": hard, "scopes": scopes, "scopeSelector": selector});
        let quota = object(json!({"metadata": {"name": name}, "spec": spec}));
        quotas.create(&PostParams::default(), &quota).await.unwrap();
    }
    let exceeded = |name: &str| {
        let all = "requested: pods=1, used: pods=1, limited: pods=1";
        Some(format!("exceeded quota: {name}, {all}"))
    };
    let requests = json!({"requests": {"cpu": "100m"}});
    let none = json!({});
    assert_eq!(refusal(&client, &pod("a")).await, None);
    assert_eq!(refusal(&client, &pod("b")).await, exceeded("best-effort"));
    let burstable = |name| pod_with(name, none.clone(), requests.clone());
    assert_eq!(refusal(&client, &burstable("c")).await, None);
    assert_eq!(refusal(&client, &burstable("d")).await, None);
    let urgent = |name| pod_with(name, json!({"priorityClassName": "high"}), requests.clone());
    assert_eq!(refusal(&client, &urgent("e")).await, None);
    assert_eq!(refusal(&client, &urgent("f")).await, exceeded("high"));
    let job = |name| pod_with(name, json!({"activeDeadlineSeconds": 5}), requests.clone());
    assert_eq!(refusal(&client, &job("g")).await, None);
    assert_eq!(refusal(&client, &job("h")).await, exceeded("terminating"));
    // The deadline moves a Pod into another scope.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let deadline = Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 9}}));
    let moved = pods.patch("c", &PatchParams::default(), &deadline).await.unwrap_err();
    assert!(moved.to_string().contains(&exceeded("terminating").unwrap()), "{moved}");
    until_used(&client, "terminating", json!({"pods": "1", "cpu": "100m"})).await;
    remove::<Pod>(&client, "g").await;
    until_used(&client, "terminating", json!({"pods": "0", "cpu": "0"})).await;
    pods.patch("c", &PatchParams::default(), &deadline).await.unwrap();
    assert_eq!(used(&client, "terminating").await, json!({"pods": "1", "cpu": "100m"}));
    let fast = |name| {
        let mut claim = claim(name, "gold", "1Gi");
        claim.spec.as_mut().unwrap().volume_attributes_class_name = Some("fast".to_owned());
        claim
    };
    assert_eq!(refusal(&client, &claim("a", "gold", "1Gi")).await, None);
    assert_eq!(refusal(&client, &fast("b")).await, None);
    assert!(refusal(&client, &fast("c")).await.unwrap().starts_with("exceeded quota: fast"));
    assert_eq!(used(&client, "fast").await, json!({"persistentvolumeclaims": "1"}));
}

#[tokio::test]
async fn concurrent_creates_fill_a_quota_exactly() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    limit(&client, "q", json!({"pods": "5"})).await;
    let tasks = (0..20).map(|number| {
        let (client, pod) = (client.clone(), pod(&format!("p{number}")));
        tokio::spawn(async move { refusal(&client, &pod).await })
    });
    let mut created = 0;
    for task in tasks.collect::<Vec<_>>() {
        created += usize::from(task.await.unwrap().is_none());
    }
    assert_eq!(created, 5);
    assert_eq!(used(&client, "q").await, json!({"pods": "5"}));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let stored = pods.list(&Default::default()).await.unwrap().items;
    assert_eq!(stored.len(), 5);
    remove::<Pod>(&client, stored[0].metadata.name.as_deref().unwrap()).await;
    until_used(&client, "q", json!({"pods": "4"})).await;
}

#[tokio::test]
async fn a_status_that_another_program_has_written_counts_until_it_is_computed() {
    let server = TestServer::builder().without_quota_controller().start().await.unwrap();
    let client = server.client();
    limit(&client, "q", json!({"configmaps": "3"})).await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    let charged = json!({"status": {"hard": {"configmaps": "3"}, "used": {"configmaps": "2"}}});
    quotas.patch_status("q", &PatchParams::default(), &Patch::Merge(charged)).await.unwrap();
    assert_eq!(refusal(&client, &config_map("a")).await, None);
    assert_eq!(used(&client, "q").await, json!({"configmaps": "3"}));
    let exceeded =
        "exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3";
    assert_eq!(refusal(&client, &config_map("b")).await.as_deref(), Some(exceeded));
}
