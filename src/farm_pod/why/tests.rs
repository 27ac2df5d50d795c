use super::*;
use crate::farm_pod::tests::pods;
use serde_json::{Value, json};

/// Each Pod in trouble: its name, the message, the time since when, and the container of the cause, if any. The codes
/// are in the table of `farm_pod/tests.rs`.
const WHY: &[(&str, &str, &str, &str)] = &[
    (
        "crash-loop",
        "container a ended with exit code 1 after 7 restarts: no barn at localhost:5432",
        "2026-01-01T00:10:00Z",
        "a",
    ),
    (
        "out-of-memory",
        "container a ended with exit code 137 (SIGKILL) after 3 restarts",
        "2026-01-01T00:10:00Z",
        "a",
    ),
    (
        "killed-just-now",
        "container a ended with exit code 137 (SIGKILL)",
        "2026-01-01T00:10:00Z",
        "a",
    ),
    (
        "ended-by-signal",
        "container a ended with exit code 137 (SIGKILL)",
        "2026-01-01T00:10:00Z",
        "a",
    ),
    (
        "ended-without-reason",
        "container a ended with exit code 127 (the command was not found)",
        "2026-01-01T00:10:00Z",
        "a",
    ),
    (
        "image-missing",
        r#"container a: Back-off pulling image "example.com/none:1": ErrImagePull: not found"#,
        "2026-01-01T00:00:00Z",
        "a",
    ),
    (
        "image-named-wrongly",
        r#"container a: Failed to apply default image tag "example.com/None:1""#,
        "2026-01-01T00:00:00Z",
        "a",
    ),
    ("config-missing", r#"container a: configmap "none" not found"#, "2026-01-01T00:00:00Z", "a"),
    (
        "being-made",
        "its sandbox, network or volumes (data) are being made",
        "2026-01-01T00:00:00Z",
        "",
    ),
    (
        "not-heard-of",
        "the kubelet of node meadow has said nothing of it yet",
        "2026-01-01T00:00:00Z",
        "",
    ),
    (
        "unschedulable",
        "0/2 nodes are available: 2 Insufficient memory. no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.",
        "2026-01-01T00:00:00Z",
        "",
    ),
    (
        "gated",
        "Scheduling is blocked due to non-empty scheduling gates",
        "2026-01-01T00:00:00Z",
        "",
    ),
    ("not-looked-at", "no scheduler has looked at it yet", "2026-01-01T00:00:00Z", ""),
    ("init-second", "the others wait for init container j", "2026-01-01T00:00:03Z", "j"),
    (
        "init-crash-loop",
        "container i ended with exit code 2 after 4 restarts",
        "2026-01-01T00:05:00Z",
        "i",
    ),
    ("init-failed", "container i ended with exit code 2", "2026-01-01T00:05:00Z", "i"),
    (
        "init-ended-by-signal",
        "container i ended with exit code 139 (SIGSEGV)",
        "2026-01-01T00:05:00Z",
        "i",
    ),
    ("init-image-missing", "container i: not found", "2026-01-01T00:00:00Z", "i"),
    ("sidecar-starts", "the others wait for init container s", "2026-01-01T00:00:01Z", "s"),
    (
        "sidecar-crashes",
        "container s ended with exit code 143 (SIGTERM) after 5 restarts",
        "2026-01-01T01:00:00Z",
        "s",
    ),
    ("probe-fails", "container a does not pass its readiness probe", "2026-01-01T00:20:00Z", "a"),
    ("starts-slowly", "container a has not passed its startup probe", "2026-01-01T00:00:00Z", "a"),
    (
        "readiness-gate",
        r#"corresponding condition of pod readiness gate "example.com/fenced" does not exist."#,
        "2026-01-01T00:00:00Z",
        "",
    ),
    (
        "evicted",
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container a was using 2Gi, request is 0, has larger consumption of memory.",
        "2026-01-01T03:00:00Z",
        "",
    ),
    (
        "not-admitted",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, used: 0, capacity: 2000",
        "",
        "",
    ),
    ("half-done", "containers with unready status: [a]", "2026-01-01T00:01:00Z", ""),
    ("one-of-two-failed", "container b ended with exit code 3", "2026-01-01T00:02:00Z", "b"),
    ("deadline-exceeded", "Pod was active on the node longer than the specified deadline", "", ""),
    ("ends", "being deleted, held by example.com/hold", "2026-01-01T00:10:00Z", ""),
    ("ends-and-is-done", "being deleted, held by example.com/hold", "2026-01-01T00:10:30Z", ""),
    (
        "lost",
        "being deleted: Node meadow which was running pod lost is unresponsive",
        "2026-01-01T00:10:00Z",
        "",
    ),
    (
        "resize-infeasible",
        "Node didn't have enough capacity: cpu, requested: 64000, capacity: 4000",
        "2026-01-01T00:30:00Z",
        "",
    ),
];

#[test]
fn sample_pods_have_the_expected_problem_messages() {
    let mut expected = WHY.iter();
    for pod in pods() {
        let Some(why) = why(&pod, None) else { continue };
        let since = why.since.map(|since| since.0.to_string()).unwrap_or_default();
        let container = why.container.unwrap_or_default();
        let name = pod.metadata.name.unwrap();
        let found = (&*name, why.message.as_str(), since.as_str(), container.as_str());
        assert_eq!(Some(&found), expected.next());
    }
    assert_eq!(expected.next(), None);
}

fn of(name: &str) -> PodView {
    pods().into_iter().find(|pod| pod.metadata.name.as_deref() == Some(name)).unwrap()
}

fn node(ready: Value) -> NodeView {
    let status = json!({"conditions": [ready]});
    serde_json::from_value(json!({"metadata": {"name": "meadow"}, "status": status})).unwrap()
}

#[test]
fn a_node_that_is_not_ready_is_the_first_cause() {
    let away = node(json!({
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": "2026-01-01T05:00:00Z",
    }));
    let message = "node meadow is not ready: Kubelet stopped posting node status.";
    for name in ["runs", "crash-loop", "probe-fails", "not-heard-of"] {
        let why = why(&of(name), Some(&away)).unwrap();
        assert_eq!((why.code.as_str(), why.message.as_str()), ("NodeNotReady", message), "{name}");
        assert_eq!(why.since.unwrap().0.to_string(), "2026-01-01T05:00:00Z");
    }
    let why_of = |name: &str| why(&of(name), Some(&away)).unwrap();
    assert_eq!(why_of("ends").message, format!("being deleted, but {message}"));
    // A Pod that has ended is not affected by its node.
    assert_eq!(why_of("one-of-two-failed").code, "Error");
    let short = node(json!({"type": "Ready", "status": "False", "reason": "KubeletNotReady"}));
    let message = why(&of("runs"), Some(&short)).unwrap().message;
    assert_eq!(message, "node meadow is not ready: KubeletNotReady");
    let ready = node(json!({"type": "Ready", "status": "True"}));
    assert_eq!(why(&of("runs"), Some(&ready)), None);
    assert_eq!(why(&of("runs"), Some(&NodeView::default())), None);
}

#[test]
fn deletion_messages_contain_the_disruption_reason() {
    let mut pod = of("ends");
    pod.metadata.rare.as_mut().unwrap().finalizers = Vec::new().into();
    assert_eq!(why(&pod, None).unwrap().message, "being deleted");
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    pod.status.conditions = serde_json::from_value(json!([condition])).unwrap();
    assert_eq!(why(&pod, None).unwrap().message, "being deleted: Eviction API: evicting");
    pod.metadata.rare.as_mut().unwrap().deletion_grace_period_seconds = Some(i64::MAX);
    let deadline = why(&pod, None).unwrap().since.unwrap();
    assert_eq!(deadline.0.to_string(), "2026-01-01T00:10:30Z");
}

#[test]
fn messages_are_reduced_to_one_line_of_limited_length() {
    assert_eq!(one_line(" a\n\tb  c \n"), "a b c");
    let long = "ü".repeat(MESSAGE_CHARACTERS);
    assert_eq!(one_line(&long), long);
    assert_eq!(one_line(&format!("{long}!")), format!("{long}…"));
}

#[test]
fn a_failed_main_container_precedes_a_stopped_sidecar_as_the_cause() {
    let ended = |name: &str, exit_code: i32| json!({"name": name, "state": {"terminated": {"exitCode": exit_code, "reason": "Error"}}});
    let cause = |init: Value, main: Value, phase: &str| {
        let pod: PodView = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {
                "nodeName": "meadow", "restartPolicy": "Never", "containers": [{"name": "main"}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
            },
            "status": {"phase": phase, "initContainerStatuses": [init], "containerStatuses": [main]},
        }))
        .unwrap();
        why(&pod, None).and_then(|why| why.container)
    };
    assert_eq!(cause(ended("proxy", 143), ended("main", 1), "Failed").as_deref(), Some("main"));
    // If no main container has started, the sidecar is the cause.
    let waiting = json!({"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}});
    assert_eq!(cause(ended("proxy", 1), waiting, "Pending").as_deref(), Some("proxy"));
    let running = json!({"name": "main", "ready": true, "state": {"running": {}}});
    assert_eq!(cause(ended("proxy", 1), running, "Running").as_deref(), Some("proxy"));
}

#[test]
fn containers_with_exit_code_137_or_143_were_killed() {
    let pod = |exit_code: i32| -> PodView {
        let last = json!({"terminated": {"exitCode": exit_code}});
        let state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let status = json!({"name": "a", "state": state, "lastState": last});
        serde_json::from_value(json!({"status": {"containerStatuses": [status]}})).unwrap()
    };
    assert!(was_killed(&pod(137), Some("a")) && was_killed(&pod(143), Some("a")));
    assert!(!was_killed(&pod(1), Some("a")) && !was_killed(&pod(137), Some("b")));
    assert!(!was_killed(&pod(137), None));
}
