//! Columns of the tables that kubectl shows.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;

use super::row::Column;

pub(super) fn definitions() -> Vec<Column<CustomResourceDefinition>> {
    vec![Column::path("Created At", ".metadata.creationTimestamp").of_type("date")]
}

pub(super) fn api_services() -> Vec<Column<APIService>> {
    vec![
        Column::computed("Service", |api, _| service(api)),
        Column::computed("Available", |api, _| available(api)),
        Column::age(),
    ]
}

fn service(api: &APIService) -> String {
    let service = api.spec.as_ref().and_then(|spec| spec.service.as_ref());
    service.map_or_else(
        || "Local".to_owned(),
        |service| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", text(&service.namespace), text(&service.name))
        },
    )
}

fn available(api: &APIService) -> String {
    let conditions = api.status.as_ref().and_then(|status| status.conditions.as_ref());
    let available =
        conditions.into_iter().flatten().find(|condition| condition.type_ == "Available");
    match available {
        None => "Unknown".to_owned(),
        Some(condition) if condition.status == "True" => condition.status.clone(),
        Some(condition) => {
            let reason = condition.reason.as_deref().unwrap_or_default();
            format!("{} ({reason})", condition.status)
        }
    }
}

pub(super) fn endpoint_slices() -> Vec<Column<EndpointSlice>> {
    vec![
        Column::path("AddressType", ".addressType"),
        Column::computed("Ports", |slice, _| ports_of_slice(slice)),
        Column::computed("Endpoints", |slice, _| endpoints(slice)),
        Column::age(),
    ]
}

fn ports_of_slice(slice: &EndpointSlice) -> String {
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

/// The first three of them, and how many more there are.
fn first_three(all: Vec<String>) -> String {
    let first = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len() {
        more @ 4.. => format!("{first} + {} more...", more - 3),
        _ if first.is_empty() => "<unset>".to_owned(),
        _ => first,
    }
}
