//! Endpoints: all endpoints of a Service in one object.

use aggregated_apiserver::strategy::{StoragePrefix, names};
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};

use crate::built_in::cell_texts::or_none;
use crate::built_in::checks::{FieldErrors, check_one_of, check_with};
use crate::built_in::defaulting::set_default;
use crate::built_in::networks::{check_address, check_endpoint_address, warning_of_address};
use crate::built_in::pod_template::ports;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;

/// The number of endpoints in a table cell.
const SHOWN: usize = 3;

/// The label of Endpoints whose controller always writes addresses in canonical form.
const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");

pub(crate) fn row() -> Row<Endpoints> {
    let rules = Validation::new()
        .prepare(|endpoints, _| prepare(endpoints))
        .validate(|endpoints, old, _| validate(endpoints, old))
        .warn(|endpoints, _, _| warnings(endpoints));
    Row {
        short_names: &["ep"],
        deprecation: Some(
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        allows_create_on_update: true,
        storage_prefix: StoragePrefix::Named("services/endpoints"),
        ..without_generation()
    }
}

fn columns() -> Vec<Column<Endpoints>> {
    vec![Column::computed("Endpoints", |endpoints, _| shown(endpoints)), Column::age()]
}

/// The endpoints in the format `10.0.0.1:80,10.0.0.2:80,[2001:db8::1]:80 + 2 more...`.
fn shown(endpoints: &Endpoints) -> String {
    let mut all = Vec::new();
    let mut count = 0;
    for subset in endpoints.subsets.iter().flatten() {
        let addresses = subset.addresses.as_deref().unwrap_or_default();
        let ports = subset.ports.as_deref().unwrap_or_default();
        count += addresses.len() * ports.len().max(1);
        let room = SHOWN.saturating_sub(all.len());
        if ports.is_empty() {
            all.extend(addresses.iter().take(room).map(|one| one.ip.clone()));
        }
        let pairs = ports.iter().flat_map(|port| addresses.iter().map(move |one| (one, port)));
        all.extend(pairs.take(room).map(|(one, port)| match one.ip.contains(':') {
            true => format!("[{}]:{}", one.ip, port.port),
            false => format!("{}:{}", one.ip, port.port),
        }));
    }
    match count > all.len() {
        true => format!("{} + {} more...", all.join(","), count - SHOWN),
        // The cell is empty if no address is ready.
        false if endpoints.subsets.as_ref().is_some_and(|subsets| !subsets.is_empty()) => {
            all.join(",")
        }
        false => or_none(String::new()),
    }
}

fn prepare(endpoints: &mut Endpoints) {
    let subsets = endpoints.subsets.iter_mut().flatten();
    for port in subsets.flat_map(|subset| subset.ports.iter_mut().flatten()) {
        set_default(&mut port.protocol, "TCP");
    }
}

fn validate(endpoints: &Endpoints, old: Option<&Endpoints>) -> FieldErrors {
    let mut faults = Vec::new();
    if old.is_some_and(|old| old.subsets == endpoints.subsets) {
        return faults;
    }
    for (index, subset) in endpoints.subsets.iter().flatten().enumerate() {
        check_subset(subset, &format!("subsets[{index}]"), &mut faults);
    }
    faults
}

/// The addresses of a subset, each with the path of its field.
fn addresses<'a>(
    subset: &'a EndpointSubset,
    at: &'a str,
) -> impl Iterator<Item = (String, &'a EndpointAddress)> {
    let lists =
        [("addresses", &subset.addresses), ("notReadyAddresses", &subset.not_ready_addresses)];
    lists.into_iter().flat_map(move |(list, addresses)| {
        let addresses = addresses.iter().flatten().enumerate();
        addresses.map(move |(index, address)| (format!("{at}.{list}[{index}]"), address))
    })
}

fn check_subset(subset: &EndpointSubset, at: &str, faults: &mut FieldErrors) {
    if addresses(subset, at).next().is_none() {
        let why = "must specify `addresses` or `notReadyAddresses`";
        faults.push(FieldError::required(at, why));
    }
    for (at, address) in addresses(subset, at) {
        check_endpoint(address, &at, faults);
    }
    let ports = subset.ports.as_deref().unwrap_or_default();
    for (index, port) in ports.iter().enumerate() {
        check_port(port, ports.len() > 1, &format!("{at}.ports[{index}]"), faults);
    }
}

fn check_endpoint(address: &EndpointAddress, at: &str, faults: &mut FieldErrors) {
    let at_address = format!("{at}.ip");
    check_address(&at_address, &address.ip, faults);
    if let Some(name) = address.hostname.as_deref().filter(|name| !name.is_empty()) {
        check_with(&format!("{at}.hostname"), name, names::check_dns_1123_label, faults);
    }
    if let Some(name) = &address.node_name {
        check_with(&format!("{at}.nodeName"), name, names::check_dns_1123_subdomain, faults);
    }
    check_endpoint_address(&at_address, &address.ip, faults);
}

fn check_port(port: &EndpointPort, needs_name: bool, at: &str, faults: &mut FieldErrors) {
    match port.name.as_deref().unwrap_or_default() {
        "" if needs_name => faults.push(FieldError::required(format!("{at}.name"), "")),
        "" => {}
        name => check_with(&format!("{at}.name"), name, names::check_dns_1123_label, faults),
    }
    ports::check_port_number(&format!("{at}.port"), i64::from(port.port), faults);
    let protocols = ["SCTP", "TCP", "UDP"];
    check_one_of(format!("{at}.protocol"), port.protocol.as_ref(), &protocols, faults);
    if let Some(protocol) = &port.app_protocol {
        check_with(&format!("{at}.appProtocol"), protocol, names::check_label_key, faults);
    }
}

/// Warnings about addresses that are not in canonical form.
fn warnings(endpoints: &Endpoints) -> Vec<String> {
    let (label, controller) = MANAGED_BY;
    let labels = endpoints.metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(label)).is_some_and(|manager| manager == controller) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for (index, subset) in endpoints.subsets.iter().flatten().enumerate() {
        let at = format!("subsets[{index}]");
        let of = addresses(subset, &at);
        warnings
            .extend(of.filter_map(|(at, one)| warning_of_address(&format!("{at}.ip"), &one.ip)));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, object};
    use serde_json::{Value, json};

    fn of(addresses: Value, ports: Value) -> Value {
        json!({"subsets": [{"addresses": addresses, "ports": ports}]})
    }

    #[test]
    fn endpoints_validation_reports_invalid_fields() {
        for (endpoints, expected) in [
            (of(json!([{"ip": "10.0.0.1"}]), json!([{"port": 80}])), vec![]),
            (
                json!({"subsets": [{}]}),
                vec!["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
            ),
            (
                of(json!([{"ip": "x", "hostname": "A"}]), json!([])),
                vec![
                    "subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                    "subsets[0].addresses[0].hostname: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                    "subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address",
                ],
            ),
            (
                of(
                    json!([{"ip": "127.0.0.1"}, {"ip": "::"}, {"ip": "fe80::1"}, {"ip": "224.0.0.9"}]),
                    json!([]),
                ),
                vec![
                    "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                    "subsets[0].addresses[1].ip: Invalid value: \"::\": may not be unspecified (::)",
                    "subsets[0].addresses[2].ip: Invalid value: \"fe80::1\": may not be in the link-local range (169.254.0.0/16, fe80::/10)",
                    "subsets[0].addresses[3].ip: Invalid value: \"224.0.0.9\": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
                ],
            ),
            (
                of(
                    json!([{"ip": "10.0.0.1"}]),
                    json!([{"port": 0}, {"name": "a", "port": 1, "protocol": "X"}]),
                ),
                vec![
                    "subsets[0].ports[0].name: Required value",
                    "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    "subsets[0].ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, endpoints.clone()), expected, "{endpoints}");
            assert!(faults_of_update(validate, endpoints.clone(), endpoints).is_empty());
        }
    }

    #[test]
    fn endpoints_table_lists_addresses_and_non_canonical_ips_cause_warnings() {
        let shown = |endpoints: Value| cells(columns(), endpoints)["Endpoints"].clone();
        assert_eq!(shown(json!({})), "<none>");
        assert_eq!(shown(json!({"subsets": [{"notReadyAddresses": [{"ip": "10.0.0.1"}]}]})), "");
        let two = json!([{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}]);
        assert_eq!(shown(of(two.clone(), json!([]))), "10.0.0.1,2001:db8::1");
        assert_eq!(
            shown(of(two, json!([{"port": 80}, {"port": 81}]))),
            "10.0.0.1:80,[2001:db8::1]:80,10.0.0.1:81 + 1 more..."
        );
        let mut loud = of(json!([{"ip": "2001:DB8::1"}]), json!([]));
        assert_eq!(warnings(&object(loud.clone())).len(), 1);
        loud["metadata"]["labels"] = json!({MANAGED_BY.0: MANAGED_BY.1});
        assert!(warnings(&object(loud)).is_empty());
    }
}
