//! The cells of Pods.

use aggregated_apiserver::age;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::built_in::cell_texts::NONE;
use crate::built_in::row::Column;

pub(crate) fn columns() -> Vec<Column<Pod>> {
    let text = |heading, field: fn(&Pod) -> Option<String>| {
        Column::computed(heading, move |pod, _| field(pod).unwrap_or_else(|| NONE.to_owned()))
    };
    vec![
        Column::computed("Ready", |pod, _| ready_containers(pod)),
        Column::computed("Status", |pod, _| status(pod)),
        Column::computed("Restarts", restarts),
        Column::age(),
        text("IP", |pod| pod.status.as_ref()?.pod_ip.clone()).wide(),
        text("Node", |pod| pod.spec.as_ref()?.node_name.clone()).wide(),
        text("Nominated Node", |pod| pod.status.as_ref()?.nominated_node_name.clone()).wide(),
        Column::computed("Readiness Gates", |pod, _| readiness_gates(pod)).wide(),
    ]
}

fn ready_containers(pod: &Pod) -> String {
    let ready = statuses(pod).iter().filter(|status| status.ready).count();
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    format!("{ready}/{all}")
}

/// The phase of a Pod, or why one of its containers waits or has ended.
fn status(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.clone()).unwrap_or_default();
    let mut shown = status.and_then(|status| status.reason.clone()).unwrap_or(phase);
    let mut is_one_running = false;
    for container in statuses(pod).iter().rev() {
        let Some(state) = &container.state else { continue };
        let waits = state.waiting.as_ref().and_then(|state| state.reason.clone());
        if let Some(reason) = waits.filter(|reason| !reason.is_empty()) {
            shown = reason;
        } else if let Some(ended) = &state.terminated {
            shown = match (&ended.reason, ended.signal) {
                (Some(reason), _) if !reason.is_empty() => reason.clone(),
                (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
                _ => format!("ExitCode:{}", ended.exit_code),
            };
        } else if container.ready && state.running.is_some() {
            is_one_running = true;
        }
    }
    if shown == "Completed" && is_one_running {
        shown = "Running".to_owned();
    }
    match pod.metadata.deletion_timestamp {
        Some(_) => "Terminating".to_owned(),
        None => shown,
    }
}

fn restarts(pod: &Pod, now: Timestamp) -> String {
    let count: i32 = statuses(pod).iter().map(|status| status.restart_count).sum();
    let ends = statuses(pod).iter().filter_map(|status| {
        status.last_state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0)
    });
    match ends.max().filter(|_| count > 0) {
        Some(last) => format!("{count} ({} ago)", age(last, now)),
        None => count.to_string(),
    }
}

fn readiness_gates(pod: &Pod) -> String {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let Some(gates) = gates.filter(|gates| !gates.is_empty()) else {
        return NONE.to_owned();
    };
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let holds = |gate: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == gate && one.status == "True")
    };
    let open = gates.iter().filter(|gate| holds(&gate.condition_type)).count();
    format!("{open}/{}", gates.len())
}

fn statuses(pod: &Pod) -> &[ContainerStatus] {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    statuses.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::cells;
    use serde_json::{Value, json};

    #[test]
    fn its_table() {
        let pod = json!({
            "spec": {
                "containers": [{"name": "a"}, {"name": "b"}], "nodeName": "n",
                "readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "x", "status": "True"}, {"type": "y", "status": "False"}],
                "containerStatuses": [
                    {"ready": true, "restartCount": 2, "state": {"running": {}},
                     "lastState": {"terminated": {"finishedAt": "2024-05-01T11:59:00Z"}}},
                    {"ready": false, "restartCount": 1},
                ],
            },
        });
        assert_eq!(
            cells(columns(), pod),
            json!({
                "Ready": "1/2", "Status": "Running", "Restarts": "3 (60s ago)",
                "Age": "<unknown>", "IP": "10.0.0.1", "Node": "n", "Nominated Node": "<none>",
                "Readiness Gates": "1/2",
            })
        );
    }

    #[test]
    fn its_status_is_what_a_container_waits_for_or_ended_with() {
        let status = |state: Value| {
            let statuses = json!([{"ready": true, "state": state}]);
            let status = json!({"phase": "Running", "containerStatuses": statuses});
            cells(columns(), json!({"status": status}))["Status"].clone()
        };
        assert_eq!(status(json!({"waiting": {"reason": "ErrImagePull"}})), "ErrImagePull");
        assert_eq!(status(json!({"waiting": {}})), "Running");
        assert_eq!(status(json!({"terminated": {"reason": "Error", "exitCode": 1}})), "Error");
        assert_eq!(status(json!({"terminated": {"signal": 9, "exitCode": 1}})), "Signal:9");
        assert_eq!(status(json!({"terminated": {"exitCode": 3}})), "ExitCode:3");
        let deleted = json!({
            "metadata": {"deletionTimestamp": "2024-05-01T12:00:00Z"},
            "status": {"phase": "Running"},
        });
        assert_eq!(cells(columns(), deleted)["Status"], "Terminating");
        let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        assert_eq!(cells(columns(), evicted)["Status"], "Evicted");
    }
}
