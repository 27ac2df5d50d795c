//! The containers of a Pod.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::{FieldError, Quantity, names};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, HTTPGetAction, Lifecycle, LifecycleHandler, PodSpec, Probe,
    ResourceRequirements, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pods::Of;
use super::{Faults, check_not_negative, check_one_of, check_with, quote};

const PORT: &str = "must be between 1 and 65535, inclusive";
const VARIABLE: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
/// Fields of a Pod that a variable can be.
const FIELDS: [&str; 10] = [
    "spec.host",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Resources that Kubernetes knows without a domain.
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What is wrong with the containers of a Pod whose volumes are called so.
pub(super) fn check_all(
    spec: &PodSpec,
    at: &str,
    of: Of,
    volumes: &BTreeSet<&str>,
    faults: &mut Faults,
) {
    if spec.containers.is_empty() {
        faults.push(FieldError::required(format!("{at}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    let nothing = Vec::new();
    let first = spec.init_containers.as_ref().unwrap_or(&nothing);
    for (list, containers) in [("containers", &spec.containers), ("initContainers", first)] {
        for (index, container) in containers.iter().enumerate() {
            let at = format!("{at}.{list}[{index}]");
            if container.name.is_empty() {
                faults.push(FieldError::required(format!("{at}.name"), ""));
            } else {
                let at = format!("{at}.name");
                check_with(&at, &container.name, names::check_label, faults);
                if !names.insert(container.name.as_str()) {
                    faults.push(FieldError::duplicate(at, quote(&container.name)));
                }
            }
            check(container, &at, of, volumes, faults);
        }
    }
}

fn check(container: &Container, at: &str, of: Of, volumes: &BTreeSet<&str>, faults: &mut Faults) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        faults.push(FieldError::required(format!("{at}.image"), ""));
    } else if of == Of::Pod && image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.push(FieldError::invalid(format!("{at}.image"), quote(image), why));
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    let policy = container.image_pull_policy.as_ref();
    check_one_of(format!("{at}.imagePullPolicy"), policy, &policies, faults);
    let policies = ["FallbackToLogsOnError", "File"];
    let policy = container.termination_message_policy.as_ref();
    check_one_of(format!("{at}.terminationMessagePolicy"), policy, &policies, faults);
    check_ports(container.ports.as_deref().unwrap_or_default(), at, faults);
    for (index, variable) in container.env.iter().flatten().enumerate() {
        check_variable(variable, &format!("{at}.env[{index}]"), faults);
    }
    let mut paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = format!("{at}.volumeMounts[{index}]");
        if mount.name.is_empty() {
            faults.push(FieldError::required(format!("{at}.name"), ""));
        } else if !volumes.contains(mount.name.as_str()) {
            faults.push(FieldError::not_found(format!("{at}.name"), quote(&mount.name)));
        }
        if mount.mount_path.is_empty() {
            faults.push(FieldError::required(format!("{at}.mountPath"), ""));
        } else if !paths.insert(mount.mount_path.as_str()) {
            let why = "must be unique";
            let value = quote(&mount.mount_path);
            faults.push(FieldError::invalid(format!("{at}.mountPath"), value, why));
        }
    }
    for (field, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        if let Some(probe) = probe {
            let is_of_readiness = field == "readinessProbe";
            check_probe(probe, is_of_readiness, &format!("{at}.{field}"), faults);
        }
    }
    if let Some(Lifecycle { post_start, pre_stop, .. }) = &container.lifecycle {
        for (field, handler) in [("postStart", post_start), ("preStop", pre_stop)] {
            if let Some(handler) = handler {
                check_handler(handler, &format!("{at}.lifecycle.{field}"), faults);
            }
        }
    }
    if let Some(resources) = &container.resources {
        check_resources(resources, &format!("{at}.resources"), faults);
    }
}

fn check_ports(ports: &[ContainerPort], at: &str, faults: &mut Faults) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = format!("{at}.ports[{index}]");
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let at = format!("{at}.name");
            let before = faults.len();
            check_with(&at, name, faults_of_port_name, faults);
            if before == faults.len() && !names.insert(name) {
                faults.push(FieldError::duplicate(at, quote(name)));
            }
        }
        let number = i64::from(port.container_port);
        if number == 0 {
            faults.push(FieldError::required(format!("{at}.containerPort"), ""));
        } else {
            check_port_number(&format!("{at}.containerPort"), number, faults);
        }
        if let Some(number) = port.host_port.filter(|number| *number != 0) {
            check_port_number(&format!("{at}.hostPort"), i64::from(number), faults);
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        check_one_of(format!("{at}.protocol"), port.protocol.as_ref(), &protocols, faults);
    }
}

/// What is wrong with the number of a port.
pub(super) fn check_port_number(at: &str, number: i64, faults: &mut Faults) {
    if !(1..=65_535).contains(&number) {
        faults.push(FieldError::invalid(at, number, PORT));
    }
}

/// What is wrong with the name of a port.
pub(super) fn faults_of_port_name(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push("must be no more than 15 characters".to_owned());
    }
    let is_letter = |byte: u8| byte.is_ascii_lowercase();
    if !name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit() || byte == b'-') {
        faults.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !name.bytes().any(is_letter) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

fn check_variable(variable: &EnvVar, at: &str, faults: &mut Faults) {
    let is_good = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    if variable.name.is_empty() {
        faults.push(FieldError::required(format!("{at}.name"), ""));
    } else if !variable.name.bytes().all(is_good) {
        let name = quote(&variable.name);
        faults.push(FieldError::invalid(format!("{at}.name"), name, VARIABLE));
    }
    let Some(from) = &variable.value_from else { return };
    let at = format!("{at}.valueFrom");
    let mut sources = 0;
    if let Some(field) = &from.field_ref {
        sources += 1;
        let at = format!("{at}.fieldRef.fieldPath");
        let path = field.field_path.as_str();
        let is_of_map = ["metadata.labels['", "metadata.annotations['"]
            .into_iter()
            .any(|map| path.starts_with(map) && path.ends_with("']"));
        if path.is_empty() {
            faults.push(FieldError::required(at, ""));
        } else if !is_of_map && !FIELDS.contains(&path) {
            let why = format!("error converting fieldPath: field label not supported: {path}");
            faults.push(FieldError::invalid(at, quote(path), &why));
        }
    }
    if let Some(resource) = &from.resource_field_ref {
        sources += 1;
        if resource.resource.is_empty() {
            faults.push(FieldError::required(format!("{at}.resourceFieldRef.resource"), ""));
        }
    }
    let keys = [
        ("configMapKeyRef", from.config_map_key_ref.as_ref().map(|key| (&key.name, &key.key))),
        ("secretKeyRef", from.secret_key_ref.as_ref().map(|key| (&key.name, &key.key))),
    ];
    for (field, key) in keys {
        let Some((_, key)) = key else { continue };
        sources += 1;
        if key.is_empty() {
            faults.push(FieldError::required(format!("{at}.{field}.key"), ""));
        }
    }
    sources += usize::from(from.file_key_ref.is_some());
    let why = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if variable.value.as_ref().is_some_and(|value| !value.is_empty()) => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    faults.push(FieldError::invalid(at, "\"\"", why));
}

fn check_probe(probe: &Probe, is_of_readiness: bool, at: &str, faults: &mut Faults) {
    let handlers = [
        ("exec", probe.exec.is_some()),
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("grpc", probe.grpc.is_some()),
    ];
    check_handlers(&handlers, at, faults);
    if let Some(exec) = &probe.exec
        && exec.command.as_ref().is_none_or(Vec::is_empty)
    {
        faults.push(FieldError::required(format!("{at}.exec.command"), ""));
    }
    check_actions(probe.http_get.as_ref(), probe.tcp_socket.as_ref(), &handlers, at, faults);
    for (field, seconds) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        check_not_negative(format!("{at}.{field}"), seconds, faults);
    }
    if let Some(threshold) = probe.success_threshold.filter(|one| !is_of_readiness && *one != 1) {
        let at = format!("{at}.successThreshold");
        faults.push(FieldError::invalid(at, threshold, "must be 1"));
    }
}

fn check_handler(handler: &LifecycleHandler, at: &str, faults: &mut Faults) {
    let handlers = [
        ("exec", handler.exec.is_some()),
        ("httpGet", handler.http_get.is_some()),
        ("tcpSocket", handler.tcp_socket.is_some()),
        ("sleep", handler.sleep.is_some()),
    ];
    check_handlers(&handlers, at, faults);
    check_actions(handler.http_get.as_ref(), handler.tcp_socket.as_ref(), &handlers, at, faults);
}

fn check_handlers(handlers: &[(&str, bool)], at: &str, faults: &mut Faults) {
    let mut given = handlers.iter().filter(|(_, is_given)| *is_given);
    if given.next().is_none() {
        faults.push(FieldError::required(at, "must specify a handler type"));
    }
    for (name, _) in given {
        let why = "may not specify more than 1 handler type";
        faults.push(FieldError::forbidden(format!("{at}.{name}"), why));
    }
}

/// Only the first handler is looked at.
fn check_actions(
    get: Option<&HTTPGetAction>,
    socket: Option<&TCPSocketAction>,
    handlers: &[(&str, bool)],
    at: &str,
    faults: &mut Faults,
) {
    let first = handlers.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name);
    if let Some(get) = get.filter(|_| first == Some("httpGet")) {
        let at = format!("{at}.httpGet");
        if get.path.as_ref().is_none_or(String::is_empty) {
            faults.push(FieldError::required(format!("{at}.path"), ""));
        }
        check_target(&format!("{at}.port"), &get.port, faults);
        check_one_of(format!("{at}.scheme"), get.scheme.as_ref(), &["HTTP", "HTTPS"], faults);
    }
    if let Some(socket) = socket.filter(|_| first == Some("tcpSocket")) {
        check_target(&format!("{at}.tcpSocket.port"), &socket.port, faults);
    }
}

fn check_target(at: &str, port: &IntOrString, faults: &mut Faults) {
    match port {
        IntOrString::Int(number) => check_port_number(at, i64::from(*number), faults),
        IntOrString::String(name) => check_with(at, name, faults_of_port_name, faults),
    }
}

fn check_resources(resources: &ResourceRequirements, at: &str, faults: &mut Faults) {
    let nothing = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&nothing);
    let requests = resources.requests.as_ref().unwrap_or(&nothing);
    for (list, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts {
            let at = format!("{at}.{list}");
            check_resource(name, amount, &at, faults);
        }
    }
    for (name, request) in requests {
        let Some(limit) = limits.get(name) else { continue };
        let (Ok(asked), Ok(most)) = (Quantity::parse(&request.0), Quantity::parse(&limit.0)) else {
            continue;
        };
        if asked.nanos() > most.nanos() {
            let why = format!("must be less than or equal to {name} limit of {}", limit.0);
            faults.push(FieldError::invalid(format!("{at}.requests"), quote(&request.0), &why));
        }
    }
}

fn check_resource(name: &str, amount: &Amount, at: &str, faults: &mut Faults) {
    let at = format!("{at}[{name}]");
    let before = faults.len();
    check_with(&at, name, names::check_label_key, faults);
    let is_standard = RESOURCES.contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') && !is_standard {
        if before == faults.len() {
            let why = "must be a standard resource type or fully qualified";
            faults.push(FieldError::invalid(&*at, quote(name), why));
        }
        let why = "must be a standard resource for containers";
        faults.push(FieldError::invalid(&*at, quote(name), why));
    }
    if Quantity::parse(&amount.0).is_ok_and(|amount| amount.nanos() < 0) {
        let why = "must be greater than or equal to 0";
        faults.push(FieldError::invalid(at, quote(&amount.0), why));
    }
}
