//! The ports of Services.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::type_of;
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
use crate::built_in::pod_template::ports;

/// Checks each port.
pub(super) fn check(all: &[ServicePort], faults: &mut FieldErrors) {
    let mut used_names = BTreeSet::new();
    for (index, port) in all.iter().enumerate() {
        check_port(port, &format!("spec.ports[{index}]"), all.len() > 1, &mut used_names, faults);
    }
}

fn check_port<'a>(
    port: &'a ServicePort,
    at: &str,
    needs_name: bool,
    used_names: &mut BTreeSet<&'a str>,
    faults: &mut FieldErrors,
) {
    match port.name.as_deref().unwrap_or_default() {
        "" if needs_name => faults.push(FieldError::required(format!("{at}.name"), "")),
        "" => {}
        name => {
            let at = format!("{at}.name");
            check_with(&at, name, names::check_dns_1123_label, faults);
            if !used_names.insert(name) {
                faults.push(FieldError::duplicate(at, quote(name)));
            }
        }
    }
    ports::check_port_number(&format!("{at}.port"), i64::from(port.port), faults);
    let protocol = port.protocol.as_ref();
    check_one_of(format!("{at}.protocol"), protocol, &["SCTP", "TCP", "UDP"], faults);
    let at_target = format!("{at}.targetPort");
    match &port.target_port {
        Some(IntOrString::Int(number)) => {
            ports::check_port_number(&at_target, i64::from(*number), faults);
        }
        Some(IntOrString::String(name)) => {
            check_with(&at_target, name, ports::faults_of_port_name, faults);
        }
        None => {}
    }
    if let Some(protocol) = &port.app_protocol {
        check_with(&format!("{at}.appProtocol"), protocol, names::check_label_key, faults);
    }
}

/// The node ports, with the paths of their fields and their protocols.
fn node_ports(spec: &ServiceSpec) -> impl Iterator<Item = (String, Option<&str>, i32)> {
    let ports = spec.ports.iter().flatten().enumerate();
    ports.filter_map(|(index, port)| {
        let node_port = port.node_port.filter(|number| *number != 0)?;
        Some((format!("spec.ports[{index}].nodePort"), port.protocol.as_deref(), node_port))
    })
}

/// Checks that a Service of type ClusterIP has no node ports.
pub(super) fn check_no_node_ports(spec: &ServiceSpec, faults: &mut FieldErrors) {
    if type_of(spec) == "ClusterIP" {
        let why = "may not be used when `type` is 'ClusterIP'";
        faults.extend(node_ports(spec).map(|(at, ..)| FieldError::forbidden(at, why)));
    }
}

/// Checks that node ports are unique.
pub(super) fn check_allocated_once(spec: &ServiceSpec, faults: &mut FieldErrors) {
    let mut used = BTreeSet::new();
    for (at, protocol, node_port) in node_ports(spec) {
        if !used.insert((protocol, node_port)) {
            let why = "provided port is already allocated";
            faults.push(FieldError::invalid(at, node_port, why));
            return;
        }
    }
}

/// Checks that ports are unique.
pub(super) fn check_duplicates(all: &[ServicePort], faults: &mut FieldErrors) {
    let mut used = BTreeSet::new();
    for (index, port) in all.iter().enumerate() {
        let protocol = port.protocol.clone().unwrap_or_default();
        if !used.insert((port.port, protocol.clone())) {
            let value = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                quote(&protocol),
                port.port
            );
            faults.push(FieldError::duplicate(format!("spec.ports[{index}]"), value));
        }
    }
}
