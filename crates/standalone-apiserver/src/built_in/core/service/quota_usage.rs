//! The quota usage of a Service: its node ports, and its load balancer.

use aggregated_apiserver::strategy::{ObjectUsage, QuotaEvaluator};
use aggregated_apiserver::types::Quantity;
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

/// The resources of Services that quotas limit.
const COVERED: [&str; 3] = ["services", "services.nodeports", "services.loadbalancers"];

/// The quota evaluator of Services.
#[derive(Debug)]
pub(super) struct ServiceEvaluator;

impl QuotaEvaluator for ServiceEvaluator {
    fn usage(&self, json: &[u8]) -> Result<ObjectUsage, serde_json::Error> {
        let Counted { spec } = serde_json::from_slice(json)?;
        let is_balanced = spec.type_ == "LoadBalancer";
        let node_ports = match spec.type_.as_str() {
            "LoadBalancer" if spec.allocate_load_balancer_node_ports == Some(false) => {
                spec.ports.iter().filter(|port| port.node_port != 0).count()
            }
            "NodePort" | "LoadBalancer" => spec.ports.len(),
            _ => 0,
        };
        let amounts = COVERED.into_iter().zip([1, node_ports as u64, u64::from(is_balanced)]);
        let amounts = amounts.map(|(name, amount)| (name.to_owned(), Quantity::from_whole(amount)));
        Ok(ObjectUsage { amounts: amounts.collect(), ..ObjectUsage::default() })
    }

    fn covers(&self, resource: &str) -> bool {
        COVERED.contains(&resource)
    }
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
            let used =
                ServiceEvaluator.usage(json!({"spec": spec}).to_string().as_bytes()).unwrap();
            let amounts = COVERED.map(|name| used.amounts[name].to_string());
            let expected = [1, node_ports, balancers].map(|amount: i32| amount.to_string());
            assert_eq!(amounts, expected, "{spec_type} {allocates}");
        }
    }
}
