use super::*;
use aggregated_apiserver::computed::check_field_permissions;
use serde_json::{Value, json};

fn lookup<
    K: aggregated_apiserver::computed::SourceType,
    S: aggregated_apiserver::computed::LookupOptions,
>(
    objects: &[Value],
) -> Lookup<K, S> {
    Lookup::from_objects(objects.iter().map(|one| serde_json::from_value(one.clone()).unwrap()))
}

fn pod(name: &str, node: &str, phase: &str, cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu, "memory": "1Gi"}});
    json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"nodeName": node, "containers": [{"name": "a", "resources": resources}]},
        "status": {"phase": phase},
    })
}

fn show(node: Value, pods: &[Value], metrics: &[Value]) -> FarmNode {
    let node = serde_json::from_value(node).unwrap();
    FarmNode::compute(&node, &(lookup(pods), lookup(metrics))).unwrap()
}

fn node() -> Value {
    json!({
        "metadata": {"name": "meadow", "labels": {"topology.kubernetes.io/zone": "eu-1a"}},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "29"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Linux"},
        },
    })
}

#[test]
fn requests_of_unfinished_pods_on_a_node_are_summed() {
    let pods = [
        pod("a", "meadow", "Running", "250m"),
        pod("b", "meadow", "Pending", "0.25"),
        pod("done", "meadow", "Succeeded", "1"),
        pod("failed", "meadow", "Failed", "1"),
        pod("elsewhere", "stable", "Running", "1"),
    ];
    let metrics = [json!({
        "metadata": {"name": "meadow"}, "usage": {"cpu": "600000001n", "memory": "1Gi"},
    })];
    let shown = show(node(), &pods, &metrics);
    assert_eq!(shown.metadata.name.as_deref(), Some("farm-meadow"));
    let expected = json!({
        "state": "Ready",
        "node": {"name": "meadow", "zone": "eu-1a", "spot": false, "ready": true, "cordoned": false},
        "pods": 2, "mostPods": "29",
        "cpu": {
            "allocatable": "2", "requested": "500m", "free": "1500m", "used": "601m",
            "percentRequested": 25, "percentUsed": 30,
        },
        "memory": {
            "allocatable": "4Gi", "requested": "2Gi", "free": "2Gi", "used": "1Gi",
            "percentRequested": 50, "percentUsed": 25,
        },
        "versions": {"kubelet": "v1.36.3", "operatingSystem": "Linux"},
    });
    assert_eq!(serde_json::to_value(shown.status.as_ref().unwrap()).unwrap(), expected);
    let status = shown.status.unwrap();
    assert_eq!(status.cpu.cell(resources::cpu_cell).as_deref(), Some("2 (25%, 30%)"));
    assert_eq!(status.memory.cell(resources::memory_cell).as_deref(), Some("4Gi (50%, 25%)"));
}

/// Results of a lookup appear in the fields that are declared for it, and nowhere else.
#[test]
fn farm_node_fields_computed_from_lookups_are_declared() {
    let pods = [pod("a", "meadow", "Running", "250m")];
    let usage = json!({"cpu": "600m", "memory": "1Gi"});
    let metrics = [json!({"metadata": {"name": "meadow"}, "usage": usage})];
    let of = |node: Value| serde_json::from_value(node).unwrap();
    let related = || (lookup(&pods), lookup(&metrics));
    assert_eq!(check_field_permissions::<FarmNode>(&of(node()), related), Ok(()));
}

#[test]
fn more_may_be_requested_than_there_is() {
    let status = show(node(), &[pod("a", "meadow", "Running", "3")], &[]).status.unwrap();
    assert_eq!(status.cpu.free.as_deref(), Some("0"));
    assert_eq!(status.cpu.cell(resources::cpu_cell).as_deref(), Some("2 (150%)"));
    let bare = show(json!({"metadata": {"name": "x"}}), &[], &[]).status.unwrap();
    let expected = json!({"requested": "0"});
    assert_eq!(serde_json::to_value(&bare.cpu).unwrap(), expected);
    assert_eq!((bare.state.as_str(), bare.why), ("Unknown", None));
}

#[test]
fn a_farm_node_reports_why_its_node_is_not_ready() {
    let mut node = node();
    node["spec"] = json!({"unschedulable": true});
    assert_eq!(show(node.clone(), &[], &[]).status.unwrap().state, "Ready,SchedulingDisabled");
    node["status"]["conditions"] = json!([{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let status = show(node, &[], &[]).status.unwrap();
    assert_eq!(status.state, "NotReady,SchedulingDisabled");
    let why = status.why.unwrap();
    assert_eq!(why.code, "NodeStatusUnknown");
    assert_eq!(why.message, "Kubelet stopped posting node status.");
}

#[test]
fn small_changes_of_usage_are_not_worth_an_event() {
    let used = |cpu: &str| {
        let metrics = json!({"metadata": {"name": "meadow"}, "usage": {"cpu": cpu}});
        show(node(), &[], &[metrics])
    };
    assert!(!FarmNode::is_worth_publishing(&used("1"), &used("1.08")));
    assert!(FarmNode::is_worth_publishing(&used("1"), &used("1.1")));
    assert!(FarmNode::is_worth_publishing(&used("1"), &show(node(), &[], &[])));
}

#[test]
fn names() {
    assert_eq!(FarmNode::source_name("farm-meadow").as_deref(), Some("meadow"));
    assert_eq!(FarmNode::source_name("meadow"), None);
}
