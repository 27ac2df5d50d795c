//! The quota usage of a Service: its node ports, and its load balancer.

use serde::Deserialize;

/// The fields that determine the usage of a Service. Other fields are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "type")]
    type_: String,
    ports: Vec<Port>,
    allocate_load_balancer_node_ports: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Port {
    node_port: i32,
}

pub(super) fn of(json: &[u8]) -> Vec<(&'static str, u64)> {
    let Counted { spec } = serde_json::from_slice(json).unwrap_or_default();
    let is_balanced = spec.type_ == "LoadBalancer";
    let node_ports = match spec.type_.as_str() {
        "LoadBalancer" if spec.allocate_load_balancer_node_ports == Some(false) => {
            spec.ports.iter().filter(|port| port.node_port != 0).count()
        }
        "NodePort" | "LoadBalancer" => spec.ports.len(),
        _ => 0,
    };
    vec![
        ("services", 1),
        ("services.nodeports", node_ports as u64),
        ("services.loadbalancers", u64::from(is_balanced)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_of_nodes_and_balancers_are_counted() {
        let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30_000}]);
        for (spec_type, allocates, node_ports, balancers) in [
            ("ClusterIP", json!(null), 0, 0),
            ("NodePort", json!(null), 2, 0),
            ("LoadBalancer", json!(true), 2, 1),
            ("LoadBalancer", json!(false), 1, 1),
        ] {
            let spec = json!({
                "type": spec_type, "ports": ports, "allocateLoadBalancerNodePorts": allocates,
            });
            let used = of(json!({"spec": spec}).to_string().as_bytes());
            let expected = [
                ("services", 1),
                ("services.nodeports", node_ports),
                ("services.loadbalancers", balancers),
            ];
            assert_eq!(used, expected, "{spec_type} {allocates}");
        }
    }
}
