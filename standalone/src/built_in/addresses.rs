//! Addresses and ports of Services: each is given once, in their order. What a
//! Service was given is not given again when it is gone; there are a million.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use k8s_openapi::api::core::v1::ServiceSpec;

use super::defaults::agree;

/// As most clusters have it: 10.96.0.0/12. The first one is that of the API.
const RANGE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const SIZE: u32 = 1 << 20;
/// Ports of nodes: 30000 to 32767.
const FIRST_PORT: u16 = 30_000;
const PORTS: u16 = 2_768;

/// The addresses and ports of one server.
#[derive(Default)]
pub(super) struct Addresses {
    given: AtomicU32,
    ports: AtomicU16,
}

impl Addresses {
    /// Fills in what a Service needs and does not have.
    pub(super) fn fill(&self, spec: &mut ServiceSpec) {
        let kind = spec.type_.clone().unwrap_or_default();
        if !["ClusterIP", "NodePort", "LoadBalancer"].contains(&kind.as_str()) {
            return;
        }
        agree(&mut spec.cluster_ip, &mut spec.cluster_ips, Clone::clone, |address| address);
        if spec.cluster_ip.as_ref().is_none_or(String::is_empty) {
            let address = self.address().to_string();
            spec.cluster_ips = Some(vec![address.clone()]);
            spec.cluster_ip = Some(address);
        }
        let address = spec.cluster_ip.clone().unwrap_or_default();
        let selects = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
        let (families, policy) = match address.as_str() {
            // Whoever names the addresses himself may name some of both.
            "None" if !selects => (&["IPv4", "IPv6"][..], "RequireDualStack"),
            address if address.contains(':') => (&["IPv6"][..], "SingleStack"),
            _ => (&["IPv4"][..], "SingleStack"),
        };
        let families = families.iter().map(|family| (*family).to_owned());
        spec.ip_families.get_or_insert_with(|| families.collect());
        spec.ip_family_policy.get_or_insert_with(|| policy.to_owned());
        let needs_ports = kind == "NodePort"
            || (kind == "LoadBalancer" && spec.allocate_load_balancer_node_ports != Some(false));
        if needs_ports {
            for port in spec.ports.iter_mut().flatten() {
                if port.node_port.is_none_or(|port| port == 0) {
                    port.node_port = Some(self.port().into());
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_given_once() {
        let addresses = Addresses::default();
        let filled = |kind: &str, given: Option<&str>| {
            let mut spec = ServiceSpec {
                type_: Some(kind.to_owned()),
                cluster_ip: given.map(str::to_owned),
                ports: Some(vec![Default::default()]),
                ..ServiceSpec::default()
            };
            addresses.fill(&mut spec);
            let port = spec.ports.unwrap()[0].node_port;
            (spec.cluster_ip, spec.cluster_ips.map(|all| all.len()), port)
        };
        assert_eq!(filled("ClusterIP", None), (Some("10.96.0.2".to_owned()), Some(1), None));
        assert_eq!(filled("NodePort", None), (Some("10.96.0.3".to_owned()), Some(1), Some(30_000)));
        assert_eq!(filled("ClusterIP", Some("None")), (Some("None".to_owned()), Some(1), None));
        assert_eq!(filled("ExternalName", None), (None, None, None));
    }
}
