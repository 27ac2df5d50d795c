//! Columns of the tables that kubectl shows.

use aggregated_apiserver::age;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;

use super::cell_texts::{NONE, or_none};
use super::label_selector::column as selector;
use super::pod_template::{containers, images};
use super::row::Column;

pub(super) fn definitions() -> Vec<Column<CustomResourceDefinition>> {
    vec![Column::path("Created At", ".metadata.creationTimestamp").of_type("date")]
}

pub(super) fn api_services() -> Vec<Column<APIService>> {
    vec![
        Column::computed("Service", |api, _| service(api)),
        Column::computed("Available", |api, _| available(api)),
        Column::age(),
    ]
}

fn service(api: &APIService) -> String {
    let service = api.spec.as_ref().and_then(|spec| spec.service.as_ref());
    service.map_or_else(
        || "Local".to_owned(),
        |service| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", text(&service.namespace), text(&service.name))
        },
    )
}

fn available(api: &APIService) -> String {
    let conditions = api.status.as_ref().and_then(|status| status.conditions.as_ref());
    let available =
        conditions.into_iter().flatten().find(|condition| condition.type_ == "Available");
    match available {
        None => "Unknown".to_owned(),
        Some(condition) if condition.status == "True" => condition.status.clone(),
        Some(condition) => {
            let reason = condition.reason.as_deref().unwrap_or_default();
            format!("{} ({reason})", condition.status)
        }
    }
}

pub(super) fn endpoint_slices() -> Vec<Column<EndpointSlice>> {
    vec![
        Column::path("AddressType", ".addressType"),
        Column::computed("Ports", |slice, _| ports_of_slice(slice)),
        Column::computed("Endpoints", |slice, _| endpoints(slice)),
        Column::age(),
    ]
}

fn ports_of_slice(slice: &EndpointSlice) -> String {
    let ports = slice.ports.iter().flatten().map(|port| match (port.port, &port.name) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.clone(),
        (None, None) => "*".to_owned(),
    });
    first_three(ports.collect())
}

fn endpoints(slice: &EndpointSlice) -> String {
    let addresses = slice.endpoints.iter().flatten().flat_map(|one| one.addresses.clone());
    first_three(addresses.collect())
}

/// The first three of them, and how many more there are.
fn first_three(all: Vec<String>) -> String {
    let first = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len() {
        more @ 4.. => format!("{first} + {} more...", more - 3),
        _ if first.is_empty() => "<unset>".to_owned(),
        _ => first,
    }
}

pub(super) fn deployments() -> Vec<Column<Deployment>> {
    let count = |heading, field: fn(&Deployment) -> Option<i32>| {
        Column::computed(heading, move |deployment, _| field(deployment).unwrap_or_default())
    };
    vec![
        Column::computed("Ready", |deployment, _| ready_replicas(deployment)),
        count("Up-to-date", |one| one.status.as_ref()?.updated_replicas),
        count("Available", |one| one.status.as_ref()?.available_replicas),
        Column::age(),
        containers(|one| one.spec.as_ref()?.template.spec.as_ref()),
        images(|one| one.spec.as_ref()?.template.spec.as_ref()),
        selector(|one| Some(&one.spec.as_ref()?.selector)),
    ]
}

fn ready_replicas(deployment: &Deployment) -> String {
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas);
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    format!("{}/{}", ready.unwrap_or_default(), wanted.unwrap_or_default())
}

pub(super) fn replica_sets() -> Vec<Column<ReplicaSet>> {
    let count = |heading, field: fn(&ReplicaSet) -> Option<i32>| {
        let count = move |set: &ReplicaSet, _| field(set).unwrap_or_default();
        Column::computed(heading, count).of_type("integer")
    };
    vec![
        count("Desired", |one| one.spec.as_ref()?.replicas),
        count("Current", |one| Some(one.status.as_ref()?.replicas)),
        count("Ready", |one| one.status.as_ref()?.ready_replicas),
        Column::age(),
        containers(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        images(|one| one.spec.as_ref()?.template.as_ref()?.spec.as_ref()),
        selector(|one| Some(&one.spec.as_ref()?.selector)),
    ]
}

pub(super) fn jobs() -> Vec<Column<Job>> {
    vec![
        Column::computed("Status", |job, _| job_status(job)),
        Column::computed("Completions", |job, _| completions(job)),
        Column::computed("Duration", duration),
        Column::age(),
        containers(|one| one.spec.as_ref()?.template.spec.as_ref()),
        images(|one| one.spec.as_ref()?.template.spec.as_ref()),
        selector(|one| one.spec.as_ref()?.selector.as_ref()),
    ]
}

fn job_status(job: &Job) -> &'static str {
    let holds = |condition: &str| {
        let status = job.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == condition && one.status == "True")
    };
    let names = ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"];
    let found = names.into_iter().find(|condition| holds(condition));
    match (found, job.metadata.deletion_timestamp.is_some()) {
        (Some(shown), _) => shown,
        (None, true) => "Terminating",
        (None, false) => "Running",
    }
}

fn completions(job: &Job) -> String {
    let done = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default();
    let spec = job.spec.as_ref();
    match spec.and_then(|spec| spec.completions) {
        Some(wanted) => format!("{done}/{wanted}"),
        None => match spec.and_then(|spec| spec.parallelism).unwrap_or_default() {
            at_once @ 2.. => format!("{done}/1 of {at_once}"),
            _ => format!("{done}/1"),
        },
    }
}

fn duration(job: &Job, now: Timestamp) -> String {
    let begun = job.status.as_ref().and_then(|status| status.start_time.as_ref());
    let ended = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
    begun.map(|begun| age(begun.0, ended.map_or(now, |time| time.0))).unwrap_or_default()
}

pub(super) fn cron_jobs() -> Vec<Column<CronJob>> {
    vec![
        Column::path("Schedule", ".spec.schedule"),
        Column::computed("Timezone", |job: &CronJob, _| {
            or_none(job.spec.time_zone.clone().unwrap_or_default())
        }),
        Column::computed("Suspend", |job, _| suspend(job)).of_type("boolean"),
        Column::computed("Active", |job, _| active(job)).of_type("integer"),
        Column::computed("Last Schedule", last_schedule),
        Column::age(),
        containers(|one| one.spec.job_template.spec.as_ref()?.template.spec.as_ref()),
        images(|one| one.spec.job_template.spec.as_ref()?.template.spec.as_ref()),
        selector(|one| one.spec.job_template.spec.as_ref()?.selector.as_ref()),
    ]
}

fn suspend(job: &CronJob) -> &'static str {
    match job.spec.suspend {
        Some(true) => "True",
        Some(false) => "False",
        None => NONE,
    }
}

fn active(job: &CronJob) -> usize {
    let active = job.status.as_ref().and_then(|status| status.active.as_ref());
    active.map_or(0, Vec::len)
}

fn last_schedule(job: &CronJob, now: Timestamp) -> String {
    let last = job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    last.map_or_else(|| NONE.to_owned(), |last| age(last.0, now))
}
