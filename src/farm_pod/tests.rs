use super::*;
use aggregated_apiserver::computed::{LookupOptions, SourceType, check_field_permissions};
use jiff::Timestamp;
use kube::CustomResourceExt;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

const PODS: &str = include_str!("../../tests/pods.yaml");

/// Pods in every state.
pub(super) fn pods() -> Vec<PodView> {
    PODS.split("\n---\n").map(|pod| serde_saphyr::from_str(pod).unwrap()).collect()
}

fn lookup<K: SourceType, S: LookupOptions>(objects: &[Value]) -> Lookup<K, S> {
    let read = |object: &Value| serde_json::from_value(object.clone()).unwrap();
    Lookup::from_objects(objects.iter().map(read))
}

/// The objects of a cluster besides the Pod.
#[derive(Default)]
struct Cluster {
    sets: Vec<Value>,
    jobs: Vec<Value>,
    deployments: Vec<Value>,
    cron_jobs: Vec<Value>,
    others: Vec<Value>,
    nodes: Vec<Value>,
    services: Vec<Value>,
    budgets: Vec<Value>,
    claims: Vec<Value>,
    events: Vec<Value>,
    metrics: Vec<Value>,
}

impl Cluster {
    fn show(&self, pod: &PodView) -> FarmPod {
        FarmPod::compute(pod, &self.related()).unwrap()
    }

    fn related(&self) -> <FarmPod as Computed>::Related {
        let usual = (
            lookup(&self.sets),
            lookup(&self.jobs),
            lookup(&self.deployments),
            lookup(&self.cron_jobs),
        );
        let owners = (usual, MetadataLookup::from_objects(self.others.clone()).unwrap());
        let (nodes, services) = (lookup(&self.nodes), lookup(&self.services));
        let (warnings, metrics) = (lookup(&self.events), lookup(&self.metrics));
        let held = ((lookup(&self.budgets), lookup(&self.budgets)), lookup(&self.claims));
        (owners, nodes, services, warnings, metrics, held)
    }

    fn status(&self, pod: Value) -> FarmPodStatus {
        self.show(&serde_json::from_value(pod).unwrap()).status.unwrap()
    }
}

/// Name, ready, status and restarts of each Pod, then the code of its cause. kube-apiserver shows the same name, ready,
/// status and restarts; `tests/control_plane/farm_pods.rs` checks that.
const SHOWN: &[(&str, &str, &str, &str, &str)] = &[
    ("runs", "1/1", "Running", "0", ""),
    ("restarted", "2/2", "Running", "3 (24h ago)", ""),
    ("crash-loop", "1/2", "CrashLoopBackOff", "7 (47h ago)", "CrashLoopBackOff"),
    ("out-of-memory", "0/1", "CrashLoopBackOff", "3 (47h ago)", "OOMKilled"),
    ("killed-just-now", "0/1", "OOMKilled", "0", "OOMKilled"),
    ("ended-by-signal", "0/1", "Signal:9", "0", "Signal:9"),
    ("ended-without-reason", "0/1", "ExitCode:127", "0", "ExitCode:127"),
    ("image-missing", "0/1", "ImagePullBackOff", "0", "ImagePullBackOff"),
    ("image-named-wrongly", "0/1", "InvalidImageName", "0", "InvalidImageName"),
    ("config-missing", "0/1", "CreateContainerConfigError", "0", "CreateContainerConfigError"),
    ("being-made", "0/1", "ContainerCreating", "0", "ContainerCreating"),
    ("not-heard-of", "0/1", "Pending", "0", "NotStarted"),
    ("unschedulable", "0/1", "Pending", "0", "Unschedulable"),
    ("gated", "0/1", "SchedulingGated", "0", "SchedulingGated"),
    ("not-looked-at", "0/1", "Pending", "0", "NotScheduled"),
    ("init-second", "0/1", "Init:1/2", "1 (47h ago)", "Initializing"),
    ("init-crash-loop", "0/1", "Init:CrashLoopBackOff", "4 (47h ago)", "CrashLoopBackOff"),
    ("init-failed", "0/1", "Init:Error", "0", "Error"),
    ("init-ended-by-signal", "0/1", "Init:Signal:11", "0", "Signal:11"),
    ("init-image-missing", "0/1", "Init:ErrImagePull", "0", "ErrImagePull"),
    ("sidecar", "2/2", "Running", "3 (47h ago)", ""),
    ("sidecar-starts", "0/2", "Init:0/2", "0", "Initializing"),
    ("sidecar-crashes", "1/2", "Init:CrashLoopBackOff", "5 (47h ago)", "CrashLoopBackOff"),
    ("probe-fails", "0/1", "Running", "0", "ReadinessProbe"),
    ("starts-slowly", "0/1", "Running", "0", "StartupProbe"),
    ("readiness-gate", "1/1", "Running", "0", "ReadinessGatesNotReady"),
    ("evicted", "0/1", "Error", "0", "Evicted"),
    ("not-admitted", "0/1", "OutOfcpu", "0", "OutOfcpu"),
    ("job-done", "0/1", "Completed", "0", ""),
    ("half-done", "1/2", "NotReady", "0", "ContainersNotReady"),
    ("one-of-two-failed", "0/2", "Error", "0", "Error"),
    ("deadline-exceeded", "0/1", "DeadlineExceeded", "0", "DeadlineExceeded"),
    ("ends", "1/1", "Terminating", "0", "Terminating"),
    ("ends-and-is-done", "0/1", "Completed", "0", "Terminating"),
    ("lost", "1/1", "Unknown", "0", "Terminating"),
    ("resize-infeasible", "1/1", "Running", "0", "ResizeInfeasible"),
];

#[test]
fn farm_pods_have_the_ready_status_and_restarts_of_kubectl() {
    let now: Timestamp = "2026-01-03T00:00:00Z".parse().unwrap();
    let cluster = Cluster::default();
    let pods = pods();
    assert_eq!(pods.len(), SHOWN.len());
    for (pod, expected) in pods.iter().zip(SHOWN) {
        let farm_pod = cluster.show(pod);
        let status = farm_pod.status.as_ref().unwrap();
        let restarts = restarts::cell(status.restarts, status.last_restart_time.as_ref(), now);
        let why = status.why.as_ref().map_or("", |why| why.code.as_str());
        let name = farm_pod.spec.pod.as_str();
        let row = (name, status.ready.as_str(), status.state.as_str(), restarts.as_str(), why);
        assert_eq!(row, *expected);
    }
}

fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
}

fn owned(name: &str, uid: &str, owner: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": uid, "ownerReferences": [owner]}})
}

fn workloads() -> Cluster {
    let mut cron_job = owned("nightly", "c", reference("example.com/v1", "Backup", "all", "b"));
    cron_job["metadata"]["labels"] = json!({"argocd.argoproj.io/instance": "shop"});
    Cluster {
        sets: vec![owned("web-1", "set", reference("apps/v1", "Deployment", "web", "d"))],
        jobs: vec![owned("nightly-1", "job", reference("batch/v1", "CronJob", "nightly", "c"))],
        cron_jobs: vec![cron_job],
        ..Cluster::default()
    }
}

fn check_owner(reference: Value, expected: Option<(&str, &str)>) {
    let metadata = json!({"name": "p", "namespace": "n", "ownerReferences": [reference]});
    let owner = workloads().status(json!({"metadata": metadata})).owner;
    let found = owner.as_ref().map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    assert_eq!(found, expected);
}

#[test]
fn the_owner_is_the_workload() {
    let set = |uid| reference("apps/v1", "ReplicaSet", "web-1", uid);
    check_owner(set("set"), Some(("Deployment", "web")));
    let job = reference("batch/v1", "Job", "nightly-1", "job");
    check_owner(job, Some(("Backup", "all")));
    check_owner(reference("apps/v1", "StatefulSet", "db", "s"), Some(("StatefulSet", "db")));
    check_owner(reference("v1", "Node", "meadow", "m"), Some(("Node", "meadow")));
    // A ReplicaSet of the same name with another uid, one that does not exist, and one of another group.
    check_owner(set("old"), Some(("ReplicaSet", "web-1")));
    let missing = reference("apps/v1", "ReplicaSet", "web-2", "x");
    check_owner(missing, Some(("ReplicaSet", "web-2")));
    let other = reference("other/v1", "ReplicaSet", "web-1", "set");
    check_owner(other, Some(("ReplicaSet", "web-1")));
}

/// Owners of workloads can be of any kind, with or without a namespace, and can be circular.
#[test]
fn owners_are_of_any_kind() {
    let object = |kind: &str, name: &str, namespace: Option<&str>, owner: Value| {
        let uid = format!("uid-{name}");
        let mut object = owned(name, &uid, owner);
        object["apiVersion"] = "example.com/v1".into();
        object["kind"] = kind.into();
        object["metadata"]["namespace"] = namespace.into();
        object
    };
    let to =
        |kind: &str, name: &str| reference("example.com/v1", kind, name, &format!("uid-{name}"));
    let mut set = object("StatefulSet", "db", Some("n"), to("Database", "main"));
    set["apiVersion"] = "apps/v1".into();
    let mut elsewhere = object("Tenant", "farm", Some("m"), to("Other", "other"));
    elsewhere["metadata"]["labels"] = json!({"argocd.argoproj.io/instance": "wrong"});
    let cluster = Cluster {
        others: vec![
            set,
            object("Database", "main", Some("n"), to("Tenant", "farm")),
            elsewhere,
            object("Tenant", "farm", None, to("Database", "main")),
        ],
        ..workloads()
    };
    let owner = reference("apps/v1", "StatefulSet", "db", "uid-db");
    let metadata = json!({"name": "p", "namespace": "n", "ownerReferences": [owner]});
    let status = cluster.status(json!({"metadata": metadata}));
    assert_eq!(status.owners, ["StatefulSet/db", "Database/main", "Tenant/farm"]);
    let owner = status.owner.unwrap();
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Tenant", "farm"));
    assert_eq!(status.release, None);
}

#[test]
fn a_release_can_come_from_an_owner_of_the_pod() {
    let job = reference("batch/v1", "Job", "nightly-1", "job");
    let metadata = json!({"name": "p", "namespace": "n", "ownerReferences": [job]});
    let status = workloads().status(json!({"metadata": metadata}));
    assert_eq!(status.owners, ["Job/nightly-1", "CronJob/nightly", "Backup/all"]);
    let release = status.release.unwrap();
    assert_eq!((release.tool.as_str(), release.name.as_str()), ("ArgoCD", "shop"));
}

#[test]
fn a_pod_with_only_a_name_becomes_an_unscheduled_farm_pod() {
    let farm_pod = Cluster::default()
        .show(&serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap());
    let shown = serde_json::to_value(&farm_pod).unwrap();
    let expected = json!({
        "apiVersion": "farm.example.com/v1alpha",
        "kind": "FarmPod",
        "metadata": {"name": "farm-p"},
        "spec": {"pod": "p", "containers": 0},
        "status": {
            "state": "", "ready": "0/0", "restarts": 0, "resources": {},
            "why": {"code": "NotScheduled", "message": "no scheduler has looked at it yet"},
            "findings": ["NakedPod", "DefaultServiceAccount"],
        },
    });
    assert_eq!(shown, expected);
}

#[test]
fn farm_pod_status_contains_all_facts_of_a_pod() {
    let cluster = Cluster {
        nodes: vec![json!({
            "metadata": {"name": "meadow", "labels": {"topology.kubernetes.io/zone": "north"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })],
        claims: vec![json!({
            "metadata": {"namespace": "n", "name": "grain"},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "8Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
        })],
        ..Cluster::default()
    };
    let status = cluster.status(json!({
        "metadata": {
            "name": "p", "namespace": "n", "labels": {"app": "web"},
            "annotations": {"a": "b", "meta.helm.sh/release-name": "farm"},
        },
        "spec": {
            "nodeName": "meadow", "serviceAccountName": "feeder", "priority": 7,
            "priorityClassName": "high",
            "containers": [{
                "name": "a", "image": "example.com/a:1",
                "resources": {"requests": {"cpu": "250m", "memory": "1Gi", "example.com/gpu": "1"}},
            }],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "grain"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "config", "configMap": {"name": "c"}},
            ],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "a", "ready": true, "restartCount": 1, "state": {"running": {}},
                "lastState": {"terminated": {
                    "exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z",
                }},
            }],
        },
    }));
    let expected = json!({
        "state": "Running", "phase": "Running", "ready": "1/1", "restarts": 1,
        "lastRestartTime": "2026-01-01T00:00:00Z",
        "lastEnd": {
            "container": "a", "exitCode": 137, "reason": "OOMKilled",
            "time": "2026-01-01T00:00:00Z",
        },
        "release": {"tool": "Helm", "name": "farm"},
        "node": {"name": "meadow", "zone": "north", "spot": false, "ready": true, "cordoned": false},
        "resources": {
            "cpu": {"request": "250m"}, "memory": {"request": "1Gi"},
            "extended": {"example.com/gpu": "1"},
        },
        "images": [{"container": "a", "repository": "example.com/a", "tag": "1"}],
        "claims": [
            {"name": "grain", "phase": "Bound", "size": "10Gi", "storageClass": "fast"},
            {"name": "p-scratch"},
        ],
        "findings": ["NoLimits", "NoProbes", "NakedPod", "Root"],
        "qosClass": "Burstable", "priority": 7, "priorityClass": "high",
        "serviceAccount": "feeder", "ip": "10.0.0.1",
    });
    assert_eq!(serde_json::to_value(status).unwrap(), expected);
}

#[test]
fn matching_disruption_budgets_limit_the_allowed_disruptions() {
    let budget = |name: &str, selector: Value, allowed: Value| {
        json!({
            "metadata": {"namespace": "n", "name": name, "generation": 1},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
        })
    };
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let cluster = Cluster {
        budgets: vec![
            budget("all", json!({}), json!(3)),
            budget("none", json!(null), json!(0)),
            budget("other", app("db"), json!(0)),
            budget("unsaid", app("web"), json!(null)),
            budget("web", app("web"), json!(1)),
        ],
        ..Cluster::default()
    };
    let status = |labels: Value| {
        let metadata = json!({"namespace": "n", "name": "p", "labels": labels});
        cluster.status(json!({"metadata": metadata}))
    };
    let web = status(json!({"app": "web"}));
    let cell = budgets::cell(&web.budgets);
    assert_eq!(cell.as_deref(), Some("all (3), unsaid, web (1)"));
    assert_eq!(web.disruptions_allowed, Some(0));
    let naked = status(json!({}));
    assert_eq!(budgets::cell(&naked.budgets).as_deref(), Some("all (3)"));
    assert_eq!(naked.disruptions_allowed, Some(3));
}

/// kube-apiserver writes `disruptionsAllowed: 0` for a budget that has not been counted, and evicts nothing until it
/// has been counted. So the Pod's number of allowed evictions is zero, and the budget's own number is unknown.
#[test]
fn a_disruption_budget_with_outdated_status_allows_no_disruption() {
    let status = |observed: i64, allowed: i64| {
        let budget = json!({
            "metadata": {"namespace": "n", "name": "web", "generation": 2},
            "spec": {"selector": {}},
            "status": {
                "disruptionsAllowed": allowed, "currentHealthy": 0, "desiredHealthy": 0,
                "expectedPods": 0, "observedGeneration": observed,
            },
        });
        let cluster = Cluster { budgets: vec![budget], ..Cluster::default() };
        cluster.show(
            &serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "p"}})).unwrap(),
        )
    };
    let check = |farm_pod: &FarmPod, cell: &str, allowed: Option<i64>| {
        let status = farm_pod.status.as_ref().unwrap();
        assert_eq!(budgets::cell(&status.budgets).as_deref(), Some(cell));
        assert_eq!(status.disruptions_allowed, allowed);
    };
    let (uncounted, counted) = (status(0, 0), status(2, 0));
    check(&uncounted, "web", Some(0));
    // Counters from before the last change of the budget are unknown too.
    check(&status(1, 3), "web", Some(0));
    check(&counted, "web (0)", Some(0));
    check(&status(2, 3), "web (3)", Some(3));
    assert!(FarmPod::is_worth_publishing(&uncounted, &counted), "that it was counted is news");
    assert!(!FarmPod::is_worth_publishing(&counted, &counted));
}

/// Same decisions as kube-apiserver's eviction.
#[test]
fn pending_finished_and_some_unready_pods_are_exempt_from_disruption_budgets() {
    let check = |pod: Value, policy: Value, counted: Value, expected: Option<i64>| {
        let status = json!({
            "disruptionsAllowed": 0, "currentHealthy": counted[0], "desiredHealthy": counted[1],
            "observedGeneration": counted[2],
        });
        let budget = json!({
            "metadata": {"namespace": "n", "name": "web", "generation": 2},
            "spec": {"selector": {}, "unhealthyPodEvictionPolicy": policy},
            "status": status,
        });
        let mut pod = pod;
        pod["metadata"]["namespace"] = json!("n");
        pod["metadata"]["name"] = json!("p");
        let of = |budgets: Vec<Value>| {
            let cluster = Cluster { budgets, ..Cluster::default() };
            cluster.status(pod.clone()).disruptions_allowed
        };
        assert_eq!(of(vec![budget]), expected, "{pod} {policy} {counted}");
        assert_eq!(of(vec![]), None);
    };
    let in_phase = |phase: &str, ready: &str| json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    let ready = || in_phase("Running", "True");
    let unready = || in_phase("Running", "False");
    let (short, enough) = (json!([1, 2, 2]), json!([2, 2, 2]));
    check(ready(), json!(null), short.clone(), Some(0));
    check(ready(), json!("AlwaysAllow"), enough.clone(), Some(0));
    for phase in ["Pending", "Succeeded", "Failed"] {
        check(in_phase(phase, "True"), json!(null), short.clone(), None);
    }
    let mut deleted = ready();
    deleted["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    check(deleted, json!(null), short.clone(), None);
    check(unready(), json!("AlwaysAllow"), short.clone(), None);
    check(unready(), json!(null), short.clone(), Some(0));
    check(unready(), json!("IfHealthyBudget"), short, Some(0));
    check(unready(), json!(null), enough.clone(), None);
    check(unready(), json!("IfHealthyBudget"), enough, None);
    // The budget requires no ready Pod, so it has none to spare.
    check(unready(), json!(null), json!([0, 0, 2]), Some(0));
}

#[test]
fn farm_pods_list_the_services_that_select_the_pod() {
    let service = |name: &str, namespace: &str, selector: Value| {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"metadata": metadata, "spec": {"selector": selector}})
    };
    let cluster = Cluster {
        services: vec![
            service("web", "n", json!({"app": "web"})),
            service("other", "n", json!({"app": "other"})),
            service("both", "n", json!({"app": "web", "tier": "front"})),
            service("none", "n", json!({})),
            service("by-hand", "n", json!(null)),
            service("elsewhere", "m", json!({"app": "web"})),
        ],
        ..Cluster::default()
    };
    let services = |labels: Value| {
        let metadata = json!({"name": "p", "namespace": "n", "labels": labels});
        cluster.status(json!({"metadata": metadata})).services
    };
    assert_eq!(services(json!({"app": "web"})), ["web"]);
    assert_eq!(services(json!({"app": "web", "tier": "front"})), ["both", "web"]);
    assert_eq!(services(json!({})), [] as [&str; 0]);
}

#[test]
fn farm_pods_report_usage_as_percentages_of_requests_and_limits() {
    let usage = |cpu: &str| {
        let containers = json!([{"name": "a", "usage": {"cpu": cpu, "memory": "512Mi"}}]);
        let metadata = json!({"name": "p", "namespace": "n"});
        let metrics = vec![json!({"metadata": metadata, "containers": containers})];
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        let resources = json!({"requests": amounts, "limits": amounts});
        let spec = json!({"containers": [{"name": "a", "resources": resources}]});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        Cluster { metrics, ..Cluster::default() }.show(&pod)
    };
    let shown = usage("500m");
    let expected = json!({
        "cpu": {"request": "1", "limit": "1", "usage": "500m", "percentOfRequest": 50, "percentOfLimit": 50},
        "memory": {"request": "1Gi", "limit": "1Gi", "usage": "512Mi", "percentOfRequest": 50, "percentOfLimit": 50},
    });
    let resources = &shown.status.as_ref().unwrap().resources;
    assert_eq!(serde_json::to_value(resources).unwrap(), expected);
    assert!(!FarmPod::is_worth_publishing(&shown, &usage("550m")));
    assert!(FarmPod::is_worth_publishing(&shown, &usage("750m")));
}

#[test]
fn warning_events_refine_the_reason_of_a_pending_pod() {
    let cluster = Cluster {
        events: vec![json!({
            "metadata": {"name": "e", "namespace": "n"}, "type": "Warning", "reason": "FailedMount",
            "message": "no such claim", "firstTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "Pod", "uid": "u"},
        })],
        ..Cluster::default()
    };
    let code = |uid: &str, phase: &str| {
        let metadata = json!({"name": "p", "namespace": "n", "uid": uid});
        let status = json!({"phase": phase});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "m"}, "status": status});
        cluster.status(pod).why.map(|why| why.code)
    };
    assert_eq!(code("u", "Pending").as_deref(), Some("FailedMount"));
    assert_eq!(code("v", "Pending").as_deref(), Some("NotStarted"));
    assert_eq!(code("u", "Running"), None);
}

#[test]
fn farm_pods_copy_labels_and_read_only_known_annotations() {
    let pod: PodView = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "labels": {"app": "web"},
            "annotations": {"a": "b", "meta.helm.sh/release-name": "farm"},
            "managedFields": [{"manager": "kubectl"}],
        },
    }))
    .unwrap();
    let annotations = &pod.metadata.rare.as_ref().unwrap().annotations;
    assert_eq!(**annotations, [("meta.helm.sh/release-name", "farm".into())]);
    let ObjectMeta { labels, annotations, managed_fields, .. } =
        Cluster::default().show(&pod).metadata;
    assert_eq!(serde_json::to_value(labels).unwrap(), json!({"app": "web"}));
    assert_eq!((annotations, managed_fields), (None, None));
}

/// A cluster in which every lookup finds something for a Pod of this name.
fn crowded(pod: &str) -> Cluster {
    let metadata = |name: &str| json!({"namespace": "n", "name": name});
    let amounts = json!({"cpu": "100m", "memory": "64Mi"});
    let budget = json!({
        "metadata": metadata("all"), "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 2, "currentHealthy": 1, "desiredHealthy": 3},
    });
    Cluster {
        nodes: vec![json!({
            "metadata": {"name": "meadow", "labels": {"topology.kubernetes.io/zone": "north"}},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        })],
        services: vec![json!({"metadata": metadata("web"), "spec": {"selector": {"app": "web"}}})],
        budgets: vec![budget],
        claims: vec![json!({
            "metadata": metadata("grain"), "spec": {"storageClassName": "fast"},
            "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
        })],
        events: vec![json!({
            "metadata": metadata("e"), "type": "Warning", "reason": "FailedMount",
            "message": "no such claim", "firstTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "Pod", "uid": "u"},
        })],
        metrics: vec![json!({
            "metadata": metadata(pod), "containers": [{"name": "a", "usage": amounts}],
        })],
        ..workloads()
    }
}

/// Results of a lookup appear in the fields that are declared for it, and nowhere else.
#[test]
fn farm_pod_fields_computed_from_lookups_are_declared() {
    let mut differing = 0;
    assert_eq!(PODS.split("\n---\n").count(), SHOWN.len());
    for (pod, (name, ..)) in PODS.split("\n---\n").zip(SHOWN) {
        let cluster = crowded(name);
        for owner in [
            reference("apps/v1", "ReplicaSet", "web-1", "set"),
            reference("batch/v1", "Job", "nightly-1", "job"),
        ] {
            let mut pod: Value = serde_saphyr::from_str(pod).unwrap();
            let metadata = &mut pod["metadata"];
            metadata["namespace"] = json!("n");
            metadata["uid"] = json!("u");
            metadata["labels"] = json!({"app": "web"});
            metadata["ownerReferences"] = json!([owner]);
            pod["spec"]["nodeName"] = json!("meadow");
            let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "grain"}});
            pod["spec"]["volumes"] = json!([claim]);
            let pod: PodView = serde_json::from_value(pod).unwrap();
            let checked = check_field_permissions::<FarmPod>(&pod, || cluster.related());
            assert_eq!(checked, Ok(()), "{name}");
            let status = cluster.show(&pod).status.unwrap();
            assert_eq!((&*status.services, status.budgets.len()), (&["web".to_owned()][..], 1));
            assert!(status.claims[0].phase.is_some() && status.resources.cpu.usage.is_some());
            differing += usize::from(status.disruptions_allowed.is_some());
        }
    }
    assert!(differing > 0, "some of them are kept by their budget");
}

#[test]
fn names() {
    assert_eq!(FarmPod::source_name("farm-web-1").as_deref(), Some("web-1"));
    assert_eq!(FarmPod::source_name("web-1"), None);
    assert_eq!(FarmPod::source_name("farm-"), None);
}

/// The paths of all scalar fields of a schema that are in no list or map.
fn scalars(schema: &Value, path: &str, found: &mut Vec<String>) {
    let properties = schema["properties"].as_object();
    for (name, member) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        match member["type"].as_str() {
            Some("object") => scalars(member, &path, found),
            Some("array") | None => {}
            Some(_) => found.push(path),
        }
    }
}

#[test]
fn every_scalar_is_selectable() {
    let definition = serde_json::to_value(FarmPod::crd()).unwrap();
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut expected = Vec::new();
    for part in ["spec", "status"] {
        scalars(&schema["properties"][part], &format!(".{part}"), &mut expected);
    }
    // Disk space has the same type as CPU and memory, but its usage is not measured.
    expected.retain(|path| {
        !path.starts_with(".status.resources.ephemeralStorage")
            || [".limit", ".request"].iter().any(|end| path.ends_with(end))
    });
    let fields = version["selectableFields"].as_array().unwrap();
    let mut selectable: Vec<&str> =
        fields.iter().map(|field| field["jsonPath"].as_str().unwrap()).collect();
    selectable.sort_unstable();
    expected.sort_unstable();
    assert_eq!(selectable, expected);
}
