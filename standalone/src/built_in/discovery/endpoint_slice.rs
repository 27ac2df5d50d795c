//! EndpointSlices: the endpoints of Services.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use aggregated_apiserver::{FieldError, Rules, names};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::built_in::checks::{FieldErrors, check_immutable, check_one_of, check_with, quote};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy;

const AT_MOST_ENDPOINTS: usize = 1_000;

const AT_MOST_PORTS: usize = 100;

const AT_MOST_ADDRESSES: usize = 100;

pub(crate) fn row() -> Row<EndpointSlice> {
    let rules = Rules::new()
        .prepare(|slice, _| prepare(slice))
        .validate(|slice, old, _| validate(slice, old));
    Row { columns: columns(), rules, ..Row::new(strategy::with_generation()) }
}

fn columns() -> Vec<Column<EndpointSlice>> {
    vec![
        Column::path("AddressType", ".addressType"),
        Column::computed("Ports", |slice, _| ports(slice)),
        Column::computed("Endpoints", |slice, _| endpoints(slice)),
        Column::age(),
    ]
}

fn ports(slice: &EndpointSlice) -> String {
    let ports = slice.ports.iter().flatten().map(|port| match (port.port, &port.name) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.clone(),
        (None, None) => "*".to_owned(),
    });
    first_three(ports.collect())
}

fn endpoints(slice: &EndpointSlice) -> String {
    let addresses = slice.endpoints.iter().flatten().flat_map(|one| one.addresses.clone());
    first_three(addresses.collect())
}

/// The first three, and how many more there are.
fn first_three(all: Vec<String>) -> String {
    let first = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len() {
        more @ 4.. => format!("{first} + {} more...", more - 3),
        _ if first.is_empty() => "<unset>".to_owned(),
        _ => first,
    }
}

fn prepare(slice: &mut EndpointSlice) {
    for port in slice.ports.iter_mut().flatten() {
        port.name.get_or_insert_default();
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}

fn validate(slice: &EndpointSlice, old: Option<&EndpointSlice>) -> FieldErrors {
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
        check_immutable("addressType", &slice.address_type, &old.address_type, &mut faults);
    }
    faults
}

fn check_endpoints(slice: &EndpointSlice, faults: &mut FieldErrors) {
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
                "FQDN" => check_with(&at, address, names::check_dns_1123_subdomain, faults),
                _ => {}
            }
        }
    }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, prepared};
    use serde_json::json;

    #[test]
    fn defaults() {
        let filled = prepared(prepare, json!({"ports": [{}, {"name": "a", "protocol": "UDP"}]}));
        assert_eq!(
            filled["ports"],
            json!([{"name": "", "protocol": "TCP"}, {"name": "a", "protocol": "UDP"}])
        );
    }

    #[test]
    fn faults() {
        let many = vec![json!({"addresses": ["10.0.0.1"]}); AT_MOST_ENDPOINTS + 1];
        for (slice, expected) in [
            (json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}), vec![]),
            (json!({}), vec!["addressType: Required value"]),
            (
                json!({"addressType": "X"}),
                vec![
                    "addressType: Unsupported value: \"X\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
                ],
            ),
            (
                json!({"addressType": "IPv6", "endpoints": [{"addresses": []}, {"addresses": ["10.0.0.1"]}]}),
                vec![
                    "endpoints[0].addresses: Required value: must contain at least 1 address",
                    "endpoints[1].addresses[0]: Invalid value: \"10.0.0.1\": must be an IPv6 address",
                ],
            ),
            (
                json!({"addressType": "IPv4", "endpoints": many}),
                vec!["endpoints: Too many: 1001: must have at most 1000 items"],
            ),
            (
                json!({"addressType": "IPv4", "ports": [{"name": "a"}, {"name": "a", "protocol": "X"}]}),
                vec![
                    "ports[1].name: Duplicate value: \"a\"",
                    "ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, slice.clone()), expected);
        }
    }

    #[test]
    fn its_address_type_does_not_change_and_old_endpoints_may_stay() {
        let slice = |address_type: &str| json!({"addressType": address_type, "endpoints": [{"addresses": ["x"]}]});
        assert_eq!(faults_of_update(validate, slice("IPv4"), slice("IPv4")), [] as [&str; 0]);
        assert_eq!(
            faults_of_update(validate, slice("FQDN"), slice("IPv4")),
            ["addressType: Invalid value: \"IPv4\": field is immutable"]
        );
    }

    #[test]
    fn its_table() {
        let slice = json!({
            "ports": [{"port": 80}, {"name": "a"}, {}],
            "endpoints": [{"addresses": ["1", "2"]}, {"addresses": ["3", "4", "5"]}],
        });
        assert_eq!(
            cells(columns(), slice),
            json!({"Ports": "80,a,*", "Endpoints": "1,2,3 + 2 more...", "Age": "<unknown>"})
        );
        assert_eq!(cells(columns(), json!({}))["Ports"], "<unset>");
    }
}
