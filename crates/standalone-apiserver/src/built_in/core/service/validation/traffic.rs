//! The traffic to a Service: load balancers, source ranges and traffic policies.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::super::addresses::is_reached_from_outside;
use super::{annotation, type_of};
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote, to_json};
use crate::built_in::networks::check_network;
use crate::built_in::pod_template::ports;

/// The annotation with the source ranges of a load balancer, from before there was a field for them.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

const BALANCED_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

const CLASS: &str = "spec.loadBalancerClass";

fn is_balanced(spec: &ServiceSpec) -> bool {
    type_of(spec) == "LoadBalancer"
}

/// Whether load balancers check a health check port of each node.
fn has_health_check(spec: &ServiceSpec) -> bool {
    is_balanced(spec) && spec.external_traffic_policy.as_deref() == Some("Local")
}

/// Checks that an update changes no immutable field.
pub(super) fn check_change(spec: &ServiceSpec, old: &ServiceSpec, faults: &mut FieldErrors) {
    if is_balanced(spec) && is_balanced(old) && spec.load_balancer_class != old.load_balancer_class
    {
        let value = to_json(&spec.load_balancer_class);
        faults.push(FieldError::invalid(CLASS, value, "may not change once set"));
    }
    check_class(spec, faults);
    let number = |spec: &ServiceSpec| spec.health_check_node_port.unwrap_or_default();
    if has_health_check(spec) && has_health_check(old) && number(spec) != number(old) {
        let why = "field is immutable";
        faults.push(FieldError::forbidden("spec.healthCheckNodePort", why));
    }
}

/// Checks the source ranges of a load balancer: those of the field, or else those of the annotation.
pub(super) fn check_source_ranges(
    service: &Service,
    old: Option<&Service>,
    faults: &mut FieldErrors,
) {
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let ranges = spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
    if !ranges.is_empty() {
        const AT: &str = "spec.LoadBalancerSourceRanges";
        if !is_balanced(spec) {
            faults.push(FieldError::forbidden(AT, BALANCED_ONLY));
        }
        let known = old.and_then(|old| old.spec.as_ref()?.load_balancer_source_ranges.as_ref());
        let is_known =
            |range: &str| known.is_some_and(|all| all.iter().any(|one| one.trim() == range));
        for (index, range) in ranges.iter().enumerate() {
            if !is_known(range.trim()) {
                check_network(&format!("{AT}[{index}]"), range.trim(), faults);
            }
        }
        return;
    }
    let Some(ranges) = annotation(service, SOURCE_RANGES) else { return };
    let at = format!("metadata.annotations[{SOURCE_RANGES}]");
    if !is_balanced(spec) {
        faults.push(FieldError::forbidden(&at, BALANCED_ONLY));
    }
    let before = old.and_then(|old| annotation(old, SOURCE_RANGES));
    if before != Some(ranges) && !ranges.trim().is_empty() {
        for range in ranges.split(',') {
            check_network(&at, range.trim(), faults);
        }
    }
}

/// Checks the fields of load balancers and the policies of traffic.
pub(super) fn check(spec: &ServiceSpec, faults: &mut FieldErrors) {
    if spec.allocate_load_balancer_node_ports.is_some() && !is_balanced(spec) {
        faults.push(FieldError::forbidden("spec.allocateLoadBalancerNodePorts", BALANCED_ONLY));
    }
    check_class(spec, faults);
    check_external_policy(spec, faults);
    check_health_check(spec, faults);
    let policy = spec.internal_traffic_policy.as_ref();
    check_one_of("spec.internalTrafficPolicy", policy, &["Cluster", "Local"], faults);
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let distribution = spec.traffic_distribution.as_ref();
    check_one_of("spec.trafficDistribution", distribution, &distributions, faults);
}

fn check_class(spec: &ServiceSpec, faults: &mut FieldErrors) {
    match &spec.load_balancer_class {
        Some(class) if is_balanced(spec) => {
            check_with(CLASS, class, names::check_label_key, faults);
        }
        Some(_) => faults.push(FieldError::forbidden(CLASS, BALANCED_ONLY)),
        None => {}
    }
}

fn check_external_policy(spec: &ServiceSpec, faults: &mut FieldErrors) {
    const AT: &str = "spec.externalTrafficPolicy";
    let policy = spec.external_traffic_policy.as_ref().filter(|policy| !policy.is_empty());
    if is_reached_from_outside(spec) {
        check_one_of(AT, policy, &["Cluster", "Local"], faults);
    } else if let Some(policy) = policy {
        let why = "may only be set for externally-accessible services";
        faults.push(FieldError::invalid(AT, quote(policy), why));
    }
}

fn check_health_check(spec: &ServiceSpec, faults: &mut FieldErrors) {
    const AT: &str = "spec.healthCheckNodePort";
    let number = spec.health_check_node_port.unwrap_or_default();
    if has_health_check(spec) {
        ports::check_port_number(AT, i64::from(number), faults);
    } else if number != 0 {
        let why =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        faults.push(FieldError::invalid(AT, number, why));
    }
}
