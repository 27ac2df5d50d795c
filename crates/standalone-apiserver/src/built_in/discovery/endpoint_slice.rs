//! EndpointSlices: the endpoints of Services.

mod validation;

use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::built_in::cell_texts::UNSET;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::with_generation;
use validation::{validate, warnings};

pub(crate) fn row() -> Row<EndpointSlice> {
    let rules = Validation::new()
        .prepare(|slice, context| {
            prepare(slice);
            drop_topology(slice, context.old().as_ref());
        })
        .validate(|slice, old, _| validate(slice, old))
        .warn(|slice, old, _| warnings(slice, old));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { counts_labels: true, ..with_generation() }
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

/// The first three strings, and the number of the others.
fn first_three(all: Vec<String>) -> String {
    let first = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len() {
        more @ 4.. => format!("{first} + {} more...", more - 3),
        _ if first.is_empty() => UNSET.to_owned(),
        _ => first,
    }
}

fn prepare(slice: &mut EndpointSlice) {
    for port in slice.ports.iter_mut().flatten() {
        port.name.get_or_insert_default();
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}

/// Drops the fields of older versions, unless the endpoints do not change.
fn drop_topology(slice: &mut EndpointSlice, old: Option<&EndpointSlice>) {
    if old.is_some_and(|old| old.endpoints == slice.endpoints) {
        return;
    }
    slice.endpoints.iter_mut().flatten().for_each(|one| one.deprecated_topology = None);
}

#[cfg(test)]
mod tests {
    use super::validation::AT_MOST_ENDPOINTS;
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
    fn invalid_endpoint_slices_are_rejected() {
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
                    "endpoints[1].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address",
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
    fn endpoint_slice_address_type_is_immutable_and_old_endpoints_stay_valid() {
        let slice = |address_type: &str| json!({"addressType": address_type, "endpoints": [{"addresses": ["x"]}]});
        assert_eq!(faults_of_update(validate, slice("IPv4"), slice("IPv4")), [] as [&str; 0]);
        assert_eq!(
            faults_of_update(validate, slice("FQDN"), slice("IPv4")),
            ["addressType: Invalid value: \"IPv4\": field is immutable"]
        );
    }

    #[test]
    fn an_endpoint_slice_is_printed_as_a_table_row() {
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
