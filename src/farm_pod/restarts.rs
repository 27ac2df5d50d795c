//! The last end of a container, and the restarts of a Pod as a table cell.

use aggregated_apiserver::strategy::age;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status;
use super::view::{PodView, TerminatedView};

/// The last end of a container, whether or not it was restarted.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastEnd {
    /// The name of the container.
    pub container: String,
    /// The time of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The reason, for example `OOMKilled`, `Error` or `Completed`.
    pub reason: String,
    /// The exit code.
    pub exit_code: i32,
}

/// The last end of any container of a Pod.
pub fn last_end(pod: &PodView) -> Option<LastEnd> {
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let ends = statuses.flat_map(|container| {
        let states = [&container.last_state, &container.state];
        states.map(|state| (&*container.name, state.terminated.as_deref()))
    });
    let ends = ends.filter_map(|(name, ended)| Some((name, ended?)));
    let (container, ended) = ends.max_by_key(|(_, ended)| finished(ended))?;
    Some(LastEnd {
        container: container.to_owned(),
        time: ended.finished_at.time(),
        reason: status::end(ended),
        exit_code: ended.exit_code,
    })
}

fn finished(ended: &TerminatedView) -> Option<Timestamp> {
    ended.finished_at.timestamp()
}

/// Formats the restarts, for example `3 (5m ago)`.
pub fn cell(restarts: i64, last: Option<&Time>, now: Timestamp) -> String {
    match last {
        Some(last) if restarts != 0 => format!("{restarts} ({} ago)", age(last.0, now)),
        _ => restarts.to_string(),
    }
}
