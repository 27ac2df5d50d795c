//! A create that admission delays for long reads its namespace again when it is committed.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::Kinds;
use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionPlugin, AdmissionRequest,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use standalone_apiserver::TestServer;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

/// Delays Secrets until the test continues them, same as a slow webhook.
struct Slow {
    arrived: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl AdmissionPlugin for Slow {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.resource == "secrets" && request.namespace == Some("n")
    }

    fn mutate<'a>(
        &'a self,
        _: &'a AdmissionRequest<'_>,
        _: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(async {
            self.arrived.add_permits(1);
            self.go_on.acquire().await.unwrap().forget();
            Ok(())
        })
    }
}

struct World {
    _server: TestServer,
    client: Client,
    arrived: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

fn object<K: DeserializeOwned>(name: &str) -> K {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

impl World {
    async fn new() -> Self {
        let (arrived, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = Slow { arrived: Arc::clone(&arrived), go_on: Arc::clone(&go_on) };
        let kinds = Kinds::new().with_admission_plugin(slow);
        let server = TestServer::builder().kinds(kinds).start().await.unwrap();
        let client = server.client();
        let world = Self { _server: server, client, arrived, go_on };
        world.create_namespace().await;
        world
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    async fn create_namespace(&self) {
        self.namespaces().create(&PostParams::default(), &object("n")).await.unwrap();
    }

    async fn delete_namespace(&self) {
        let namespace = self.namespaces().get("n").await.unwrap();
        self.namespaces().delete("n", &DeleteParams::default()).await.unwrap();
        let uid = namespace.meta().uid.clone().unwrap();
        let gone = await_condition(self.namespaces(), "n", is_deleted(&uid));
        timeout(PATIENCE, gone).await.unwrap().unwrap();
    }

    /// Returns the result of creating a Secret, which waits in admission while `happens` runs.
    async fn create_meanwhile(&self, happens: impl AsyncFnOnce()) -> Result<Secret, kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "n");
        let creating =
            tokio::spawn(async move { secrets.create(&PostParams::default(), &object("s")).await });
        timeout(PATIENCE, self.arrived.acquire()).await.unwrap().unwrap().forget();
        happens().await;
        self.go_on.add_permits(1);
        creating.await.unwrap()
    }

    async fn secrets(&self) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "n");
        let listed = secrets.list(&ListParams::default()).await.unwrap();
        listed.items.iter().map(ResourceExt::name_any).collect()
    }
}

fn refusal(answer: Result<Secret, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_create_fails_if_its_namespace_is_deleted_before_commit() {
    let world = World::new().await;
    let answer = world.create_meanwhile(async || world.delete_namespace().await).await;
    assert_eq!(refusal(answer), (404, "namespaces \"n\" not found".to_owned()));
    world.create_namespace().await;
    assert_eq!(world.secrets().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_create_fails_if_its_namespace_is_recreated_before_commit() {
    let world = World::new().await;
    let again = async || {
        world.delete_namespace().await;
        world.create_namespace().await;
    };
    let answer = world.create_meanwhile(again).await;
    assert_eq!(refusal(answer), (404, "namespaces \"n\" not found".to_owned()));
    assert_eq!(world.secrets().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_create_fails_if_its_namespace_is_terminating_at_commit() {
    let world = World::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "n");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    maps.create(&PostParams::default(), &serde_json::from_value(held).unwrap()).await.unwrap();
    let deleted = async || {
        world.namespaces().delete("n", &DeleteParams::default()).await.unwrap();
    };
    let (code, why) = refusal(world.create_meanwhile(deleted).await);
    let expected = "secrets \"s\" is forbidden: unable to create new content in namespace n because it is being terminated";
    assert_eq!((code, &*why), (403, expected));
    let freed = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &freed).await.unwrap();
}

#[tokio::test]
async fn a_create_succeeds_if_its_namespace_is_updated_before_commit() {
    let world = World::new().await;
    let changed = async || {
        let labels = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        world.namespaces().patch("n", &PatchParams::default(), &labels).await.unwrap();
    };
    world.create_meanwhile(changed).await.unwrap();
    assert_eq!(world.secrets().await, ["s"]);
}
