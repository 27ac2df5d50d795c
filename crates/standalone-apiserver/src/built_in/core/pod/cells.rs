//! The cells of Pods.

use aggregated_apiserver::strategy::age;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodCondition,
    PodSpec,
};

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

/// The summary of the statuses of a Pod's containers.
#[derive(Default)]
struct Summary {
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    /// The phase, or the reason for which a container waits or has terminated.
    reason: String,
}

impl Summary {
    /// Summarizes the init containers first; if they are done, the regular containers.
    fn of(pod: &Pod) -> Self {
        let mut summary = Self { reason: reason(pod), ..Self::default() };
        // Sidecars are init containers that continue to run with the regular containers.
        let mut of_sidecars = Self::default();
        let is_initializing = summary.add_init_containers(&mut of_sidecars, pod);
        if !is_initializing || has_condition(pod, "Initialized") {
            let Self { ready, reason, .. } = summary;
            summary = Self { ready, reason, ..of_sidecars };
            summary.add_containers(pod);
        }
        summary
    }

    /// Adds the init containers. Returns whether one of them is not done.
    fn add_init_containers(&mut self, of_sidecars: &mut Self, pod: &Pod) -> bool {
        let containers =
            pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        for (index, status) in init_statuses(pod).iter().enumerate() {
            let mut of_name = containers.iter().filter(|container| container.name == status.name);
            let is_sidecar = of_name.any(is_sidecar);
            self.add_restarts(status);
            if is_sidecar {
                of_sidecars.add_restarts(status);
            }
            let state = status.state.clone().unwrap_or_default();
            let why = match (&state.terminated, &state.waiting) {
                (Some(ended), _) if ended.exit_code == 0 => continue,
                _ if is_sidecar && status.started == Some(true) => {
                    self.ready += usize::from(status.ready);
                    continue;
                }
                (Some(ended), _) => end(ended),
                (None, Some(ContainerStateWaiting { reason: Some(reason), .. }))
                    if !reason.is_empty() && reason != "PodInitializing" =>
                {
                    reason.clone()
                }
                _ => format!("{index}/{}", containers.len()),
            };
            self.reason = format!("Init:{why}");
            return true;
        }
        false
    }

    fn add_containers(&mut self, pod: &Pod) {
        let mut is_one_running = false;
        let mut failure = None;
        for status in statuses(pod).iter().rev() {
            self.add_restarts(status);
            let Some(state) = &status.state else { continue };
            let waits = state.waiting.as_ref().and_then(|state| state.reason.clone());
            if let Some(reason) = waits.filter(|reason| !reason.is_empty()) {
                self.reason = reason;
            } else if let Some(ended) = &state.terminated {
                self.reason = end(ended);
                if ended.exit_code != 0 {
                    failure = Some(end(ended));
                }
            } else if status.ready && state.running.is_some() {
                is_one_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if is_one_running && has_condition(pod, "Ready") {
                "Running".clone_into(&mut self.reason);
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if is_one_running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }

    fn add_restarts(&mut self, status: &ContainerStatus) {
        self.restarts += i64::from(status.restart_count);
        let ended = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let ended = ended.and_then(|ended| ended.finished_at.as_ref()).map(|time| time.0);
        self.last_restart = self.last_restart.max(ended);
    }
}

/// The reason for which a container has terminated.
fn end(ended: &ContainerStateTerminated) -> String {
    match (&ended.reason, ended.signal) {
        (Some(reason), _) if !reason.is_empty() => reason.clone(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", ended.exit_code),
    }
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn ready_containers(pod: &Pod) -> String {
    let of_spec = |spec: &PodSpec| {
        let sidecars = spec.init_containers.iter().flatten().filter(|one| is_sidecar(one));
        spec.containers.len() + sidecars.count()
    };
    format!("{}/{}", Summary::of(pod).ready, pod.spec.as_ref().map_or(0, of_spec))
}

/// The phase of a Pod, or the reason for which one of its containers waits or has terminated.
fn status(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let reason = status.reason.filter(|reason| !reason.is_empty());
    if pod.metadata.deletion_timestamp.is_some() {
        if reason.as_deref() == Some("NodeLost") {
            return "Unknown".to_owned();
        }
        if !matches!(phase.as_str(), "Succeeded" | "Failed") {
            return "Terminating".to_owned();
        }
    }
    Summary::of(pod).reason
}

/// The status of a Pod without its containers.
fn reason(pod: &Pod) -> String {
    let is_gated = conditions(pod).iter().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("SchedulingGated")
    });
    if is_gated {
        return "SchedulingGated".to_owned();
    }
    let Some(status) = &pod.status else { return String::new() };
    let reason = status.reason.clone().filter(|reason| !reason.is_empty());
    reason.or_else(|| status.phase.clone()).unwrap_or_default()
}

fn restarts(pod: &Pod, now: Timestamp) -> String {
    let Summary { restarts, last_restart, .. } = Summary::of(pod);
    match last_restart.filter(|_| restarts != 0) {
        Some(last) => format!("{restarts} ({} ago)", age(last, now)),
        None => restarts.to_string(),
    }
}

fn readiness_gates(pod: &Pod) -> String {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let Some(gates) = gates.filter(|gates| !gates.is_empty()) else {
        return NONE.to_owned();
    };
    let open = gates.iter().filter(|gate| has_condition(pod, &gate.condition_type)).count();
    format!("{open}/{}", gates.len())
}

fn conditions(pod: &Pod) -> &[PodCondition] {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default()
}

/// Whether a condition is true.
fn has_condition(pod: &Pod, wanted: &str) -> bool {
    conditions(pod).iter().any(|one| one.type_ == wanted && one.status == "True")
}

fn init_statuses(pod: &Pod) -> &[ContainerStatus] {
    let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_deref());
    statuses.unwrap_or_default()
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
    fn a_pod_is_printed_as_a_table_row() {
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
    fn pod_status_column_reports_reasons_of_pod_and_containers() {
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
        let lost = json!({
            "metadata": {"deletionTimestamp": "2024-05-01T12:00:00Z"},
            "status": {"phase": "Running", "reason": "NodeLost"},
        });
        assert_eq!(cells(columns(), lost)["Status"], "Unknown");
        let both = |first: Value, second: Value, conditions: Value| {
            let statuses =
                json!([{"ready": true, "state": first}, {"ready": true, "state": second}]);
            let status = json!({"conditions": conditions, "containerStatuses": statuses});
            cells(columns(), json!({"status": status}))["Status"].clone()
        };
        let completed = json!({"terminated": {"reason": "Completed", "exitCode": 0}});
        let failed = json!({"terminated": {"reason": "Error", "exitCode": 1}});
        let runs = json!({"running": {}});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(both(completed.clone(), failed, json!([])), "Error");
        assert_eq!(both(completed.clone(), runs.clone(), json!([])), "NotReady");
        assert_eq!(both(completed, runs, ready), "Running");
        let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        assert_eq!(cells(columns(), evicted)["Status"], "Evicted");
    }

    #[test]
    fn pod_status_column_reports_unfinished_init_containers_first() {
        let pod = |status: Value, conditions: Value| {
            let sidecar = json!({"name": "s", "restartPolicy": "Always"});
            let started = json!({"name": "s", "ready": true, "started": true, "restartCount": 2});
            let runs =
                json!({"name": "c", "ready": true, "restartCount": 1, "state": {"running": {}}});
            let pod = json!({
                "spec": {"initContainers": [sidecar, {"name": "i"}], "containers": [{"name": "c"}]},
                "status": {
                    "phase": "Pending", "conditions": conditions,
                    "initContainerStatuses": [started, status], "containerStatuses": [runs],
                },
            });
            let cells = cells(columns(), pod);
            ["Ready", "Status", "Restarts"].map(|name| cells[name].as_str().unwrap().to_owned())
        };
        let init = |state: Value| json!({"name": "i", "restartCount": 4, "state": state});
        let ended = |ended: Value| init(json!({"terminated": ended}));
        assert_eq!(pod(init(json!({"running": {}})), json!([])), ["1/2", "Init:1/2", "6"]);
        let waits = init(json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        assert_eq!(pod(waits, json!([])), ["1/2", "Init:CrashLoopBackOff", "6"]);
        let failed = ended(json!({"exitCode": 3, "signal": 9}));
        assert_eq!(pod(failed, json!([])), ["1/2", "Init:Signal:9", "6"]);
        // The restarts of completed init containers do not count.
        assert_eq!(pod(ended(json!({"exitCode": 0})), json!([])), ["2/2", "Pending", "3"]);
        let initialized = json!([{"type": "Initialized", "status": "True"}]);
        assert_eq!(pod(init(json!({"running": {}})), initialized), ["2/2", "Init:1/2", "3"]);
    }

    #[test]
    fn pod_status_column_reports_scheduling_gates() {
        let gated =
            json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        let pod = json!({"status": {"phase": "Pending", "conditions": gated}});
        assert_eq!(cells(columns(), pod)["Status"], "SchedulingGated");
    }
}
