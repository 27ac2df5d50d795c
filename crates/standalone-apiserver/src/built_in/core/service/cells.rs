//! The cells of Services.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use crate::built_in::cell_texts::{NONE, or_none, pairs};
use crate::built_in::row::Column;

pub(crate) fn columns() -> Vec<Column<Service>> {
    vec![
        Column::path("Type", ".spec.type"),
        Column::computed("Cluster-IP", |service, _| {
            of_spec(service, |spec| spec.cluster_ip.clone().unwrap_or_default())
        }),
        Column::computed("External-IP", |service, _| external_addresses(service)),
        Column::computed("Port(s)", |service, _| of_spec(service, ports)),
        Column::age(),
        Column::computed("Selector", |service, _| {
            of_spec(service, |spec| pairs(spec.selector.as_ref()))
        })
        .wide(),
    ]
}

fn of_spec(service: &Service, show: fn(&ServiceSpec) -> String) -> String {
    service.spec.as_ref().map_or_else(|| NONE.to_owned(), |spec| or_none(show(spec)))
}

fn external_addresses(service: &Service) -> String {
    let Some(spec) = &service.spec else { return NONE.to_owned() };
    let own = spec.external_ips.clone().unwrap_or_default();
    match spec.type_.as_deref() {
        Some("ExternalName") => or_none(spec.external_name.clone().unwrap_or_default()),
        Some("LoadBalancer") => {
            let balancer = service.status.as_ref().and_then(|one| one.load_balancer.as_ref());
            let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
            let given = ingress.into_iter().flatten();
            let given = given.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone()));
            let all: Vec<String> = given.chain(own).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ => or_none(own.join(",")),
    }
}

fn ports(spec: &ServiceSpec) -> String {
    let ports = spec.ports.iter().flatten().map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        match port.node_port.filter(|port| *port > 0) {
            Some(node) => format!("{}:{node}/{protocol}", port.port),
            None => format!("{}/{protocol}", port.port),
        }
    });
    ports.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::cells;
    use serde_json::{Value, json};

    #[test]
    fn a_service_is_printed_as_a_table_row() {
        let service = json!({"spec": {
            "type": "NodePort", "clusterIP": "10.96.0.2", "selector": {"a": "b", "c": "d"},
            "ports": [{"port": 80, "nodePort": 30_000}, {"port": 53, "protocol": "UDP"}],
        }});
        assert_eq!(
            cells(columns(), service),
            json!({
                "Cluster-IP": "10.96.0.2", "External-IP": "<none>",
                "Port(s)": "80:30000/TCP,53/UDP", "Age": "<unknown>", "Selector": "a=b,c=d",
            })
        );
    }

    #[test]
    fn service_external_ip_column_depends_on_spec_and_status() {
        let external = |service: Value| cells(columns(), service)["External-IP"].clone();
        let ingress = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "h"}]}});
        for (service, expected) in [
            (json!({}), "<none>"),
            (json!({"spec": {"externalIPs": ["5.6.7.8"]}}), "5.6.7.8"),
            (json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}), "a.b"),
            (json!({"spec": {"type": "LoadBalancer"}}), "<pending>"),
            (
                json!({"spec": {"type": "LoadBalancer", "externalIPs": ["5.6.7.8"]}, "status": ingress}),
                "1.2.3.4,h,5.6.7.8",
            ),
        ] {
            assert_eq!(external(service.clone()), expected, "{service}");
        }
    }
}
