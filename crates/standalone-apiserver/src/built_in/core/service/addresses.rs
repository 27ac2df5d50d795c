//! Allocates cluster IPs and node ports to Services, in ascending order. Values that a Service sets itself are not
//! excluded. Values of a deleted Service are allocated again only after all others: there are a million addresses, and
//! 2,768 ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use k8s_openapi::api::core::v1::ServiceSpec;

/// The Service CIDR of most clusters: 10.96.0.0/12. The first address belongs to the API server.
const RANGE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const SIZE: u32 = 1 << 20;
/// Node ports: 30000 to 32767.
const FIRST_PORT: u16 = 30_000;
const PORTS: u16 = 2_768;

/// The cluster IPs and node ports of one server.
#[derive(Default)]
pub(crate) struct Addresses {
    given: AtomicU32,
    ports: AtomicU16,
}

impl Addresses {
    /// Allocates the missing addresses and ports of a Service. In an update, it keeps those of `old`.
    pub(crate) fn allocate(&self, spec: &mut ServiceSpec, old: Option<&ServiceSpec>) {
        if let Some(old) = old {
            keep_allocated(spec, old);
        }
        follow_singular(spec, old);
        if let Some(old) = old {
            drop_fields_of_other_types(spec, old);
        }
        if !has_cluster_ip(spec) {
            return;
        }
        if is_empty(spec.cluster_ip.as_ref()) && addresses(spec).is_empty() {
            let address = self.address().to_string();
            spec.cluster_ips = Some(vec![address.clone()]);
            spec.cluster_ip = Some(address);
        }
        let address = spec.cluster_ip.clone().unwrap_or_default();
        let selects = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
        // The endpoints of a headless Service without a selector may be of both families.
        let policy = if address == "None" && !selects { "RequireDualStack" } else { "SingleStack" };
        let policy = spec.ip_family_policy.get_or_insert_with(|| policy.to_owned()).clone();
        let first = if address.contains(':') { "IPv6" } else { "IPv4" };
        let families = spec.ip_families.get_or_insert_default();
        if families.is_empty() {
            families.push(first.to_owned());
        }
        if address == "None" && !selects && policy != "SingleStack" && families.len() == 1 {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.to_owned());
        }
        let allocates = spec.allocate_load_balancer_node_ports != Some(false);
        if has_node_ports(spec) && (spec.type_.as_deref() == Some("NodePort") || allocates) {
            // Ports with the same number, of TCP and UDP, share a node port.
            let given = spec.ports.iter().flatten();
            let given = given.filter_map(|port| Some((port.port, port.node_port?)));
            let mut shared: BTreeMap<i32, i32> =
                given.filter(|(_, node_port)| *node_port != 0).collect();
            for port in spec.ports.iter_mut().flatten() {
                if port.node_port.is_none_or(|port| port == 0) {
                    let given = shared.entry(port.port).or_insert_with(|| self.port().into());
                    port.node_port = Some(*given);
                }
            }
        }
        if has_health_check_port(spec) && spec.health_check_node_port.is_none_or(|port| port == 0) {
            spec.health_check_node_port = Some(self.port().into());
        }
    }

    fn address(&self) -> Ipv4Addr {
        let number = self.given.fetch_add(1, Ordering::Relaxed) % (SIZE - 3);
        Ipv4Addr::from(u32::from(RANGE) + 2 + number)
    }

    fn port(&self) -> u16 {
        FIRST_PORT + self.ports.fetch_add(1, Ordering::Relaxed) % PORTS
    }
}

/// Sets the list of addresses from the single address, for a client that does not know the list.
fn follow_singular(spec: &mut ServiceSpec, old: Option<&ServiceSpec>) {
    let one = spec.cluster_ip.clone().unwrap_or_default();
    let Some(old) = old else {
        if !one.is_empty() && addresses(spec).is_empty() {
            spec.cluster_ips = Some(vec![one]);
        }
        return;
    };
    let before = old.cluster_ip.clone().unwrap_or_default();
    if one == before {
        if addresses(spec).is_empty() {
            spec.cluster_ips.clone_from(&old.cluster_ips);
        }
    } else if addresses(spec) == addresses(old) {
        spec.cluster_ips = (!one.is_empty()).then(|| vec![one]);
    }
}

fn addresses(spec: &ServiceSpec) -> &[String] {
    spec.cluster_ips.as_deref().unwrap_or_default()
}

fn is_empty(text: Option<&String>) -> bool {
    text.is_none_or(String::is_empty)
}

fn has_cluster_ip(spec: &ServiceSpec) -> bool {
    matches!(spec.type_.as_deref(), Some("ClusterIP" | "NodePort" | "LoadBalancer"))
}

fn has_node_ports(spec: &ServiceSpec) -> bool {
    matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"))
}

fn has_health_check_port(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local")
}

/// Whether a Service can be reached from outside of the cluster.
pub(crate) fn is_reached_from_outside(spec: &ServiceSpec) -> bool {
    let has_cluster_ipes =
        spec.external_ips.as_ref().is_some_and(|addresses| !addresses.is_empty());
    has_node_ports(spec) || (spec.type_.as_deref() == Some("ClusterIP") && has_cluster_ipes)
}

/// Copies the allocated values of the old Service that the update omits.
fn keep_allocated(spec: &mut ServiceSpec, old: &ServiceSpec) {
    if has_cluster_ip(spec) && has_cluster_ip(old) {
        if is_empty(spec.cluster_ip.as_ref()) {
            spec.cluster_ip.clone_from(&old.cluster_ip);
        }
        if addresses(spec).is_empty() {
            spec.cluster_ips.clone_from(&old.cluster_ips);
        }
    }
    if has_cluster_ip(spec) && has_cluster_ip(old) {
        if spec.ip_families.as_ref().is_none_or(Vec::is_empty) {
            spec.ip_families.clone_from(&old.ip_families);
        }
        spec.ip_family_policy = spec.ip_family_policy.take().or(old.ip_family_policy.clone());
    }
    if has_node_ports(spec) && has_node_ports(old) {
        let before = old.ports.iter().flatten();
        let before: BTreeMap<Option<&String>, Option<i32>> =
            before.map(|port| (port.name.as_ref(), port.node_port)).collect();
        let used = spec.ports.iter().flatten().filter_map(|port| port.node_port);
        let used: BTreeSet<i32> = used.collect();
        for port in spec.ports.iter_mut().flatten().filter(|port| port.node_port.unwrap_or(0) == 0)
        {
            let before = before.get(&port.name.as_ref()).copied().flatten();
            port.node_port = before.filter(|number| !used.contains(number));
        }
    }
    if has_health_check_port(spec) && has_health_check_port(old) {
        spec.health_check_node_port = spec.health_check_node_port.or(old.health_check_node_port);
    }
}

/// Removes fields that belong to the old type but not to the new one, unless the update has changed them.
fn drop_fields_of_other_types(spec: &mut ServiceSpec, old: &ServiceSpec) {
    if has_cluster_ip(old) && !has_cluster_ip(spec) {
        if spec.cluster_ips == old.cluster_ips {
            (spec.cluster_ip, spec.cluster_ips) = (None, None);
        }
        if spec.ip_families == old.ip_families {
            spec.ip_families = None;
        }
        if spec.ip_family_policy == old.ip_family_policy {
            spec.ip_family_policy = None;
        }
    }
    let ports = |spec: &ServiceSpec| {
        let ports = spec.ports.iter().flatten().filter_map(|port| port.node_port);
        ports.filter(|port| *port != 0).collect::<BTreeSet<_>>()
    };
    if has_node_ports(old) && !has_node_ports(spec) && ports(spec) == ports(old) {
        spec.ports.iter_mut().flatten().for_each(|port| port.node_port = None);
    }
    if has_health_check_port(old)
        && !has_health_check_port(spec)
        && spec.health_check_node_port == old.health_check_node_port
    {
        spec.health_check_node_port = None;
    }
    let is_balanced = |spec: &ServiceSpec| spec.type_.as_deref() == Some("LoadBalancer");
    if is_balanced(old) && !is_balanced(spec) {
        if spec.allocate_load_balancer_node_ports == old.allocate_load_balancer_node_ports {
            spec.allocate_load_balancer_node_ports = None;
        }
        if spec.load_balancer_class == old.load_balancer_class {
            spec.load_balancer_class = None;
        }
    }
    if is_reached_from_outside(old)
        && !is_reached_from_outside(spec)
        && spec.external_traffic_policy == old.external_traffic_policy
    {
        spec.external_traffic_policy = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    #[test]
    fn cluster_ips_and_node_ports_are_allocated_in_order() {
        let addresses = Addresses::default();
        let filled = |kind: &str, given: Option<&str>| {
            let mut spec = ServiceSpec {
                type_: Some(kind.to_owned()),
                cluster_ip: given.map(str::to_owned),
                ports: Some(vec![Default::default()]),
                ..ServiceSpec::default()
            };
            addresses.allocate(&mut spec, None);
            let port = spec.ports.unwrap()[0].node_port;
            (spec.cluster_ip, spec.cluster_ips.map(|all| all.len()), port)
        };
        assert_eq!(filled("ClusterIP", None), (Some("10.96.0.2".to_owned()), Some(1), None));
        assert_eq!(filled("NodePort", None), (Some("10.96.0.3".to_owned()), Some(1), Some(30_000)));
        assert_eq!(filled("ClusterIP", Some("None")), (Some("None".to_owned()), Some(1), None));
        assert_eq!(filled("ExternalName", None), (None, None, None));
    }

    fn updated(old: Value, new: Value) -> Value {
        let mut spec = object(new);
        Addresses::default().allocate(&mut spec, Some(&object(old)));
        serde_json::to_value(spec).unwrap()
    }

    #[test]
    fn a_service_update_keeps_node_ports_by_port_name() {
        let old = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [
            {"name": "a", "port": 1, "nodePort": 31_001}, {"name": "b", "port": 2, "nodePort": 31_002},
        ]});
        let new = json!({"type": "NodePort", "ports": [
            {"name": "b", "port": 2}, {"name": "a", "port": 1, "nodePort": 31_003}, {"name": "c", "port": 3},
        ]});
        let ports = updated(old, new)["ports"].clone();
        let ports: Vec<_> =
            ports.as_array().unwrap().iter().map(|port| port["nodePort"].clone()).collect();
        assert_eq!(ports, [31_002, 31_003, 30_000]);
    }

    #[test]
    fn fields_unused_by_a_new_service_type_are_dropped() {
        let balanced = json!({
            "type": "LoadBalancer", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "allocateLoadBalancerNodePorts": true, "externalTrafficPolicy": "Cluster",
            "ports": [{"port": 1, "nodePort": 31_001}],
        });
        let mut of_cluster = balanced.clone();
        of_cluster["type"] = "ClusterIP".into();
        assert_eq!(
            updated(balanced.clone(), of_cluster),
            json!({
                "type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [{"port": 1}],
            })
        );
        let mut named = balanced.clone();
        named["type"] = "ExternalName".into();
        assert_eq!(
            updated(balanced, named),
            json!({"type": "ExternalName", "ports": [{"port": 1}]})
        );
    }
}
