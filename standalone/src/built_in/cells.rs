//! Columns of the tables that kubectl shows.

use aggregated_apiserver::age;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ContainerStatus, Namespace, Node, Pod, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;

use super::cell_texts::{NONE, or_none, pairs};
use super::label_selector::column as selector;
use super::pod_template::{containers, images};
use super::row::Column;

pub(super) fn namespaces() -> Vec<Column<Namespace>> {
    vec![Column::path("Status", ".status.phase"), Column::age()]
}

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

pub(super) fn nodes() -> Vec<Column<Node>> {
    vec![
        Column::computed("Status", |node, _| node_status(node)),
        Column::computed("Roles", |node, _| roles(node)),
        Column::age(),
        Column::path("Version", ".status.nodeInfo.kubeletVersion"),
        Column::computed("Internal-IP", |node, _| address(node, "InternalIP")).wide(),
        Column::computed("External-IP", |node, _| address(node, "ExternalIP")).wide(),
        Column::path("OS-Image", ".status.nodeInfo.osImage").wide(),
        Column::path("Kernel-Version", ".status.nodeInfo.kernelVersion").wide(),
        Column::path("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion").wide(),
    ]
}

fn node_status(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
    let mut status = match ready.map(|ready| ready.status.as_str()) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Node) -> String {
    const ROLE: &str = "node-role.kubernetes.io/";
    let labels = node.metadata.labels.iter().flatten();
    let roles: Vec<&str> = labels
        .filter_map(|(key, _)| key.strip_prefix(ROLE))
        .filter(|role| !role.is_empty())
        .collect();
    or_none(roles.join(","))
}

fn address(node: &Node, address_type: &str) -> String {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let mut found = addresses.into_iter().flatten();
    let found = found.find(|address| address.type_ == address_type);
    found.map_or_else(|| NONE.to_owned(), |address| address.address.clone())
}

pub(super) fn pods() -> Vec<Column<Pod>> {
    let text = |heading, field: fn(&Pod) -> Option<String>| {
        Column::computed(heading, move |pod, _| field(pod).unwrap_or_else(|| NONE.to_owned()))
    };
    vec![
        Column::computed("Ready", |pod, _| ready_containers(pod)),
        Column::computed("Status", |pod, _| pod_status(pod)),
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

/// The phase of a pod, or what its containers wait for or ended with.
fn pod_status(pod: &Pod) -> String {
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

pub(super) fn services() -> Vec<Column<Service>> {
    vec![
        Column::path("Type", ".spec.type"),
        Column::computed("Cluster-IP", |service, _| {
            of_spec(service, |spec| spec.cluster_ip.clone().unwrap_or_default())
        }),
        Column::computed("External-IP", |service, _| external_addresses(service)),
        Column::computed("Port(s)", |service, _| of_spec(service, ports_of_service)),
        Column::age(),
        Column::computed("Selector", |service, _| {
            of_spec(service, |spec| pairs(spec.selector.as_ref()))
        })
        .wide(),
    ]
}

fn of_spec(service: &Service, show: fn(&ServiceSpec) -> String) -> String {
    service.spec.as_ref().map_or_else(|| NONE.to_owned(), |spec| or_none(show(spec)))
}

fn ports_of_service(spec: &ServiceSpec) -> String {
    let ports = spec.ports.iter().flatten().map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        match port.node_port.filter(|port| *port > 0) {
            Some(node) => format!("{}:{node}/{protocol}", port.port),
            None => format!("{}/{protocol}", port.port),
        }
    });
    ports.collect::<Vec<_>>().join(",")
}

fn external_addresses(service: &Service) -> String {
    let Some(spec) = &service.spec else { return NONE.to_owned() };
    let own = spec.external_ips.clone().unwrap_or_default();
    match spec.type_.as_deref() {
        Some("ExternalName") => or_none(spec.external_name.clone().unwrap_or_default()),
        Some("LoadBalancer") => {
            let balancer = service.status.as_ref().and_then(|one| one.load_balancer.as_ref());
            let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
            let given = ingress.into_iter().flatten();
            let given = given.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone()));
            let all: Vec<String> = given.chain(own).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ => or_none(own.join(",")),
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
