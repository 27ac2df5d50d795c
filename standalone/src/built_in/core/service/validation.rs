//! The validation of Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use aggregated_apiserver::{FieldError, names};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote, to_json};
use crate::built_in::label_selector;
use crate::built_in::pod_template::ports;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Validates a Service.
pub(crate) fn validate(service: &Service, old: Option<&Service>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    check(spec, &mut faults);
    let is_of_cluster = |spec: &ServiceSpec| spec.type_.as_deref() != Some("ExternalName");
    if let Some(old) = old.and_then(|old| old.spec.as_ref())
        && is_of_cluster(old)
        && is_of_cluster(spec)
        && spec.cluster_ips != old.cluster_ips
    {
        let why = "may not change once set";
        let at = "spec.clusterIPs[0]";
        faults.push(FieldError::invalid(at, to_json(&spec.cluster_ips), why));
    }
    if faults.is_empty() {
        check_families(spec, &mut faults);
    }
    faults
}

/// The cluster has addresses of IPv4 alone; a headless Service that selects nothing needs none.
fn check_families(spec: &ServiceSpec, faults: &mut FieldErrors) {
    let selects = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
    let is_headless = spec.cluster_ip.as_deref() == Some("None");
    if spec.type_.as_deref() == Some("ExternalName") || (is_headless && !selects) {
        return;
    }
    if let Some(policy @ "RequireDualStack") = spec.ip_family_policy.as_deref() {
        let why = "this cluster is not configured for dual-stack services";
        faults.push(FieldError::invalid("spec.ipFamilyPolicy", quote(policy), why));
    }
    for (index, family) in spec.ip_families.iter().flatten().enumerate() {
        if family != "IPv4" {
            let at = format!("spec.ipFamilies[{index}]");
            faults.push(FieldError::invalid(at, quote(family), "not configured on this cluster"));
        }
    }
}

/// Warnings for the author of a Service.
pub(crate) fn warnings(service: &Service) -> Vec<String> {
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let is_headless = spec.cluster_ip.as_deref() == Some("None");
    let is_external = spec.type_.as_deref() == Some("ExternalName");
    let has_addresses = spec.external_ips.as_ref().is_some_and(|addresses| !addresses.is_empty());
    let has_affinity = spec.session_affinity.as_deref().is_some_and(|affinity| affinity != "None");
    let has_name = spec.external_name.as_ref().is_some_and(|name| !name.is_empty());
    let warnings = [
        (
            has_addresses && !is_headless && !is_external,
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
        (
            has_addresses && is_external,
            "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
        ),
        (
            has_name && !is_external,
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ),
        (has_addresses && is_headless, "spec.externalIPs is ignored for headless services"),
        (has_affinity && is_headless, "spec.SessionAffinity is ignored for headless services"),
    ];
    let warnings = warnings.into_iter().filter(|(is_warned, _)| *is_warned);
    warnings.map(|(_, why)| why.to_owned()).collect()
}

fn check(spec: &ServiceSpec, faults: &mut FieldErrors) {
    let is_headless = spec.cluster_ip.as_deref() == Some("None");
    let is_external = spec.type_.as_deref() == Some("ExternalName");
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && !is_headless && !is_external {
        faults.push(FieldError::required("spec.ports", ""));
    }
    check_one_of("spec.type", spec.type_.as_ref(), &TYPES, faults);
    check_one_of(
        "spec.sessionAffinity",
        spec.session_affinity.as_ref(),
        &["ClientIP", "None"],
        faults,
    );
    label_selector::check_labels(spec.selector.as_ref(), "spec.selector", faults);
    if is_external {
        let name = spec.external_name.as_deref().unwrap_or_default();
        match name {
            "" => faults.push(FieldError::required("spec.externalName", "")),
            name => {
                let name = name.trim_end_matches('.');
                check_with("spec.externalName", name, names::check_dns_1123_subdomain, faults);
            }
        }
    }
    for (index, address) in spec.cluster_ips.iter().flatten().enumerate() {
        if address != "None" && address.parse::<IpAddr>().is_err() {
            let at = format!("spec.clusterIPs[{index}]");
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            faults.push(FieldError::invalid(at, quote(address), why));
        }
    }
    let mut called = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        check_port(port, &at, ports.len() > 1, &mut called, faults);
        let protocol = port.protocol.clone().unwrap_or_default();
        if !taken.insert((port.port, protocol.clone())) {
            let value = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                quote(&protocol),
                port.port
            );
            faults.push(FieldError::duplicate(at, value));
        }
    }
}

fn check_port<'a>(
    port: &'a ServicePort,
    at: &str,
    needs_name: bool,
    called: &mut BTreeSet<&'a str>,
    faults: &mut FieldErrors,
) {
    match port.name.as_deref().unwrap_or_default() {
        "" if needs_name => faults.push(FieldError::required(format!("{at}.name"), "")),
        "" => {}
        name => {
            let at = format!("{at}.name");
            check_with(&at, name, names::check_dns_1123_label, faults);
            if !called.insert(name) {
                faults.push(FieldError::duplicate(at, quote(name)));
            }
        }
    }
    ports::check_port_number(&format!("{at}.port"), i64::from(port.port), faults);
    let protocol = port.protocol.as_ref();
    check_one_of(format!("{at}.protocol"), protocol, &["SCTP", "TCP", "UDP"], faults);
    let at = format!("{at}.targetPort");
    match &port.target_port {
        Some(IntOrString::Int(number)) => {
            ports::check_port_number(&at, i64::from(*number), faults);
        }
        Some(IntOrString::String(name)) => {
            check_with(&at, name, ports::faults_of_port_name, faults);
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object};
    use serde_json::{Value, json};

    #[test]
    fn faults() {
        for (spec, expected) in [
            (json!({"ports": [{"port": 80}]}), vec![]),
            (json!({"clusterIP": "None"}), vec![]),
            (json!({}), vec!["spec.ports: Required value"]),
            (json!({"type": "ExternalName"}), vec!["spec.externalName: Required value"]),
            (json!({"type": "ExternalName", "externalName": "a.b."}), vec![]),
            (
                json!({"type": "X", "sessionAffinity": "Y", "ports": [{"port": 80}]}),
                vec![
                    "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
                    "spec.sessionAffinity: Unsupported value: \"Y\": supported values: \"ClientIP\", \"None\"",
                ],
            ),
            (
                json!({"ports": [{"port": 80}], "clusterIPs": ["x"]}),
                vec![
                    "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                json!({"ports": [
                    {"name": "a", "port": 0}, {"port": 1}, {"name": "a", "port": 1, "targetPort": 70_000},
                ]}),
                vec![
                    "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    "spec.ports[1].name: Required value",
                    "spec.ports[2].name: Duplicate value: \"a\"",
                    "spec.ports[2].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                    "spec.ports[2]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"\",\"AppProtocol\":null,\"Port\":1,\"TargetPort\":0,\"NodePort\":0}",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, json!({"spec": spec})), expected, "{spec}");
        }
    }

    #[test]
    fn its_address_does_not_change() {
        let service = |service_type: &str, address: &str| {
            json!({"spec": {
                "type": service_type, "clusterIPs": [address], "externalName": "a.b", "ports": [{"port": 80}],
            }})
        };
        let old = service("ClusterIP", "10.96.0.2");
        let kept = service("NodePort", "10.96.0.2");
        assert_eq!(faults_of_update(validate, old.clone(), kept), [] as [&str; 0]);
        let other = service("ClusterIP", "10.96.0.3");
        let why = "spec.clusterIPs[0]: Invalid value: [\"10.96.0.3\"]: may not change once set";
        assert_eq!(faults_of_update(validate, old.clone(), other), [why]);
        let named = service("ExternalName", "10.96.0.3");
        assert_eq!(faults_of_update(validate, old, named), [] as [&str; 0]);
    }

    #[test]
    fn what_does_not_count_is_warned_of() {
        let of = |spec: Value| warnings(&object(json!({"spec": spec})));
        let addresses = json!(["1.2.3.4"]);
        assert_eq!(
            of(json!({"externalIPs": addresses})),
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"]
        );
        assert!(of(json!({"externalIPs": [], "clusterIP": "None"})).is_empty());
        assert_eq!(
            of(
                json!({"externalIPs": addresses, "clusterIP": "None", "sessionAffinity": "ClientIP"})
            ),
            [
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ]
        );
        let external =
            json!({"type": "ExternalName", "externalName": "x", "externalIPs": addresses});
        assert_eq!(
            of(external),
            ["spec.externalIPs is ignored when spec.type is \"ExternalName\""]
        );
        assert_eq!(
            of(json!({"externalName": "x"})),
            ["spec.externalName is ignored when spec.type is not \"ExternalName\""]
        );
    }
}
