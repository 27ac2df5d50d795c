//! ResourceQuotas of a server without a cluster: they are stored in the same server, and take effect at once.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResource, CustomResourceExt, Resource};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

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
    let map =
        |number: usize| -> ConfigMap { object(json!({"metadata": {"name": number.to_string()}})) };
    let tasks = (0..50).map(|number| {
        let (client, map) = (client.clone(), map(number));
        tokio::spawn(async move { refusal(&client, &map).await })
    });
    let mut created = 0;
    for task in tasks.collect::<Vec<_>>() {
        created += usize::from(task.await.unwrap().is_none());
    }
    assert_eq!(created, 5);
}
