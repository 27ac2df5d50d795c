//! Ports of containers: their numbers and names.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{Container, ContainerPort};

use super::scope::{Owner, Scope};
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};

const PORT: &str = "must be between 1 and 65535, inclusive";

/// Validates the ports of a container.
pub(crate) fn check_ports(ports: &[ContainerPort], at: &str, faults: &mut FieldErrors) {
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

/// Checks that host ports are unique in these containers, which have their paths.
pub(crate) fn check_host_ports(containers: &[(String, &Container)], faults: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (at, container) in containers {
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let Some(number) = port.host_port.filter(|number| *number != 0) else { continue };
            let protocol = port.protocol.as_deref().unwrap_or_default();
            let key =
                format!("{protocol}/{}/{number}", port.host_ip.as_deref().unwrap_or_default());
            let value = quote(&key);
            if !taken.insert(key) {
                let at = format!("{at}.ports[{index}].hostPort");
                faults.push(FieldError::duplicate(at, value));
            }
        }
    }
}

/// Checks that containers on the host network use the same container port and host port. In a template, the host port
/// may be missing.
pub(crate) fn check_host_network(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    if !scope.uses_host_network() {
        return;
    }
    for (number, container) in scope.spec.containers.iter().enumerate() {
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let host = port.host_port.unwrap_or(0);
            if (scope.owner == Owner::Pod || host != 0) && host != port.container_port {
                let at = format!("{at}.containers[{number}].ports[{index}].hostPort");
                let why = "must match `containerPort` when `hostNetwork` is true";
                faults.push(FieldError::invalid(at, host, why));
            }
        }
    }
}

/// Validates the number of a port.
pub(crate) fn check_port_number(at: &str, number: i64, faults: &mut FieldErrors) {
    if !(1..=65_535).contains(&number) {
        faults.push(FieldError::invalid(at, number, PORT));
    }
}

/// Returns the errors of the name of a port.
pub(crate) fn faults_of_port_name(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push("must be no more than 15 characters".to_owned());
    }
    let is_letter = |byte: u8| byte.is_ascii_lowercase();
    let is_allowed = |byte: u8| is_letter(byte) || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_allowed) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn names() {
        for (name, count) in [
            ("http", 0),
            ("a-1", 0),
            ("a-much-too-long-one", 1),
            ("80", 1),
            ("A", 2),
            ("", 2),
            ("a--b", 1),
            ("-a", 1),
        ] {
            assert_eq!(faults_of_port_name(name).len(), count, "{name}");
        }
    }

    #[test]
    fn invalid_container_ports_are_rejected() {
        let ports: Vec<ContainerPort> = object(json!([
            {"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 0},
            {"containerPort": 70_000, "hostPort": -1, "protocol": "X"},
        ]));
        let mut faults = Vec::new();
        check_ports(&ports, "c", &mut faults);
        assert_eq!(
            texts(&faults),
            [
                "c.ports[1].name: Duplicate value: \"a\"",
                "c.ports[1].containerPort: Required value",
                "c.ports[2].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "c.ports[2].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
                "c.ports[2].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ]
        );
    }
}
