//! What a Pod takes in the memory of the program, with all that is looked at beside it.
//!
//! A cluster of ten thousand Pods is played, each as large as Pods are; what the process takes more
//! than before is divided by them. That includes what was shown of them before, of which there is a bound for all
//! (32 MiB). `cargo bench --bench pod_memory`

use std::convert::Infallible;
use std::time::{Duration, Instant};

use aggregated_apiserver::{InProcess, User};
use anyhow::{Context, Result, ensure};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use mimalloc::MiMalloc;
use serde_json::{Value, json};

/// As in the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const PODS: usize = 10_000;
/// How many of them are on a node.
const PODS_OF_A_NODE: usize = 20;
/// Each of so many is in trouble, and has a warning.
const IN_TROUBLE: usize = 20;
const PATIENCE: Duration = Duration::from_secs(120);

fn pod(index: usize) -> Value {
    let set = index / 10;
    let name = format!("web-{set}-7d9cf5b68-{index:05}");
    let environment: Vec<Value> = (0..10)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": "x".repeat(40)}))
        .collect();
    let amounts = json!({"cpu": "250m", "memory": "512Mi"});
    let ready = !index.is_multiple_of(IN_TROUBLE);
    let status = if ready { "True" } else { "False" };
    let condition = |kind: &str| json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let digest = "0123456789abcdef".repeat(4);
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("00000000-0000-4000-8000-{index:012}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": format!("web-{set}"), "pod-template-hash": "7d9cf5b68", "tier": "front"},
            "annotations": {"checksum/config": digest, "prometheus.io/scrape": "true"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{set}-7d9cf5b68"),
                "uid": format!("10000000-0000-4000-8000-{set:012}"), "controller": true,
            }],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}],
        },
        "spec": {
            "nodeName": format!("node-{}", index / PODS_OF_A_NODE), "serviceAccountName": "web",
            "restartPolicy": "Always", "priority": 0, "schedulerName": "default-scheduler",
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:1.27.3", "env": environment,
                "resources": {"requests": amounts, "limits": amounts},
                "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token"}],
            }],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "hostIP": "192.0.2.1", "qosClass": "Guaranteed",
            "conditions": conditions.map(condition), "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{
                "name": "web", "ready": ready, "started": true, "restartCount": 1,
                "image": "registry.example.com/shop/web:1.27.3",
                "imageID": format!("registry.example.com/shop/web@sha256:{digest}"),
                "containerID": format!("containerd://{digest}"),
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                "lastState": {"terminated": {
                    "exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z",
                    "finishedAt": "2026-01-01T00:00:00Z",
                }},
                "resources": {"requests": amounts, "limits": amounts}, "allocatedResources": amounts,
            }],
        },
    })
}

fn object(resource: &str, index: usize) -> Value {
    let zone = json!({"topology.kubernetes.io/zone": "eu-1a", "kubernetes.io/arch": "amd64"});
    let set = format!("web-{index}");
    match resource {
        "pods" => pod(index),
        "nodes" => json!({
            "metadata": {"name": format!("node-{index}"), "labels": zone},
            "status": {
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }),
        "replicasets" => json!({"metadata": {
            "name": format!("{set}-7d9cf5b68"), "namespace": "default",
            "uid": format!("10000000-0000-4000-8000-{index:012}"),
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": set,
                "uid": format!("20000000-0000-4000-8000-{index:012}"), "controller": true,
            }],
        }}),
        "deployments" => json!({"metadata": {
            "name": set, "namespace": "default", "uid": format!("20000000-0000-4000-8000-{index:012}"),
            "labels": {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": set},
        }}),
        "services" => json!({
            "metadata": {"name": set, "namespace": "default"}, "spec": {"selector": {"app": set}},
        }),
        "events" => json!({
            "metadata": {"name": format!("event-{index}"), "namespace": "default"},
            "type": "Warning", "reason": "Unhealthy", "count": 7,
            "message": "Readiness probe failed: HTTP probe failed with statuscode: 503",
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {
                "kind": "Pod", "uid": format!("00000000-0000-4000-8000-{:012}", index * IN_TROUBLE),
                "fieldPath": "spec.containers{web}",
            },
        }),
        "metrics" => {
            let metadata = pod(index)["metadata"].clone();
            let metadata = json!({"name": metadata["name"], "namespace": "default", "labels": metadata["labels"]});
            json!({
                "metadata": metadata, "timestamp": "2026-01-01T00:00:00Z", "window": "15s",
                "containers": [{"name": "web", "usage": {"cpu": "119847360n", "memory": "123456Ki"}}],
            })
        }
        _ => json!({"metadata": {"name": format!("other-{index}"), "namespace": "default"}}),
    }
}

/// How many there are of a resource.
fn count(resource: &str) -> usize {
    match resource {
        "pods" | "metrics" => PODS,
        "nodes" => PODS / PODS_OF_A_NODE,
        "replicasets" | "deployments" | "services" => PODS / 10,
        "events" => PODS / IN_TROUBLE,
        _ => 0,
    }
}

/// Lists objects that are made as they are asked for, and shows no changes.
async fn answer(request: Request<kube::client::Body>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse::<usize>().ok())
    };
    if query.contains("watch=true") {
        return Ok(Response::new(Body::from_stream(futures::stream::pending::<
            Result<Vec<u8>, Infallible>,
        >())));
    }
    let resource = path.rsplit('/').next().unwrap_or_default();
    let resource = match path.starts_with("/apis/metrics.k8s.io/") {
        true if resource == "pods" => "metrics",
        true => "nothing",
        false => resource,
    };
    let all = count(resource);
    let begin = parameter("continue").unwrap_or(0);
    let end = parameter("limit").map_or(all, |limit| all.min(begin + limit));
    let items: Vec<Value> = (begin..end).map(|index| object(resource, index)).collect();
    let next = if end < all { json!(end.to_string()) } else { json!(null) };
    let body = json!({
        "kind": "List", "apiVersion": "v1",
        "metadata": {"resourceVersion": "1", "continue": next}, "items": items,
    });
    Ok(Response::new(Body::from(body.to_string())))
}

/// What the process takes, in bytes.
fn resident() -> Result<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).context("no resident pages")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// A server in whose view all Pods are; what it shows of the first one.
async fn serve() -> Result<(InProcess, Value)> {
    let client = Client::new(tower::service_fn(answer), "default");
    let server = farm_operator::server().in_process(client).await?;
    let groups = vec!["system:masters".to_owned()];
    let user = User { name: "admin".to_owned(), groups, ..User::default() };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let path = "/apis/farm.example.com/v1alpha/farmpods?limit=1";
        let request = Request::get(path).body(Body::empty())?;
        let response = server.respond(user.clone(), request).await;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap_or_default();
        let shown = &list["items"][0];
        let is_measured = shown["status"]["resources"]["cpu"]["usage"].is_string();
        if status == StatusCode::OK && is_measured {
            ensure!(list["metadata"]["remainingItemCount"] == PODS - 1, "{list}");
            return Ok((server, shown.clone()));
        }
        ensure!(Instant::now() < deadline, "{status}: {list}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // What the allocator keeps of what was read to make the first one, the second one takes.
    let (_first, shown) = serve().await?;
    let status = &shown["status"];
    ensure!(status["owner"]["kind"] == "Deployment", "{status}");
    ensure!(status["release"]["tool"] == "Helm", "{status}");
    ensure!(status["services"] == json!(["web-0"]), "{status}");
    ensure!(status["why"]["code"] == "ReadinessProbe", "{status}");
    let before = resident()?;
    let (_second, _) = serve().await?;
    let taken = resident()?.saturating_sub(before) / PODS;
    println!("a Pod takes {taken} bytes; it is shown in {}", shown.to_string().len());
    Ok(())
}
