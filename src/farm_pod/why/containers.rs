//! The cause why one of the containers of a Pod does not run well.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Why, is_over};
use crate::farm_pod::status;
use crate::farm_pod::view::{
    ContainerStatusView, ContainerView, PodView, StateView, TerminatedView, given,
};

/// Waiting reasons of a container without a problem.
const PROGRESS: &[&str] = &["ContainerCreating", "PodInitializing"];

/// Reasons of an end that are less informative than `CrashLoopBackOff`.
const COMMON_ENDS: &[&str] = &["Error", "Completed"];

/// Finds a container that cannot start, or that ended and should not have.
pub fn in_trouble(pod: &PodView) -> Option<Why> {
    let status = &pod.status;
    // Init containers run sequentially, so the first unfinished one blocks the rest.
    let in_init = status.init_container_statuses.iter().find(|one| !is_done(one, pod));
    if let Some(container) = in_init {
        let trouble = trouble(container, pod).or_else(|| initializing(container, pod));
        if trouble.is_some() {
            return trouble;
        }
    }
    let containers = || status.container_statuses.iter();
    let waiting = containers().filter(|container| container.state.terminated.is_none());
    let ended = containers().filter(|container| container.state.terminated.is_some());
    // Sidecars are last: if a Pod has ended, its sidecars were stopped for that reason.
    let sidecars = status.init_container_statuses.iter().filter(|one| is_sidecar(one, pod));
    let all = waiting.chain(ended).chain(sidecars);
    all.into_iter().find_map(|container| trouble(container, pod))
}

/// Whether a container was killed, for example because it failed its liveness probe.
pub fn was_killed(pod: &PodView, name: &str) -> bool {
    const KILLED: [i32; 2] = [137, 143];
    let status = &pod.status;
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let container = all.find(|container| *container.name == *name);
    let end = container.and_then(|one| ended(one).or(one.last_state.terminated.as_deref()));
    end.is_some_and(|end| KILLED.contains(&end.exit_code))
}

fn is_sidecar(status: &ContainerStatusView, pod: &PodView) -> bool {
    spec_of(status, pod).is_some_and(ContainerView::is_sidecar)
}

/// Whether an init container no longer blocks the others.
fn is_done(status: &ContainerStatusView, pod: &PodView) -> bool {
    let has_ended_well = ended(status).is_some_and(|ended| ended.exit_code == 0);
    let runs_beside = status.started == Some(true) && status.state.running.is_some();
    // The main containers have started, so a sidecar no longer blocks them.
    let has_let_go = pod.status.container_statuses.iter().any(|container| {
        let StateView { running, terminated, .. } = &container.state;
        running.is_some() || terminated.is_some() || container.last_state.terminated.is_some()
    });
    has_ended_well || (is_sidecar(status, pod) && (runs_beside || has_let_go))
}

fn trouble(container: &ContainerStatusView, pod: &PodView) -> Option<Why> {
    let about = |why: Why| Some(Why { container: Some((*container.name).to_owned()), ..why });
    let name = &container.name;
    if let Some(waiting) = &container.state.waiting {
        let reason = given(waiting.reason.as_ref()).filter(|one| !PROGRESS.contains(one))?;
        if let ("CrashLoopBackOff", Some(last)) =
            (reason, container.last_state.terminated.as_deref())
        {
            let end = status::end(last);
            let is_common =
                given(last.reason.as_ref()).is_none_or(|end| COMMON_ENDS.contains(&end));
            let code = if is_common { reason.to_owned() } else { end };
            let times = container.restart_count;
            let message = format!("container {name} {} after {times} restarts", how_it_ended(last));
            return about(Why::new(code, with_words(message, last), last.finished_at.time()));
        }
        let message = match given(waiting.message.as_ref()) {
            Some(message) => format!("container {name}: {message}"),
            None => format!("container {name} cannot start"),
        };
        return about(Why::new(reason, message, not_ready_since(pod)));
    }
    let ended = ended(container).filter(|ended| ended.exit_code != 0)?;
    let message = with_words(format!("container {name} {}", how_it_ended(ended)), ended);
    about(Why::new(status::end(ended), message, ended.finished_at.time()))
}

/// An init container runs, and the other containers wait for it.
fn initializing(container: &ContainerStatusView, pod: &PodView) -> Option<Why> {
    if is_over(pod) || container.state.waiting.is_some() {
        return None;
    }
    let StateView { running: Some(running), .. } = &container.state else { return None };
    let name = &container.name;
    let message = format!("the others wait for init container {name}");
    let why = Why::new("Initializing", message, running.started_at.time());
    Some(Why { container: Some((**name).to_owned()), ..why })
}

/// A container runs and is not ready.
pub fn not_ready(pod: &PodView) -> Option<Why> {
    if is_over(pod) {
        return None;
    }
    let status = &pod.status;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let container = all.into_iter().find(|container| {
        container.state.running.is_some() && !container.ready && lasts(container, pod)
    })?;
    let (name, spec) = (&container.name, spec_of(container, pod));
    let has_startup_probe = spec.is_some_and(|spec| spec.startup_probe.is_some());
    let has_readiness_probe = spec.is_some_and(|spec| spec.readiness_probe.is_some());
    let (code, message) = if has_startup_probe && container.started != Some(true) {
        ("StartupProbe", format!("container {name} has not passed its startup probe"))
    } else if has_readiness_probe {
        ("ReadinessProbe", format!("container {name} does not pass its readiness probe"))
    } else {
        ("NotReady", format!("container {name} is not ready"))
    };
    let why = Why::new(code, message, not_ready_since(pod));
    Some(Why { container: Some((**name).to_owned()), ..why })
}

/// Whether a container is expected to be ready; an init container that runs to completion is not.
fn lasts(status: &ContainerStatusView, pod: &PodView) -> bool {
    let mut of_init = pod.spec.init_containers.iter().filter(|one| one.name == status.name);
    of_init.next().is_none_or(ContainerView::is_sidecar)
}

fn spec_of<'a>(status: &ContainerStatusView, pod: &'a PodView) -> Option<&'a ContainerView> {
    let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    all.into_iter().find(|container| container.name == status.name)
}

fn ended(container: &ContainerStatusView) -> Option<&TerminatedView> {
    container.state.terminated.as_deref()
}

fn not_ready_since(pod: &PodView) -> Option<Time> {
    let condition = pod.status.condition("Ready").filter(|ready| !ready.is_true());
    let condition = condition.or_else(|| pod.status.condition("PodScheduled"));
    condition.and_then(|condition| condition.last_transition_time.time())
}

/// Formats an end, for example `ended with exit code 137 (SIGKILL)`.
fn how_it_ended(ended: &TerminatedView) -> String {
    match meaning(ended.exit_code) {
        Some(meaning) => format!("ended with exit code {} ({meaning})", ended.exit_code),
        None => format!("ended with exit code {}", ended.exit_code),
    }
}

/// The meaning of an exit code for shells and container runtimes.
fn meaning(exit_code: i32) -> Option<&'static str> {
    Some(match exit_code {
        126 => "the command cannot be executed",
        127 => "the command was not found",
        129 => "SIGHUP",
        130 => "SIGINT",
        131 => "SIGQUIT",
        132 => "SIGILL",
        134 => "SIGABRT",
        135 => "SIGBUS",
        136 => "SIGFPE",
        137 => "SIGKILL",
        139 => "SIGSEGV",
        141 => "SIGPIPE",
        143 => "SIGTERM",
        _ => return None,
    })
}

/// Appends the last message of the container.
fn with_words(message: String, ended: &TerminatedView) -> String {
    match given(ended.message.as_ref()) {
        Some(words) => format!("{message}: {words}"),
        None => message,
    }
}
