//! Warnings about duplicate ports.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};

use super::LIMIT;
use crate::built_in::checks::quote;

/// Warnings about the ports of all containers.
pub(super) fn of_containers(spec: &PodSpec, at: &str, warnings: &mut Vec<String>) {
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, one)| (format!("{at}spec.initContainers[{index}]"), one));
    let regular = spec.containers.iter().enumerate();
    let regular = regular.map(|(index, one)| (format!("{at}spec.containers[{index}]"), one));
    let ports: Vec<(String, &ContainerPort)> =
        init.chain(regular).flat_map(|(at, container)| of_container(at, container)).collect();
    let mut known: BTreeMap<String, Vec<(&str, &ContainerPort)>> = BTreeMap::new();
    for (at, port) in &ports {
        let host_ip = port.host_ip.as_deref().unwrap_or_default();
        if !host_ip.is_empty() && port.host_port.unwrap_or(0) == 0 {
            warnings.push(format!("{at}: hostIP set without hostPort: {}", shown(port)));
        }
        let protocol = port.protocol.as_deref().unwrap_or_default();
        let others = known.entry(format!("{}/{protocol}", port.container_port)).or_default();
        for (other_at, other) in others.iter() {
            if warnings.len() >= LIMIT {
                return;
            }
            if let Some(what) = conflict(port, other) {
                warnings.push(format!("{at}: {what} port definition with {other_at}"));
            }
        }
        others.push((at, port));
    }
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, port) in &ports {
        let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) else { continue };
        match names.get(name) {
            Some(first) => warnings.push(format!(
                "{at}: duplicate port name {} with {first}, services and probes that select ports by name will use {first}",
                quote(name)
            )),
            None => {
                names.insert(name, at);
            }
        }
    }
}

fn of_container(at: String, container: &Container) -> Vec<(String, &ContainerPort)> {
    let ports = container.ports.iter().flatten().enumerate();
    ports.map(|(index, port)| (format!("{at}.ports[{index}]"), port)).collect()
}

/// The conflict between two definitions of the same port.
fn conflict<'a>(port: &'a ContainerPort, other: &'a ContainerPort) -> Option<&'static str> {
    let host = |port: &ContainerPort| port.host_port.unwrap_or(0);
    let ip = |port: &'a ContainerPort| port.host_ip.as_deref().unwrap_or_default();
    if host(port) == host(other) && ip(port) == ip(other) {
        Some("duplicate")
    } else if host(port) == 0 || host(other) == 0 {
        Some("overlapping")
    } else if host(port) == host(other) && ip(port).is_empty() != ip(other).is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

/// A port in the format in which Go prints its fields.
fn shown(port: &ContainerPort) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        text(&port.name),
        port.host_port.unwrap_or(0),
        port.container_port,
        text(&port.protocol),
        text(&port.host_ip)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    #[test]
    fn conflicts() {
        let port = |more: Value| {
            let mut port = json!({"containerPort": 80, "protocol": "TCP"});
            port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            port
        };
        let (plain, on_host) = (port(json!({})), port(json!({"hostPort": 80})));
        let at_address = port(json!({"hostPort": 80, "hostIP": "10.0.0.1"}));
        for (one, other, expected) in [
            (&plain, &plain, Some("duplicate")),
            (&plain, &on_host, Some("overlapping")),
            (&on_host, &at_address, Some("dangerously ambiguous")),
            (&on_host, &port(json!({"hostPort": 81})), None),
        ] {
            let conflict = conflict(&object(one.clone()), &object(other.clone()));
            assert_eq!(conflict, expected, "{one} {other}");
        }
    }
}
