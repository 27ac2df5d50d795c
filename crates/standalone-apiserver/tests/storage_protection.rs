//! Claims and volumes that are deleted stay while they are used.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::fmt::Debug;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";

fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn claim(name: &str) -> PersistentVolumeClaim {
    from(json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    }))
}

/// A Pod on a node with these volumes.
fn pod(name: &str, volumes: &Value) -> Pod {
    from(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": volumes,
        },
    }))
}

fn of_claim(claim: &str) -> Value {
    json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
}

struct World {
    _server: TestServer,
    client: Client,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    pods: Api<Pod>,
    post: PostParams,
}

impl World {
    async fn start() -> Self {
        let server = TestServer::builder().start().await.unwrap();
        let client = server.client();
        Self {
            _server: server,
            claims: Api::default_namespaced(client.clone()),
            volumes: Api::all(client.clone()),
            pods: Api::default_namespaced(client.clone()),
            client,
            post: PostParams::default(),
        }
    }

    async fn create_claim(&self, claim: &PersistentVolumeClaim) {
        let created = self.claims.create(&self.post, claim).await.unwrap();
        assert_eq!(created.finalizers(), [CLAIM_FINALIZER]);
    }

    /// Returns when the controller has handled all earlier changes of claims: it handles them in their order, and a claim that no
    /// Pod uses is deleted at once.
    async fn settle(&self) {
        self.create_claim(&claim("marker")).await;
        delete_at_once(&self.claims, "marker").await;
    }

    async fn assert_claim_waits(&self, name: &str) {
        self.settle().await;
        let waiting = self.claims.get(name).await.unwrap();
        assert_eq!(waiting.finalizers(), [CLAIM_FINALIZER], "{name}");
        assert!(waiting.metadata.deletion_timestamp.is_some(), "{name}");
    }
}

async fn delete<K>(api: &Api<K>, name: &str) -> String
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let uid = api.get_metadata(name).await.unwrap().uid().unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
    uid
}

async fn is_gone<K>(api: &Api<K>, name: &str, uid: &str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    await_condition(api.clone(), name, is_deleted(uid)).await.unwrap();
}

async fn delete_at_once<K>(api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let uid = delete(api, name).await;
    is_gone(api, name, &uid).await;
}

/// Deletes a Pod, and has it removed without its grace period.
async fn remove_pod(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

#[tokio::test]
async fn a_claim_is_deleted_only_after_the_last_pod_that_uses_it() {
    let world = World::start().await;
    world.create_claim(&claim("data")).await;
    for name in ["first", "second"] {
        world.pods.create(&world.post, &pod(name, &of_claim("data"))).await.unwrap();
    }
    let uid = delete(&world.claims, "data").await;
    world.assert_claim_waits("data").await;
    remove_pod(&world.pods, "first").await;
    world.assert_claim_waits("data").await;
    // A Pod whose containers have ended uses its claim until it is deleted.
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    world.pods.patch_status("second", &PatchParams::default(), &ended).await.unwrap();
    world.assert_claim_waits("data").await;
    remove_pod(&world.pods, "second").await;
    is_gone(&world.claims, "data", &uid).await;
}

#[tokio::test]
async fn a_claim_not_used_by_a_scheduled_pod_is_deleted_immediately() {
    let world = World::start().await;
    world.create_claim(&claim("data")).await;
    let mut pending = pod("pending", &of_claim("data"));
    pending.spec.as_mut().unwrap().node_name = None;
    world.pods.create(&world.post, &pending).await.unwrap();
    world.pods.create(&world.post, &pod("other", &of_claim("data-2"))).await.unwrap();
    // A Pod of another namespace uses a claim of that namespace.
    let elsewhere: Api<Pod> = Api::namespaced(world.client.clone(), "kube-public");
    elsewhere.create(&world.post, &pod("elsewhere", &of_claim("data"))).await.unwrap();
    delete_at_once(&world.claims, "data").await;
}

/// The claim of the ephemeral volume `v` of a Pod.
fn ephemeral_claim(pod: &Pod) -> PersistentVolumeClaim {
    let mut claim = claim(&format!("{}-v", pod.name_any()));
    claim.metadata.owner_references = Some(vec![pod.controller_owner_ref(&()).unwrap()]);
    claim
}

#[tokio::test]
async fn an_ephemeral_volume_protects_only_its_own_claim_until_its_pod_is_shut_down() {
    let world = World::start().await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    });
    let volumes = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]);
    let mut held = pod("held", &volumes);
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    let held = world.pods.create(&world.post, &held).await.unwrap();
    world.create_claim(&ephemeral_claim(&held)).await;
    world.pods.create(&world.post, &pod("other", &volumes)).await.unwrap();
    // A claim of this name that is not the Pod's own.
    world.create_claim(&claim("other-v")).await;
    delete_at_once(&world.claims, "other-v").await;

    let uid = delete(&world.claims, "held-v").await;
    world.assert_claim_waits("held-v").await;
    // The Pod stays, because of its finalizer.
    remove_pod(&world.pods, "held").await;
    is_gone(&world.claims, "held-v", &uid).await;
    assert!(world.pods.get("held").await.unwrap().metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn a_bound_persistent_volume_is_deleted_only_after_its_release() {
    let world = World::start().await;
    let volume = |name: &str| -> PersistentVolume {
        from(json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/data"},
            },
        }))
    };
    let phase = |phase: &str| Patch::Merge(json!({"status": {"phase": phase}}));
    for name in ["bound", "free"] {
        let created = world.volumes.create(&world.post, &volume(name)).await.unwrap();
        assert_eq!(created.finalizers(), [VOLUME_FINALIZER]);
    }
    world.volumes.patch_status("bound", &PatchParams::default(), &phase("Bound")).await.unwrap();
    let uid = delete(&world.volumes, "bound").await;
    delete_at_once(&world.volumes, "free").await;
    let waiting = world.volumes.get("bound").await.unwrap();
    assert_eq!(waiting.finalizers(), [VOLUME_FINALIZER]);
    world.volumes.patch_status("bound", &PatchParams::default(), &phase("Released")).await.unwrap();
    is_gone(&world.volumes, "bound", &uid).await;
}

#[tokio::test]
async fn storage_protection_does_not_remove_other_finalizers() {
    let world = World::start().await;
    let mut data = claim("data");
    data.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    let created = world.claims.create(&world.post, &data).await.unwrap();
    assert_eq!(created.finalizers(), ["example.com/hold", CLAIM_FINALIZER]);
    let version = created.resource_version().unwrap();
    let mut changes = world.claims.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    world.claims.delete("data", &DeleteParams::default()).await.unwrap();
    loop {
        let change = changes.next().await.unwrap().unwrap();
        let WatchEvent::Modified(claim) = change else { panic!("{change:?}") };
        if claim.finalizers() == ["example.com/hold"] {
            return;
        }
    }
}

#[tokio::test]
async fn a_volume_attributes_class_is_deleted_only_after_the_last_claim_that_uses_it() {
    let world = World::start().await;
    let classes: Api<VolumeAttributesClass> = Api::all(world.client.clone());
    for name in ["fast", "free"] {
        let class: VolumeAttributesClass = from(json!({
            "metadata": {"name": name}, "driverName": "example.com", "parameters": {"iops": "1"},
        }));
        let created = classes.create(&world.post, &class).await.unwrap();
        assert_eq!(created.finalizers(), [CLASS_FINALIZER]);
    }
    let mut data = claim("data");
    data.spec.as_mut().unwrap().volume_attributes_class_name = Some("fast".to_owned());
    world.create_claim(&data).await;
    let uid = delete(&classes, "fast").await;
    delete_at_once(&classes, "free").await;
    assert_eq!(classes.get("fast").await.unwrap().finalizers(), [CLASS_FINALIZER]);
    world.claims.delete("data", &DeleteParams::default()).await.unwrap();
    is_gone(&classes, "fast", &uid).await;
}
