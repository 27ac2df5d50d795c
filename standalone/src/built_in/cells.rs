//! Cells of the tables that kubectl shows, where no JSONPath can say them.

use std::collections::BTreeMap;

use aggregated_apiserver::{Cells, age};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerStatus, Event, Node, ObjectReference, Pod, PodSpec, Secret, Service,
    ServiceSpec,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::Value;

use super::events::to_core;

/// What stands where there is nothing.
const NONE: &str = "<none>";
/// What stands where nobody knows.
const UNKNOWN: &str = "<unknown>";

pub(super) fn config_maps() -> Cells<ConfigMap> {
    Cells::none().cell("Data", |map: &ConfigMap, _| {
        let data = map.data.as_ref().map_or(0, BTreeMap::len);
        data + map.binary_data.as_ref().map_or(0, BTreeMap::len)
    })
}

pub(super) fn secrets() -> Cells<Secret> {
    Cells::none().cell("Data", |secret: &Secret, _| secret.data.as_ref().map_or(0, BTreeMap::len))
}

pub(super) fn api_services() -> Cells<APIService> {
    Cells::none()
        .cell("Service", |api: &APIService, _| {
            let service = api.spec.as_ref().and_then(|spec| spec.service.as_ref());
            service.map_or_else(
                || "Local".to_owned(),
                |service| {
                    let text = |text: &Option<String>| text.clone().unwrap_or_default();
                    format!("{}/{}", text(&service.namespace), text(&service.name))
                },
            )
        })
        .cell("Available", |api: &APIService, _| {
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
        })
}

pub(super) fn endpoint_slices() -> Cells<EndpointSlice> {
    Cells::none()
        .cell("Ports", |slice: &EndpointSlice, _| {
            let ports = slice.ports.iter().flatten().map(|port| match (port.port, &port.name) {
                (Some(number), _) => number.to_string(),
                (None, Some(name)) => name.clone(),
                (None, None) => "*".to_owned(),
            });
            first_three(ports.collect())
        })
        .cell("Endpoints", |slice: &EndpointSlice, _| {
            let addresses = slice.endpoints.iter().flatten().flat_map(|one| one.addresses.clone());
            first_three(addresses.collect())
        })
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

/// The cells of an event, whichever group it is of.
struct Shown {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    about: ObjectReference,
    source: String,
    message: String,
    count: i32,
}

fn shown(event: &Event) -> Shown {
    let event_time = event.event_time.as_ref().map(|time| time.0);
    let first = event.first_timestamp.as_ref().map(|time| time.0).or(event_time);
    let last = event.last_timestamp.as_ref().map(|time| time.0).or(first);
    let series = event.series.as_ref();
    let component = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    let (source, host) = match &event.source {
        Some(source) => (component(source.component.as_ref()), component(source.host.as_ref())),
        None => (None, None),
    };
    let source = source.or_else(|| component(event.reporting_component.as_ref()));
    let host = host.or_else(|| component(event.reporting_instance.as_ref()));
    let both = [source, host].into_iter().flatten();
    Shown {
        first,
        last: match series {
            Some(series) => series.last_observed_time.as_ref().map(|time| time.0),
            None => last,
        },
        about: event.involved_object.clone(),
        source: both.collect::<Vec<_>>().join(", "),
        message: event.message.as_deref().unwrap_or_default().trim().to_owned(),
        count: match series {
            Some(series) => series.count.unwrap_or_default(),
            None => event.count.filter(|count| *count != 0).unwrap_or(1),
        },
    }
}

/// The columns of events that code fills.
const OF_EVENTS: [&str; 7] =
    ["Last Seen", "Object", "Subobject", "Source", "Message", "First Seen", "Count"];

fn of_event(column: &str, event: &Event, now: Timestamp) -> Value {
    let since = |time: Option<Timestamp>| match time {
        Some(time) => Value::String(age(time, now)),
        None => UNKNOWN.into(),
    };
    let Shown { first, last, about, source, message, count } = shown(event);
    match column {
        "Last Seen" => since(last),
        "First Seen" => since(first),
        "Subobject" => about.field_path.unwrap_or_default().into(),
        "Source" => source.into(),
        "Message" => message.into(),
        "Count" => count.into(),
        _ => {
            let kind = about.kind.unwrap_or_default().to_lowercase();
            match about.name.filter(|name| !name.is_empty()) {
                Some(name) => format!("{kind}/{name}").into(),
                None => kind.into(),
            }
        }
    }
}

pub(super) fn events() -> Cells<Event> {
    OF_EVENTS.into_iter().fold(Cells::none(), |cells, column| {
        cells.cell(column, move |event: &Event, now| of_event(column, event, now))
    })
}

pub(super) fn new_events() -> Cells<NewEvent> {
    OF_EVENTS.into_iter().fold(Cells::none(), |cells, column| {
        cells.cell(column, move |event: &NewEvent, now| {
            let tree = serde_json::to_value(event).unwrap_or_default();
            let mut core = tree.as_object().cloned().map(to_core).unwrap_or_default();
            core.insert("apiVersion".to_owned(), "v1".into());
            let core = serde_json::from_value(Value::Object(core));
            core.map_or(Value::Null, |core: Event| of_event(column, &core, now))
        })
    })
}

pub(super) fn nodes() -> Cells<Node> {
    const ROLE: &str = "node-role.kubernetes.io/";
    let address = |address_type: &'static str| {
        move |node: &Node, _| {
            let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
            let mut found = addresses.into_iter().flatten();
            let found = found.find(|address| address.type_ == address_type);
            found.map_or_else(|| NONE.to_owned(), |address| address.address.clone())
        }
    };
    Cells::none()
        .cell("Status", |node: &Node, _| {
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
        })
        .cell("Roles", |node: &Node, _| {
            let labels = node.metadata.labels.iter().flatten();
            let roles: Vec<&str> = labels
                .filter_map(|(key, _)| key.strip_prefix(ROLE))
                .filter(|role| !role.is_empty())
                .collect();
            or_none(roles.join(","))
        })
        .cell("Internal-IP", address("InternalIP"))
        .cell("External-IP", address("ExternalIP"))
}

pub(super) fn pods() -> Cells<Pod> {
    let of_status = |field: fn(&Pod) -> Option<String>| {
        move |pod: &Pod, _| field(pod).unwrap_or_else(|| NONE.to_owned())
    };
    Cells::none()
        .cell("Ready", |pod: &Pod, _| {
            let ready = statuses(pod).iter().filter(|status| status.ready).count();
            let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
            format!("{ready}/{all}")
        })
        .cell("Status", |pod: &Pod, _| pod_status(pod))
        .cell("Restarts", restarts)
        .cell("IP", of_status(|pod| pod.status.as_ref()?.pod_ip.clone()))
        .cell("Node", of_status(|pod| pod.spec.as_ref()?.node_name.clone()))
        .cell("Nominated Node", of_status(|pod| pod.status.as_ref()?.nominated_node_name.clone()))
        .cell("Readiness Gates", |pod: &Pod, _| {
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
        })
}

fn statuses(pod: &Pod) -> &[ContainerStatus] {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    statuses.unwrap_or_default()
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

pub(super) fn services() -> Cells<Service> {
    let of = |show: fn(&ServiceSpec) -> String| {
        move |service: &Service, _| {
            service.spec.as_ref().map_or_else(|| NONE.to_owned(), |spec| or_none(show(spec)))
        }
    };
    Cells::none()
        .cell("Cluster-IP", of(|spec| spec.cluster_ip.clone().unwrap_or_default()))
        .cell("External-IP", |service: &Service, _| external_addresses(service))
        .cell(
            "Port(s)",
            of(|spec| {
                let ports = spec.ports.iter().flatten().map(|port| {
                    let protocol = port.protocol.as_deref().unwrap_or("TCP");
                    match port.node_port.filter(|port| *port > 0) {
                        Some(node) => format!("{}:{node}/{protocol}", port.port),
                        None => format!("{}/{protocol}", port.port),
                    }
                });
                ports.collect::<Vec<_>>().join(",")
            }),
        )
        .cell("Selector", of(|spec| pairs(spec.selector.as_ref())))
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

pub(super) fn deployments() -> Cells<Deployment> {
    let count = |field: fn(&Deployment) -> Option<i32>| {
        move |deployment: &Deployment, _| field(deployment).unwrap_or_default()
    };
    let pod = |deployment: &Deployment| deployment.spec.as_ref()?.template.spec.clone();
    Cells::none()
        .cell("Ready", |deployment: &Deployment, _| {
            let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas);
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            format!("{}/{}", ready.unwrap_or_default(), wanted.unwrap_or_default())
        })
        .cell("Up-to-date", count(|one| one.status.as_ref()?.updated_replicas))
        .cell("Available", count(|one| one.status.as_ref()?.available_replicas))
        .cell("Containers", move |one: &Deployment, _| containers(pod(one).as_ref()))
        .cell("Images", move |one: &Deployment, _| images(pod(one).as_ref()))
        .cell("Selector", |one: &Deployment, _| selector(one.spec.as_ref().map(|s| &s.selector)))
}

pub(super) fn replica_sets() -> Cells<ReplicaSet> {
    let count = |field: fn(&ReplicaSet) -> Option<i32>| {
        move |set: &ReplicaSet, _| field(set).unwrap_or_default()
    };
    let pod = |set: &ReplicaSet| set.spec.as_ref()?.template.as_ref()?.spec.clone();
    Cells::none()
        .cell("Desired", count(|one| one.spec.as_ref()?.replicas))
        .cell("Current", count(|one| Some(one.status.as_ref()?.replicas)))
        .cell("Ready", count(|one| one.status.as_ref()?.ready_replicas))
        .cell("Containers", move |one: &ReplicaSet, _| containers(pod(one).as_ref()))
        .cell("Images", move |one: &ReplicaSet, _| images(pod(one).as_ref()))
        .cell("Selector", |one: &ReplicaSet, _| selector(one.spec.as_ref().map(|s| &s.selector)))
}

pub(super) fn jobs() -> Cells<Job> {
    let pod = |job: &Job| job.spec.as_ref()?.template.spec.clone();
    Cells::none()
        .cell("Status", |job: &Job, _| {
            let holds = |condition: &str| {
                let status = job.status.as_ref();
                let conditions = status.and_then(|status| status.conditions.as_ref());
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|one| one.type_ == condition && one.status == "True")
            };
            let names = [
                ("Complete", "Complete"),
                ("Failed", "Failed"),
                ("Suspended", "Suspended"),
                ("FailureTarget", "FailureTarget"),
                ("SuccessCriteriaMet", "SuccessCriteriaMet"),
            ];
            let found = names.into_iter().find(|(condition, _)| holds(condition));
            match (found, job.metadata.deletion_timestamp.is_some()) {
                (Some((_, shown)), _) => shown,
                (None, true) => "Terminating",
                (None, false) => "Running",
            }
        })
        .cell("Completions", |job: &Job, _| {
            let done = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default();
            let spec = job.spec.as_ref();
            match spec.and_then(|spec| spec.completions) {
                Some(wanted) => format!("{done}/{wanted}"),
                None => match spec.and_then(|spec| spec.parallelism).unwrap_or_default() {
                    at_once @ 2.. => format!("{done}/1 of {at_once}"),
                    _ => format!("{done}/1"),
                },
            }
        })
        .cell("Duration", |job: &Job, now| {
            let begun = job.status.as_ref().and_then(|status| status.start_time.as_ref());
            let ended = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
            begun.map(|begun| age(begun.0, ended.map_or(now, |time| time.0))).unwrap_or_default()
        })
        .cell("Containers", move |one: &Job, _| containers(pod(one).as_ref()))
        .cell("Images", move |one: &Job, _| images(pod(one).as_ref()))
        .cell("Selector", |one: &Job, _| {
            selector(one.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
        })
}

pub(super) fn cron_jobs() -> Cells<CronJob> {
    let pod = |job: &CronJob| job.spec.job_template.spec.as_ref()?.template.spec.clone();
    Cells::none()
        .cell("Timezone", |job: &CronJob, _| {
            or_none(job.spec.time_zone.clone().unwrap_or_default())
        })
        .cell("Suspend", |job: &CronJob, _| match job.spec.suspend {
            Some(true) => "True",
            Some(false) => "False",
            None => NONE,
        })
        .cell("Last Schedule", |job: &CronJob, now| {
            let last = job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
            last.map_or_else(|| NONE.to_owned(), |last| age(last.0, now))
        })
        .cell("Active", |job: &CronJob, _| {
            let active = job.status.as_ref().and_then(|status| status.active.as_ref());
            active.map_or(0, Vec::len)
        })
        .cell("Containers", move |one: &CronJob, _| containers(pod(one).as_ref()))
        .cell("Images", move |one: &CronJob, _| images(pod(one).as_ref()))
        .cell("Selector", |one: &CronJob, _| {
            let job = one.spec.job_template.spec.as_ref();
            selector(job.and_then(|job| job.selector.as_ref()))
        })
}

fn containers(pod: Option<&PodSpec>) -> String {
    let names = pod.into_iter().flat_map(|pod| &pod.containers).map(|one| one.name.as_str());
    names.collect::<Vec<_>>().join(",")
}

fn images(pod: Option<&PodSpec>) -> String {
    let images = pod.into_iter().flat_map(|pod| &pod.containers);
    let images = images.map(|one| one.image.as_deref().unwrap_or_default());
    images.collect::<Vec<_>>().join(",")
}

/// `app=web,tier in (a,b)`
fn selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return NONE.to_owned() };
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.clone().unwrap_or_default().join(",");
        match one.operator.as_str() {
            "In" => format!("{} in ({values})", one.key),
            "NotIn" => format!("{} notin ({values})", one.key),
            "DoesNotExist" => format!("!{}", one.key),
            _ => one.key.clone(),
        }
    });
    or_none(equal.chain(others).collect::<Vec<_>>().join(","))
}

fn pairs(pairs: Option<&BTreeMap<String, String>>) -> String {
    let pairs = pairs.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}
