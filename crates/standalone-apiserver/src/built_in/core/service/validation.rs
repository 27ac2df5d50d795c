//! The validation of Services.

mod cluster_ips;
mod ports;
mod status;
mod traffic;
mod warnings;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
use crate::built_in::label_selector;
use crate::built_in::networks::{check_address, check_endpoint_address};
pub(crate) use status::{validate_status, warnings_of_status};
pub(crate) use warnings::warnings;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// The largest timeout of session affinity, in seconds: one day.
const MAX_SESSION_SECONDS: i32 = 86_400;

/// The annotations with the mode of topology-aware routing, the deprecated one first.
pub(super) const TOPOLOGY_ANNOTATIONS: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// Validates a Service.
pub(crate) fn validate(service: &Service, old: Option<&Service>) -> FieldErrors {
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let old_spec = old.map(|old| old.spec.as_ref().unwrap_or(&nothing));
    let mut faults = faults_of_allocation(spec, old_spec);
    if !faults.is_empty() {
        return faults;
    }
    if let Some(old) = old_spec {
        cluster_ips::check_change(spec, old, &mut faults);
        traffic::check_change(spec, old, &mut faults);
    }
    check_topology_annotations(service, &mut faults);
    check(spec, old_spec, &mut faults);
    traffic::check_source_ranges(service, old, &mut faults);
    traffic::check(spec, &mut faults);
    faults
}

/// Returns the errors that prevent an allocation. kube-apiserver allocates before it validates, so these errors are
/// reported alone.
fn faults_of_allocation(spec: &ServiceSpec, old: Option<&ServiceSpec>) -> FieldErrors {
    let mut faults = Vec::new();
    if type_of(spec) != "ExternalName" {
        cluster_ips::check(spec, old, &mut faults);
    }
    if faults.is_empty() {
        cluster_ips::check_families(spec, &mut faults);
    }
    if faults.is_empty() && matches!(type_of(spec), "NodePort" | "LoadBalancer") {
        ports::check_allocated_once(spec, &mut faults);
    }
    faults
}

/// An annotation of a Service.
fn annotation<'a>(service: &'a Service, name: &str) -> Option<&'a String> {
    service.metadata.annotations.as_ref()?.get(name)
}

/// The type of a Service.
fn type_of(spec: &ServiceSpec) -> &str {
    spec.type_.as_deref().unwrap_or_default()
}

/// Whether a Service has no address.
fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(spec.cluster_ips.as_deref(), Some([one]) if one == "None")
}

fn check_topology_annotations(service: &Service, faults: &mut FieldErrors) {
    let [hints, mode] = TOPOLOGY_ANNOTATIONS;
    if let (Some(hints_value), Some(mode_value)) =
        (annotation(service, hints), annotation(service, mode))
        && hints_value != mode_value
    {
        let at = format!("metadata.annotations[{mode}]");
        let why = format!("must match annotations[{hints}] when both are specified");
        faults.push(FieldError::invalid(at, quote(mode_value), &why));
    }
}

fn check(spec: &ServiceSpec, old: Option<&ServiceSpec>, faults: &mut FieldErrors) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && !is_headless(spec) && type_of(spec) != "ExternalName" {
        faults.push(FieldError::required("spec.ports", ""));
    }
    match type_of(spec) {
        service_type @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let why = format!("may not be set to 'None' for {service_type} services");
            faults.push(FieldError::invalid("spec.clusterIPs[0]", quote("None"), &why));
        }
        "ExternalName" => check_external_name(spec, faults),
        _ => {}
    }
    ports::check(ports, faults);
    label_selector::check_labels(spec.selector.as_ref(), "spec.selector", faults);
    check_session_affinity(spec, faults);
    check_external_addresses(spec, old, faults);
    check_one_of("spec.type", spec.type_.as_ref(), &TYPES, faults);
    ports::check_no_node_ports(spec, faults);
    ports::check_duplicates(ports, faults);
}

fn check_external_name(spec: &ServiceSpec, faults: &mut FieldErrors) {
    let why = "may not be set for ExternalName services";
    let fields = [
        ("spec.clusterIPs", spec.cluster_ips.as_ref().is_some_and(|all| !all.is_empty())),
        ("spec.ipFamilies", spec.ip_families.as_ref().is_some_and(|all| !all.is_empty())),
        ("spec.ipFamilyPolicy", spec.ip_family_policy.is_some()),
    ];
    let set = fields.into_iter().filter(|(_, is_set)| *is_set);
    faults.extend(set.map(|(field, _)| FieldError::forbidden(field, why)));
    let name = spec.external_name.as_deref().unwrap_or_default();
    match name.strip_suffix('.').unwrap_or(name) {
        "" => faults.push(FieldError::required("spec.externalName", "")),
        name => check_with("spec.externalName", name, names::check_dns_1123_subdomain, faults),
    }
}

fn check_session_affinity(spec: &ServiceSpec, faults: &mut FieldErrors) {
    const AT: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    let affinity = spec.session_affinity.as_ref();
    check_one_of("spec.sessionAffinity", affinity, &["ClientIP", "None"], faults);
    if affinity.is_none_or(|affinity| affinity != "ClientIP") {
        return;
    }
    let client = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    if let Some(seconds) = client.and_then(|client| client.timeout_seconds)
        && !(1..=MAX_SESSION_SECONDS).contains(&seconds)
    {
        let why = format!("must be greater than 0 and less than {MAX_SESSION_SECONDS}");
        faults.push(FieldError::invalid(AT, seconds, &why));
    }
}

/// Checks external IPs. Addresses of the old Service are not checked again.
fn check_external_addresses(
    spec: &ServiceSpec,
    old: Option<&ServiceSpec>,
    faults: &mut FieldErrors,
) {
    let known = old.and_then(|old| old.external_ips.as_ref());
    for (index, address) in spec.external_ips.iter().flatten().enumerate() {
        let at = format!("spec.externalIPs[{index}]");
        let before = faults.len();
        if !known.is_some_and(|known| known.contains(address)) {
            check_address(&at, address, faults);
        }
        if faults.len() == before {
            check_endpoint_address(&at, address, faults);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object};
    use serde_json::{Value, json};

    #[test]
    fn invalid_services_are_rejected() {
        for (spec, expected) in [
            (json!({"ports": [{"port": 80}]}), vec![]),
            (json!({"clusterIP": "None", "clusterIPs": ["None"]}), vec![]),
            (json!({}), vec!["spec.ports: Required value"]),
            (json!({"type": "ExternalName"}), vec!["spec.externalName: Required value"]),
            (json!({"type": "ExternalName", "externalName": "a.b."}), vec![]),
            (
                json!({"type": "X", "sessionAffinity": "Y", "ports": [{"port": 80}]}),
                vec![
                    "spec.sessionAffinity: Unsupported value: \"Y\": supported values: \"ClientIP\", \"None\"",
                    "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
                ],
            ),
            (
                json!({"ports": [{"port": 80}], "clusterIP": "x", "clusterIPs": ["x"]}),
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
    fn service_cluster_ip_is_immutable() {
        let service = |service_type: &str, address: &str| {
            json!({"spec": {
                "type": service_type, "clusterIP": address, "clusterIPs": [address], "externalName": "a.b", "ports": [{"port": 80}],
            }})
        };
        let old = service("ClusterIP", "10.96.0.2");
        let kept = service("NodePort", "10.96.0.2");
        assert_eq!(faults_of_update(validate, old.clone(), kept), [] as [&str; 0]);
        let other = service("ClusterIP", "10.96.0.3");
        let why = "spec.clusterIPs[0]: Invalid value: [\"10.96.0.3\"]: may not change once set";
        assert_eq!(faults_of_update(validate, old.clone(), other), [why]);
        let named = service("ExternalName", "10.96.0.3");
        let why = "spec.clusterIPs: Forbidden: may not be set for ExternalName services";
        assert_eq!(faults_of_update(validate, old, named), [why]);
    }

    #[test]
    fn deprecated_and_ignored_service_fields_cause_warnings() {
        let of = |spec: Value| warnings(&object(json!({"spec": spec})));
        let addresses = json!(["1.2.3.4"]);
        assert_eq!(
            of(json!({"externalIPs": addresses})),
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"]
        );
        assert!(of(json!({"externalIPs": [], "clusterIP": "None"})).is_empty());
        assert_eq!(
            of(
                json!({"type": "ClusterIP", "externalIPs": addresses, "clusterIP": "None", "sessionAffinity": "ClientIP"})
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
