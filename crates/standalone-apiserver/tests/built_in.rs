//! Built-in kinds from the viewpoint of kube-rs clients. The comparison with kube-apiserver tests each response; these
//! tests cover the sequences that programs rely on.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, LimitRange, Namespace, Node, ObjectReference, Pod, Service,
};
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{EventType, Recorder, Reporter};
use kube::runtime::wait::await_condition;
use kube::runtime::wait::conditions::is_deleted;
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use tokio::time::timeout;

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(30);

async fn server() -> (TestServer, Client) {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    (server, client)
}

fn object<K: DeserializeOwned>(tree: Value) -> K {
    serde_json::from_value(tree).unwrap()
}

fn pod(node: Option<&str>) -> Pod {
    object(json!({
        "metadata": {"name": "a"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }))
}

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn events_are_the_same_objects_in_both_api_groups() {
    let (_server, client) = server().await;
    let reporter = Reporter { controller: "example.com/c".to_owned(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let about = ObjectReference {
        kind: Some("Pod".to_owned()),
        name: Some("p".to_owned()),
        namespace: Some("default".to_owned()),
        ..ObjectReference::default()
    };
    let event = kube::runtime::events::Event {
        type_: EventType::Warning,
        reason: "Slipped".to_owned(),
        note: Some("on a peel".to_owned()),
        action: "Walking".to_owned(),
        secondary: None,
    };
    recorder.publish(&event, &about).await.unwrap();
    let core: Api<Event> = Api::default_namespaced(client.clone());
    let of_pod = ListParams::default().fields("involvedObject.name=p,type=Warning");
    let found = core.list(&of_pod).await.unwrap().items;
    assert_eq!(found[0].message.as_deref(), Some("on a peel"));
    let new: Api<NewEvent> = Api::default_namespaced(client);
    // A repeated event becomes a series of the same event.
    recorder.publish(&event, &about).await.unwrap();
    let found = new.list(&ListParams::default().fields("regarding.name=p")).await.unwrap().items;
    assert_eq!((found.len(), found[0].series.as_ref().map(|series| series.count)), (1, Some(2)));
    core.delete(&found[0].name_any(), &DeleteParams::default()).await.unwrap();
    assert!(new.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_lease_update_with_a_stale_or_missing_resource_version_is_rejected() {
    let (_server, client) = server().await;
    let leases: Api<Lease> = Api::default_namespaced(client);
    let lease: Lease = object(json!({
        "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"},
    }));
    let held = leases.create(&PostParams::default(), &lease).await.unwrap();
    assert_eq!(code(leases.create(&PostParams::default(), &lease).await.unwrap_err()), 409);
    let mut mine = held.clone();
    mine.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
    leases.replace("leader", &PostParams::default(), &mine).await.unwrap();
    // A replace with an old resourceVersion conflicts; one without a resourceVersion is invalid.
    assert_eq!(
        code(leases.replace("leader", &PostParams::default(), &held).await.unwrap_err()),
        409
    );
    mine.metadata.resource_version = None;
    assert_eq!(
        code(leases.replace("leader", &PostParams::default(), &mine).await.unwrap_err()),
        422
    );
}

#[tokio::test]
async fn a_deleted_pod_on_a_node_exists_until_its_grace_period_ends() {
    let (server, client) = server().await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod(None)).await.unwrap();
    // The Pod is not assigned to a node.
    let gone = pods.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(gone.left().is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()));
    assert!(pods.get_opt("a").await.unwrap().is_none());
    let uid = pods.create(&PostParams::default(), &pod(Some("n"))).await.unwrap().uid().unwrap();
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    let going = pods.get("a").await.unwrap();
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(30));
    // The Pod is deleted when its grace period is over, by the clock of the server.
    let gone = await_condition(pods.clone(), "a", is_deleted(&uid));
    server.advance(Duration::from_secs(31));
    timeout(PATIENCE, gone).await.unwrap().unwrap();
    // A grace period of 0 deletes the Pod at once.
    pods.create(&PostParams::default(), &pod(Some("n"))).await.unwrap();
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_namespace_does_not_wait_for_pods() {
    let (_server, client) = server().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let made = object(json!({"metadata": {"generateName": "made-"}}));
    let made = namespaces.create(&PostParams::default(), &made).await.unwrap();
    let (name, uid) = (made.name_any(), made.uid().unwrap());
    assert_eq!(made.labels().get("kubernetes.io/metadata.name"), Some(&name));
    let pods: Api<Pod> = Api::namespaced(client.clone(), &name);
    pods.create(&PostParams::default(), &pod(Some("n"))).await.unwrap();
    // Nor does it wait for an object with foreground deletion, for which no garbage collector runs.
    let maps: Api<ConfigMap> = Api::namespaced(client, &name);
    let map = object(json!({"metadata": {"name": "m"}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(maps.delete("m", &DeleteParams::foreground()).await.unwrap().is_left());
    let marked = namespaces.delete(&name, &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(marked.status.unwrap().phase.as_deref(), Some("Terminating"));
    let gone = await_condition(namespaces, &name, is_deleted(&uid));
    timeout(PATIENCE, gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn services_get_distinct_cluster_ips_and_keep_them() {
    let (_server, client) = server().await;
    let services: Api<Service> = Api::default_namespaced(client);
    let service = |name: &str, kind: &str| -> Service {
        object(json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}}))
    };
    let mut addresses = Vec::new();
    for (name, kind) in [("a", "ClusterIP"), ("b", "NodePort")] {
        let made = services.create(&PostParams::default(), &service(name, kind)).await.unwrap();
        let spec = made.spec.unwrap();
        addresses.push(spec.cluster_ip.unwrap());
        let has_port = spec.ports.unwrap()[0].node_port.is_some();
        assert_eq!(has_port, kind == "NodePort");
    }
    assert_ne!(addresses[0], addresses[1]);
    // A replace without the address keeps the address, also if the client has never read it.
    let again = services.replace("a", &PostParams::default(), &service("a", "ClusterIP")).await;
    assert_eq!(again.unwrap().spec.unwrap().cluster_ip.as_deref(), Some(&*addresses[0]));
    let moved = json!({"spec": {"clusterIP": "10.96.9.9"}});
    let moved = services.patch("a", &PatchParams::default(), &Patch::Merge(moved)).await;
    assert_eq!(code(moved.unwrap_err()), 422);
}

#[tokio::test]
async fn job_pod_templates_are_labelled_with_job_name_and_uid() {
    let (_server, client) = server().await;
    let jobs: Api<Job> = Api::default_namespaced(client);
    let job: Job = object(json!({
        "metadata": {"generateName": "count-"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    }));
    let made = jobs.create(&PostParams::default(), &job).await.unwrap();
    let labels = made.spec.as_ref().unwrap().template.metadata.clone().unwrap().labels.unwrap();
    assert_eq!(labels["batch.kubernetes.io/job-name"], made.name_any());
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], made.uid().unwrap());
    let more =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}});
    let changed = jobs.patch(&made.name_any(), &PatchParams::default(), &Patch::Merge(more)).await;
    assert_eq!(code(changed.unwrap_err()), 422);
}

#[tokio::test]
async fn objects_loaded_at_startup_are_defaulted_and_keep_their_status() {
    let uid = "0a1b2c3d-0000-4000-8000-000000000000";
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"capacity": {"memory": "1024Mi", "cpu": "0.5"}},
    });
    let running = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": "10.1.2.3"},
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": uid},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        "status": {"succeeded": 1},
    });
    let server = TestServer::builder().objects([node, running, job]).start().await.unwrap();
    let client = server.client();
    let node = Api::<Node>::all(client.clone()).get("n").await.unwrap().status.unwrap();
    let allocatable = node.allocatable.unwrap();
    assert_eq!((&*allocatable["memory"].0, &*allocatable["cpu"].0), ("1Gi", "500m"));
    let pod = Api::<Pod>::default_namespaced(client.clone()).get("p").await.unwrap();
    let status = pod.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert_eq!(status.pod_ips.unwrap()[0].ip, "10.1.2.3");
    let job = Api::<Job>::default_namespaced(client).get("j").await.unwrap();
    assert_eq!(job.uid().as_deref(), Some(uid));
    let selected = job.spec.unwrap().selector.unwrap().match_labels.unwrap();
    assert_eq!(selected["batch.kubernetes.io/controller-uid"], uid);
    assert_eq!(job.status.unwrap().succeeded, Some(1));
}

#[tokio::test]
async fn expired_pods_are_deleted_during_continuous_writes() {
    let (server, client) = server().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let uid = pods.create(&PostParams::default(), &pod(Some("n"))).await.unwrap().uid().unwrap();
    let busy: Pod = object(json!({
        "metadata": {"name": "busy"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    }));
    pods.create(&PostParams::default(), &busy).await.unwrap();
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    server.advance(Duration::from_secs(31));
    let changing = tokio::spawn({
        let pods = pods.clone();
        async move {
            for count in 0.. {
                let label = json!({"metadata": {"labels": {"count": count.to_string()}}});
                pods.patch("busy", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    let gone = await_condition(pods, "a", is_deleted(&uid));
    timeout(PATIENCE, gone).await.unwrap().unwrap();
    changing.abort();
}

#[tokio::test]
async fn a_namespace_waits_for_finalizers() -> anyhow::Result<()> {
    let server = TestServer::builder().start().await?;
    let namespaces: Api<Namespace> = Api::all(server.client());
    let held = json!({"metadata": {"name": "held"}, "spec": {"finalizers": ["example.com/hold"]}});
    let held: Namespace = serde_json::from_value(held)?;
    let uid = namespaces.create(&PostParams::default(), &held).await?.uid().context("uid")?;
    namespaces.delete("held", &DeleteParams::default()).await?;
    let only_held = |namespace: Option<&Namespace>| {
        let spec = namespace.and_then(|namespace| namespace.spec.as_ref());
        let finalizers = spec.and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
        finalizers == ["example.com/hold"]
    };
    let mut live = timeout(PATIENCE, await_condition(namespaces.clone(), "held", only_held))
        .await??
        .context("a namespace")?;
    live.spec.get_or_insert_default().finalizers = None;
    live.metadata.resource_version = None;
    namespaces.replace_subresource("finalize", "held", &PostParams::default(), &live).await?;
    timeout(PATIENCE, await_condition(namespaces, "held", is_deleted(&uid))).await??;
    Ok(())
}

#[tokio::test]
async fn pods_get_defaults_from_priority_classes_and_limit_ranges() -> anyhow::Result<()> {
    let (server, client) = server().await;
    let post = PostParams::default();
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let system = classes.get("system-node-critical").await?;
    assert_eq!(system.value, Some(2_000_001_000));
    let class = json!({"metadata": {"name": "high"}, "value": 7, "globalDefault": true});
    classes.create(&post, &object(class)).await?;
    let ranges: Api<LimitRange> = Api::default_namespaced(client.clone());
    let range = json!({"metadata": {"name": "a"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}},
    ]}});
    ranges.create(&post, &object(range)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let created = pods.create(&post, &pod(None)).await?;
    let spec = serde_json::to_value(created.spec)?;
    assert_eq!((&spec["priorityClassName"], &spec["priority"]), (&json!("high"), &json!(7)));
    let resources = json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}});
    assert_eq!(spec["containers"][0]["resources"], resources);
    let mut greedy = json!(pod(None));
    greedy["metadata"]["name"] = "b".into();
    greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}});
    let refused = pods.create(&post, &object(greedy)).await.map(drop);
    let why = refused.err().context("it asks for too much")?.to_string();
    assert!(why.contains("maximum cpu usage per Container is 2, but limit is 3"), "{why}");
    drop(server);
    Ok(())
}
