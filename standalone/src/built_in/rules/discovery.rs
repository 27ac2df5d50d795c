//! APIServices and EndpointSlices.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use aggregated_apiserver::{FieldError, Rules, names, whole_seconds};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{
    APIService, APIServiceCondition, APIServiceSpec,
};

use super::{Faults, check_kept, check_one_of, check_with, quote};

const AT_MOST_ENDPOINTS: usize = 1_000;
const AT_MOST_PORTS: usize = 100;
const AT_MOST_ADDRESSES: usize = 100;

/// A local API is available at once. APIs of other servers are not asked for: their
/// APIServices get no condition.
pub(in super::super) fn api_services() -> Rules<APIService> {
    Rules::none()
        .prepare(|api: &mut APIService, context| {
            let is_new = api.metadata.resource_version.is_none();
            let service = api.spec.as_mut().map(|spec| spec.service.as_mut());
            if let Some(Some(service)) = service {
                service.port.get_or_insert(443);
            } else if is_new {
                api.status.get_or_insert_default().conditions = Some(vec![APIServiceCondition {
                    type_: "Available".to_owned(),
                    status: "True".to_owned(),
                    reason: Some("Local".to_owned()),
                    message: Some("Local APIServices are always available".to_owned()),
                    last_transition_time: Some(Time(whole_seconds(context.now))),
                }]);
            }
        })
        .validate(|api, _, _| {
            let mut faults = Vec::new();
            let spec = api.spec.clone().unwrap_or_default();
            check_api(api.metadata.name.as_deref().unwrap_or_default(), &spec, &mut faults);
            faults
        })
}

fn check_api(name: &str, spec: &APIServiceSpec, faults: &mut Faults) {
    let group = spec.group.as_deref().unwrap_or_default();
    let version = spec.version.as_deref().unwrap_or_default();
    let expected = format!("{version}.{group}");
    if name != expected {
        let why = format!("must be `spec.version+\".\"+spec.group`: {}", quote(&expected));
        faults.push(FieldError::invalid("metadata.name", quote(name), &why));
    }
    if group.is_empty() && version != "v1" {
        let why = "only v1 may have an empty group and it better be legacy kube";
        faults.push(FieldError::required("spec.group", why));
    }
    if !group.is_empty() {
        check_with("spec.group", group, names::check_subdomain, faults);
    }
    check_with("spec.version", version, names::check_dns_1035_label, faults);
    let mut check_priority = |field: &str, number: i32, most: i32| {
        if number <= 0 || number > most {
            let why = format!("must be positive and less than {most}");
            faults.push(FieldError::invalid(format!("spec.{field}"), number, &why));
        }
    };
    check_priority("groupPriorityMinimum", spec.group_priority_minimum, 20_000);
    check_priority("versionPriority", spec.version_priority, 1_000);
    let bundle = spec.ca_bundle.as_ref().map_or(0, |bundle| bundle.0.len());
    let is_unverified = spec.insecure_skip_tls_verify == Some(true);
    let Some(service) = &spec.service else {
        if bundle > 0 {
            let shown = quote(&format!("{bundle} bytes"));
            let why = "local APIServices may not have a caBundle";
            faults.push(FieldError::invalid("spec.caBundle", shown, why));
        }
        if is_unverified {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            faults.push(FieldError::invalid("spec.insecureSkipTLSVerify", true, why));
        }
        return;
    };
    for (field, text) in [("namespace", &service.namespace), ("name", &service.name)] {
        if text.as_ref().is_none_or(String::is_empty) {
            faults.push(FieldError::required(format!("spec.service.{field}"), ""));
        }
    }
    if let Some(port) = service.port.filter(|port| !(1..=65_535).contains(port)) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        faults.push(FieldError::invalid("spec.service.port", port, why));
    }
    if is_unverified && bundle > 0 {
        let why = "may not be true if caBundle is present";
        faults.push(FieldError::invalid("spec.insecureSkipTLSVerify", true, why));
    }
}

/// The endpoints of a Service.
pub(in super::super) fn endpoint_slices() -> Rules<EndpointSlice> {
    Rules::none()
        .prepare(|slice: &mut EndpointSlice, _| {
            for port in slice.ports.iter_mut().flatten() {
                port.name.get_or_insert_default();
                port.protocol.get_or_insert_with(|| "TCP".to_owned());
            }
        })
        .validate(|slice, old, _| {
            let mut faults = Vec::new();
            if slice.address_type.is_empty() {
                faults.push(FieldError::required("addressType", ""));
            } else {
                let types = ["FQDN", "IPv4", "IPv6"];
                check_one_of("addressType", Some(&slice.address_type), &types, &mut faults);
            }
            if old.is_none_or(|old| old.endpoints != slice.endpoints) {
                check_endpoints(slice, &mut faults);
            }
            check_ports(slice, &mut faults);
            if let Some(old) = old {
                check_kept("addressType", &slice.address_type, &old.address_type, &mut faults);
            }
            faults
        })
}

fn check_endpoints(slice: &EndpointSlice, faults: &mut Faults) {
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    if endpoints.len() > AT_MOST_ENDPOINTS {
        faults.push(FieldError::too_many("endpoints", endpoints.len(), AT_MOST_ENDPOINTS as u64));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = format!("endpoints[{index}].addresses");
        let addresses = &endpoint.addresses;
        if addresses.is_empty() {
            faults.push(FieldError::required(&at, "must contain at least 1 address"));
        } else if addresses.len() > AT_MOST_ADDRESSES {
            faults.push(FieldError::too_many(&at, addresses.len(), AT_MOST_ADDRESSES as u64));
        }
        for (index, address) in addresses.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let invalid = |why: &str| FieldError::invalid(&at, quote(address), why);
            match slice.address_type.as_str() {
                "IPv4" if address.parse::<Ipv4Addr>().is_err() => {
                    faults.push(invalid("must be an IPv4 address"));
                }
                "IPv6" if address.parse::<Ipv6Addr>().is_err() => {
                    faults.push(invalid("must be an IPv6 address"));
                }
                "FQDN" => check_with(&at, address, names::check_subdomain, faults),
                _ => {}
            }
        }
    }
}

fn check_ports(slice: &EndpointSlice, faults: &mut Faults) {
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
            check_with(&format!("{at}.name"), name, names::check_label, faults);
        }
        if !seen.insert(name) {
            faults.push(FieldError::duplicate(format!("{at}.name"), quote(name)));
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        check_one_of(format!("{at}.protocol"), port.protocol.as_ref(), &protocols, faults);
    }
}
