//! The status of Services.

use std::net::IpAddr;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};

use super::type_of;
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
use crate::built_in::networks::{check_address, parse_address, warning_of_address};

const AT: &str = "status.loadBalancer.ingress";

fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default()
}

/// Validates the status of a Service.
pub(crate) fn validate_status(service: &Service, old: Option<&Service>) -> FieldErrors {
    let mut faults = Vec::new();
    let all = ingress(service);
    let service_type = service.spec.as_ref().map(type_of).unwrap_or_default();
    if service_type != "LoadBalancer" && !all.is_empty() {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        return vec![FieldError::forbidden(AT, why)];
    }
    let known: Vec<&String> =
        old.map(ingress).unwrap_or_default().iter().filter_map(|one| one.ip.as_ref()).collect();
    for (index, one) in all.iter().enumerate() {
        check_ingress(one, &format!("{AT}[{index}]"), &known, &mut faults);
    }
    faults
}

fn check_ingress(
    ingress: &LoadBalancerIngress,
    at: &str,
    known: &[&String],
    faults: &mut FieldErrors,
) {
    let address = ingress.ip.as_ref().filter(|address| !address.is_empty());
    if let Some(address) = address.filter(|address| !known.contains(address)) {
        check_address(&format!("{at}.ip"), address, faults);
    }
    let at_mode = format!("{at}.ipMode");
    match (&ingress.ip_mode, address) {
        (None, Some(_)) => {
            faults.push(FieldError::required(at_mode, "must be specified when `ip` is set"));
        }
        (Some(_), None) => {
            let why = "may not be specified when `ip` is not set";
            faults.push(FieldError::forbidden(at_mode, why));
        }
        (mode, _) => check_one_of(at_mode, mode.as_ref(), &["Proxy", "VIP"], faults),
    }
    if let Some(name) = ingress.hostname.as_deref().filter(|name| !name.is_empty()) {
        let at = format!("{at}.hostname");
        check_with(&at, name, names::check_dns_1123_subdomain, faults);
        if parse_address(name).is_some() {
            let why = "must be a DNS name, not an IP address";
            faults.push(FieldError::invalid(at, quote(name), why));
        }
    }
}

/// Warnings about addresses in the status that are not in canonical form.
pub(crate) fn warnings_of_status(service: &Service) -> Vec<String> {
    let all = ingress(service).iter().enumerate();
    let addresses = all.filter_map(|(index, one)| Some((index, one.ip.as_deref()?)));
    let readable = addresses.filter(|(_, address)| address.parse::<IpAddr>().is_ok());
    readable
        .filter_map(|(index, address)| warning_of_address(&format!("{AT}[{index}]"), address))
        .collect()
}
