//! The validation of EndpointSlices.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::built_in::checks::{FieldErrors, check_immutable, check_one_of, check_with, quote};
use crate::built_in::networks::{
    check_address, check_canonical_address, check_endpoint_address, parse_address,
    warning_of_address,
};

pub(super) const AT_MOST_ENDPOINTS: usize = 1_000;

const AT_MOST_PORTS: usize = 20_000;

const AT_MOST_ADDRESSES: usize = 100;

/// The largest number of hints for zones, and of hints for nodes.
const AT_MOST_HINTS: usize = 8;

/// The controllers that write addresses in canonical form.
const CONTROLLERS: [&str; 2] =
    ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Validates an EndpointSlice. Unchanged endpoints are not validated again.
pub(super) fn validate(slice: &EndpointSlice, old: Option<&EndpointSlice>) -> FieldErrors {
    let mut faults = Vec::new();
    if slice.address_type.is_empty() {
        faults.push(FieldError::required("addressType", ""));
    } else {
        let types = ["FQDN", "IPv4", "IPv6"];
        check_one_of("addressType", Some(&slice.address_type), &types, &mut faults);
    }
    check_ports(slice, &mut faults);
    // The server itself may listen on a loopback address.
    if !is_of_server(slice) && old.is_none_or(|old| old.endpoints != slice.endpoints) {
        check_endpoints(slice, &mut faults);
    }
    if let Some(old) = old {
        check_immutable("addressType", &slice.address_type, &old.address_type, &mut faults);
    }
    faults
}

/// Warnings about an EndpointSlice.
pub(super) fn warnings(slice: &EndpointSlice, old: Option<&EndpointSlice>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() && slice.address_type == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let manager = slice.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
    if manager.is_some_and(|manager| CONTROLLERS.contains(&manager.as_str())) {
        return warnings;
    }
    for (index, endpoint) in slice.endpoints.iter().flatten().enumerate() {
        let at = |inner| format!("endpoints[{index}].addresses[{inner}]");
        let addresses = endpoint.addresses.iter().enumerate();
        warnings.extend(addresses.filter_map(|(inner, one)| warning_of_address(&at(inner), one)));
    }
    warnings
}

/// Whether an EndpointSlice is that of this server.
fn is_of_server(slice: &EndpointSlice) -> bool {
    let ObjectMeta { name, namespace, .. } = &slice.metadata;
    (namespace.as_deref(), name.as_deref()) == (Some("default"), Some("kubernetes"))
}

fn check_endpoints(slice: &EndpointSlice, faults: &mut FieldErrors) {
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    if endpoints.len() > AT_MOST_ENDPOINTS {
        faults.push(FieldError::too_many("endpoints", endpoints.len(), AT_MOST_ENDPOINTS as u64));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        check_endpoint(endpoint, &slice.address_type, &format!("endpoints[{index}]"), faults);
    }
}

fn check_endpoint(endpoint: &Endpoint, address_type: &str, at: &str, faults: &mut FieldErrors) {
    let at_addresses = format!("{at}.addresses");
    let addresses = &endpoint.addresses;
    if addresses.is_empty() {
        faults.push(FieldError::required(&at_addresses, "must contain at least 1 address"));
    } else if addresses.len() > AT_MOST_ADDRESSES {
        let most = AT_MOST_ADDRESSES as u64;
        faults.push(FieldError::too_many(&at_addresses, addresses.len(), most));
    }
    for (index, address) in addresses.iter().enumerate() {
        match address_type {
            "IPv4" | "IPv6" => check_ip(address, address_type, &at_addresses, index, faults),
            "FQDN" => check_domain_name(address, &format!("{at_addresses}[{index}]"), faults),
            _ => {}
        }
    }
    if let Some(name) = &endpoint.node_name {
        check_with(&format!("{at}.nodeName"), name, names::check_dns_1123_subdomain, faults);
    }
    if let Some(name) = &endpoint.hostname {
        check_with(&format!("{at}.hostname"), name, names::check_dns_1123_label, faults);
    }
    if let Some(hints) = &endpoint.hints {
        check_hints(hints, &format!("{at}.hints"), faults);
    }
}

fn check_ip(address: &str, family: &str, at_list: &str, index: usize, faults: &mut FieldErrors) {
    let at = format!("{at_list}[{index}]");
    let before = faults.len();
    match family {
        "IPv6" => check_canonical_address(&at, address, faults),
        _ => check_address(&at, address, faults),
    }
    if faults.len() > before {
        return;
    }
    if parse_address(address).is_some_and(|address| address.is_ipv6() != (family == "IPv6")) {
        let why = format!("must be an {family} address");
        faults.push(FieldError::invalid(at_list, quote(address), &why));
    }
    check_endpoint_address(&at, address, faults);
}

fn check_domain_name(name: &str, at: &str, faults: &mut FieldErrors) {
    if name.is_empty() {
        faults.push(FieldError::required(at, ""));
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let why = names::check_dns_1123_subdomain(name);
    if !why.is_empty() {
        faults.push(FieldError::invalid(at, quote(name), &why.join(",")));
        return;
    }
    if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        faults.push(FieldError::invalid(at, quote(name), why));
        return;
    }
    let mut labels = name.split('.').map(|label| (label, names::check_dns_1123_label(label)));
    if let Some((label, why)) = labels.find(|(_, why)| !why.is_empty()) {
        faults.push(FieldError::invalid(at, quote(label), &why.join(",")));
    }
}

fn check_hints(hints: &EndpointHints, at: &str, faults: &mut FieldErrors) {
    let zones = hints.for_zones.iter().flatten().map(|zone| zone.name.as_str());
    let nodes = hints.for_nodes.iter().flatten().map(|node| node.name.as_str());
    let zones: Vec<&str> = zones.collect();
    let at_zones = format!("{at}.forZones");
    if check_list_of_hints(&zones, names::check_label_value, &at_zones, faults) {
        let nodes: Vec<&str> = nodes.collect();
        let at_nodes = format!("{at}.forNodes");
        check_list_of_hints(&nodes, names::check_dns_1123_subdomain, &at_nodes, faults);
    }
}

/// Checks hints. Returns whether their number is within the limit.
fn check_list_of_hints(
    hints: &[&str],
    check: fn(&str) -> Vec<String>,
    at: &str,
    faults: &mut FieldErrors,
) -> bool {
    if hints.len() > AT_MOST_HINTS {
        faults.push(FieldError::too_many(at, hints.len(), AT_MOST_HINTS as u64));
        return false;
    }
    let mut seen = BTreeSet::new();
    for (index, name) in hints.iter().enumerate() {
        let at = format!("{at}[{index}].name");
        if !seen.insert(name) {
            faults.push(FieldError::duplicate(&at, quote(name)));
        }
        check_with(&at, name, check, faults);
    }
    true
}

fn check_ports(slice: &EndpointSlice, faults: &mut FieldErrors) {
    let ports = slice.ports.as_deref().unwrap_or_default();
    if ports.len() > AT_MOST_PORTS {
        faults.push(FieldError::too_many("ports", ports.len(), AT_MOST_PORTS as u64));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let name = port.name.as_deref().unwrap_or_default();
        let at = format!("ports[{index}]");
        if !name.is_empty() {
            check_with(&format!("{at}.name"), name, names::check_dns_1123_label, faults);
        }
        if !seen.insert(name) {
            faults.push(FieldError::duplicate(format!("{at}.name"), quote(name)));
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        check_one_of(format!("{at}.protocol"), port.protocol.as_ref(), &protocols, faults);
        if let Some(protocol) = &port.app_protocol {
            check_with(&format!("{at}.appProtocol"), protocol, names::check_label_key, faults);
        }
    }
}
