//! Warnings about Services.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::{TOPOLOGY_ANNOTATIONS, annotation, type_of};
use crate::built_in::checks::quote;
use crate::built_in::networks::{warning_of_address, warning_of_network};

/// The warnings about a Service, in the order of kube-apiserver.
pub(crate) fn warnings(service: &Service) -> Vec<String> {
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let mut warnings = Vec::new();
    let [hints, mode] = TOPOLOGY_ANNOTATIONS;
    if annotation(service, hints).is_some() {
        warnings.push(format!("annotation {hints} is deprecated, please use {mode} instead"));
    }
    let is_headless = type_of(spec) == "ClusterIP" && spec.cluster_ip.as_deref() == Some("None");
    let has_address = spec.cluster_ip.as_deref().is_some_and(|one| !["", "None"].contains(&one));
    if has_address && type_of(spec) != "ExternalName" {
        warnings.extend(warnings_of_addresses("spec.clusterIPs", spec.cluster_ips.as_ref()));
    }
    if is_headless {
        warnings.extend(warnings_of_headless(spec));
    }
    warnings.extend(warnings_of_addresses("spec.externalIPs", spec.external_ips.as_ref()));
    let has_external = spec.external_ips.as_ref().is_some_and(|all| !all.is_empty());
    let is_external_name = type_of(spec) == "ExternalName";
    if has_external && !is_headless && !is_external_name {
        let why =
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(why.to_owned());
    }
    if let Some(address) = spec.load_balancer_ip.as_deref().filter(|address| !address.is_empty()) {
        warnings.extend(warning_of_address("spec.loadBalancerIP", address));
    }
    let ranges = spec.load_balancer_source_ranges.iter().flatten().enumerate();
    warnings.extend(ranges.filter_map(|(index, range)| {
        warning_of_network(&format!("spec.loadBalancerSourceRanges[{index}]"), range)
    }));
    if is_external_name && has_external {
        let why = "spec.externalIPs is ignored when spec.type is \"ExternalName\"";
        warnings.push(why.to_owned());
    }
    if !is_external_name && spec.external_name.as_ref().is_some_and(|name| !name.is_empty()) {
        let why = "spec.externalName is ignored when spec.type is not \"ExternalName\"";
        warnings.push(why.to_owned());
    }
    if let Some(distribution @ "PreferClose") = spec.traffic_distribution.as_deref() {
        let distribution = quote(distribution);
        warnings.push(format!(
            "spec.trafficDistribution: {distribution} is deprecated; use \"PreferSameZone\""
        ));
    }
    warnings
}

fn warnings_of_addresses(at: &str, addresses: Option<&Vec<String>>) -> Vec<String> {
    let addresses = addresses.into_iter().flatten().enumerate();
    addresses
        .filter_map(|(index, address)| warning_of_address(&format!("{at}[{index}]"), address))
        .collect()
}

/// Warnings about fields that are ignored in a headless Service.
fn warnings_of_headless(spec: &ServiceSpec) -> Vec<String> {
    let is_set = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
    let affinity = spec.session_affinity.as_deref().unwrap_or("None");
    let ignored = [
        ("spec.loadBalancerIP", is_set(spec.load_balancer_ip.as_ref())),
        ("spec.externalIPs", spec.external_ips.as_ref().is_some_and(|all| !all.is_empty())),
        ("spec.SessionAffinity", affinity != "None"),
    ];
    let ignored = ignored.into_iter().filter(|(_, is_set)| *is_set);
    ignored.map(|(field, _)| format!("{field} is ignored for headless services")).collect()
}
