//! The objects of a cluster of ten thousand Pods, each of realistic size.

use serde_json::{Value, json};

use crate::PODS;

pub const NODES: usize = PODS / 20;
/// The number of Pods on the first node. The other nodes share the rest.
pub const PODS_OF_FIRST_NODE: usize = 100;
/// One Pod in this many is not ready and has a warning event.
const IN_TROUBLE: usize = 20;

fn node_of(pod: usize) -> usize {
    pod.checked_sub(PODS_OF_FIRST_NODE).map_or(0, |other| 1 + other % (NODES - 1))
}

/// Returns the Pod of this index, with this number of restarts.
pub fn pod(index: usize, restarts: u32) -> Value {
    let set = index / 10;
    let name = format!("web-{set}-7d9cf5b68-{index:05}");
    let environment: Vec<Value> = (0..10)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": "x".repeat(40)}))
        .collect();
    let amounts = json!({"cpu": "250m", "memory": "512Mi"});
    let ready = !index.is_multiple_of(IN_TROUBLE);
    let status = if ready { "True" } else { "False" };
    // Creation, scheduling, start, end and readiness of each Pod have times of their own.
    let at =
        |hour: usize| format!("2026-01-01T{hour:02}:{:02}:{:02}Z", index / 60 % 60, index % 60);
    let condition = |kind: &str| json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": at(kind.len() % 3)});
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let digest = "0123456789abcdef".repeat(4);
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("00000000-0000-4000-8000-{index:012}"),
            "resourceVersion": "1", "creationTimestamp": at(0),
            "labels": {"app": format!("web-{set}"), "pod-template-hash": "7d9cf5b68", "tier": "front"},
            "annotations": {"checksum/config": digest, "prometheus.io/scrape": "true"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{set}-7d9cf5b68"),
                "uid": format!("10000000-0000-4000-8000-{set:012}"), "controller": true,
            }],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}],
        },
        "spec": {
            "nodeName": format!("node-{}", node_of(index)), "serviceAccountName": "web",
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
            "phase": "Running", "podIP": format!("10.1.{}.{}", index / 250, index % 250 + 1), "hostIP": "192.0.2.1", "qosClass": "Guaranteed",
            "conditions": conditions.map(condition), "startTime": at(0),
            "containerStatuses": [{
                "name": "web", "ready": ready, "started": true, "restartCount": restarts,
                "image": "registry.example.com/shop/web:1.27.3",
                "imageID": format!("registry.example.com/shop/web@sha256:{digest}"),
                "containerID": format!("containerd://{digest}"),
                "state": {"running": {"startedAt": at(4)}},
                "lastState": {"terminated": {
                    "exitCode": 1, "reason": "Error", "startedAt": at(1), "finishedAt": at(3),
                }},
                "resources": {"requests": amounts, "limits": amounts}, "allocatedResources": amounts,
            }],
        },
    })
}

/// Returns a node in this zone.
pub fn node(index: usize, zone: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("node-{index}"), "uid": format!("30000000-0000-4000-8000-{index:012}"),
            "labels": {"topology.kubernetes.io/zone": zone, "kubernetes.io/arch": "amd64"},
        },
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Returns an object of a resource, in the form of a list; `used` is the CPU usage of a Pod in millicores.
pub fn object(resource: &str, index: usize, used: u64) -> Value {
    let set = format!("web-{index}");
    match resource {
        "pods" => pod(index, 1),
        "nodes" => node(index, "eu-1a"),
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
            let metadata = pod(index, 1)["metadata"].clone();
            let metadata = json!({"name": metadata["name"], "namespace": "default", "labels": metadata["labels"]});
            json!({
                "metadata": metadata, "timestamp": "2026-01-01T00:00:00Z", "window": "15s",
                "containers": [{"name": "web", "usage": {
                    "cpu": format!("{}n", used * 1_000_000), "memory": format!("{}Ki", 100_000 + index),
                }}],
            })
        }
        _ => json!({"metadata": {"name": format!("other-{index}"), "namespace": "default"}}),
    }
}

/// The resources of the cluster.
pub const LISTS: [&str; 7] =
    ["pods", "metrics", "nodes", "replicasets", "deployments", "services", "events"];

/// Returns the number of objects of a resource.
pub fn count(resource: &str) -> usize {
    match resource {
        "pods" | "metrics" => PODS,
        "nodes" => NODES,
        "replicasets" | "deployments" | "services" => PODS / 10,
        "events" => PODS / IN_TROUBLE,
        _ => 0,
    }
}
