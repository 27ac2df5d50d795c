//! The state of a Pod in one word and its number of ready containers, same as in `kubectl get pods`. kube-apiserver
//! computes those columns; this module must compute the same values for every Pod.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::view::{ContainerStatusView, PodView, TerminatedView, given};

/// The summary of the containers of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// For example `Running`, `CrashLoopBackOff` or `Init:1/2`.
    pub state: String,
    /// The number of ready containers.
    pub ready: usize,
    /// The number of containers, including sidecars but no other init containers.
    pub containers: usize,
    /// The restarts of the containers.
    pub restarts: Restarts,
}

/// The restarts of containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restarts {
    /// The sum over all containers.
    pub count: i64,
    /// The time at which the last restarted container had ended before its restart.
    pub last: Option<Time>,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatusView) {
        self.count += i64::from(container.restart_count);
        let ended = container.last_state.terminated.as_ref();
        self.last = self.last.take().max(ended.and_then(|ended| ended.finished_at.time()));
    }
}

/// The progress of the init containers.
#[derive(Default)]
struct Initialization {
    /// The state of the init container that blocks the Pod, or `None` if initialization is complete.
    held_up: Option<String>,
    ready: usize,
    restarts: Restarts,
    restarts_of_sidecars: Restarts,
}

/// The summary of the main containers.
#[derive(Default)]
struct Run {
    /// The waiting reason or the end of the first container that waits or has ended.
    state: Option<String>,
    /// The end of the first container that failed.
    failure: Option<String>,
    ready: usize,
    restarts: Restarts,
}

impl Summary {
    /// Computes the summary of a Pod.
    pub fn of(pod: &PodView) -> Self {
        let spec = &pod.spec;
        let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar());
        let containers = spec.containers.len() + sidecars.count();
        let initialization = Initialization::of(pod);
        let (held_up, mut ready) = (initialization.held_up, initialization.ready);
        let mut restarts = initialization.restarts;
        // A Pod that was once initialized has started, whatever the state of its init containers now.
        let mut state = held_up.clone().unwrap_or_else(|| state_without_containers(pod));
        if held_up.is_none() || pod.status.has("Initialized") {
            let run = Run::of(pod, initialization.restarts_of_sidecars);
            ready += run.ready;
            state = run.state_in(pod, state);
            restarts = run.restarts;
        }
        state = being_deleted(pod).map_or(state, str::to_owned);
        Self { state, ready, containers, restarts }
    }

    /// Formats the ready containers, for example `1/2`.
    pub fn readiness(&self) -> String {
        format!("{}/{}", self.ready, self.containers)
    }
}

impl Initialization {
    fn of(pod: &PodView) -> Self {
        let containers = &pod.spec.init_containers;
        let mut found = Self::default();
        for (index, status) in pod.status.init_container_statuses.iter().enumerate() {
            let of_name = |name: &str| containers.iter().rfind(|one| *one.name == *name);
            let is_sidecar = of_name(&status.name).is_some_and(|one| one.is_sidecar());
            found.restarts.add(status);
            if is_sidecar {
                found.restarts_of_sidecars.add(status);
            }
            let ended = status.state.terminated.as_deref();
            if ended.is_some_and(|ended| ended.exit_code == 0) {
                continue;
            }
            if is_sidecar && status.started == Some(true) {
                found.ready += usize::from(status.ready);
                continue;
            }
            let waits = waits_for(status).filter(|reason| *reason != "PodInitializing");
            let why = match (ended, waits) {
                (Some(ended), _) => end(ended),
                (None, Some(reason)) => reason.to_owned(),
                (None, None) => format!("{index}/{}", containers.len()),
            };
            found.held_up = Some(format!("Init:{why}"));
            break;
        }
        found
    }
}

impl Run {
    fn of(pod: &PodView, restarts: Restarts) -> Self {
        let mut run = Self { restarts, ..Self::default() };
        for status in pod.status.container_statuses.iter().rev() {
            run.restarts.add(status);
            if let Some(reason) = waits_for(status) {
                run.state = Some(reason.to_owned());
            } else if let Some(ended) = &status.state.terminated {
                run.state = Some(end(ended));
                if ended.exit_code != 0 {
                    run.failure.clone_from(&run.state);
                }
            } else if status.ready && status.state.running.is_some() {
                run.ready += 1;
            }
        }
        run
    }

    /// Combines a state with that of the containers. A completed container does not decide the state while others run
    /// or have failed.
    fn state_in(&self, pod: &PodView, before: String) -> String {
        let state = self.state.clone().unwrap_or(before);
        if state != "Completed" {
            return state;
        }
        match &self.failure {
            _ if self.ready > 0 && has_true_condition(pod, "Ready") => "Running".to_owned(),
            Some(failure) => failure.clone(),
            None if self.ready > 0 => "NotReady".to_owned(),
            None => state,
        }
    }
}

/// Whether one of the conditions of this type is true.
fn has_true_condition(pod: &PodView, kind: &str) -> bool {
    pod.status.conditions.iter().any(|one| **one.type_ == *kind && one.is_true())
}

/// The state of a Pod that is being deleted, or `None` if it has ended or is not being deleted.
fn being_deleted(pod: &PodView) -> Option<&'static str> {
    pod.metadata.deletion_timestamp().time()?;
    if given(pod.status.reason.as_ref()) == Some("NodeLost") {
        return Some("Unknown");
    }
    let is_over = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    (!is_over).then_some("Terminating")
}

/// The state of a Pod without regard to its containers.
fn state_without_containers(pod: &PodView) -> String {
    let is_gated = pod.status.conditions.iter().any(|condition| {
        &**condition.type_ == "PodScheduled" && given(condition.reason) == Some("SchedulingGated")
    });
    if is_gated {
        return "SchedulingGated".to_owned();
    }
    let reason = given(pod.status.reason.as_ref());
    reason.or(pod.status.phase.as_deref()).unwrap_or_default().to_owned()
}

fn waits_for(status: &ContainerStatusView) -> Option<&str> {
    given(status.state.waiting.as_ref()?.reason.as_ref())
}

/// Formats the end of a container: its reason, for example `OOMKilled`, or else `Signal:9` or `ExitCode:3`.
pub fn end(ended: &TerminatedView) -> String {
    match (given(ended.reason.as_ref()), ended.signal) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        (None, _) => format!("ExitCode:{}", ended.exit_code),
    }
}
