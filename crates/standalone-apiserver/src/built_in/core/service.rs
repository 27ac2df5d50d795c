//! Services.

mod addresses;
mod cells;
mod quota_usage;
mod validation;

use aggregated_apiserver::strategy::{FilledField, NameRule, QuotaUsage, StoragePrefix};
use aggregated_apiserver::{SelectableFields, Strategy, Validation};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::built_in::defaulting::{set_default, set_missing};
use crate::built_in::row::{ALL, Row, Subresources};
use crate::built_in::strategy::common;
use addresses::{Addresses, is_reached_from_outside};
use validation::{validate, validate_status, warnings, warnings_of_status};

/// The default timeout of session affinity, in seconds.
const SESSION_SECONDS: i32 = 10_800;

pub(crate) fn row() -> Row<Service> {
    let addresses = Addresses::default();
    let rules = Validation::new()
        .prepare(move |service, context| {
            prepare(service);
            if context.is_admitted {
                complete(service, context.old().as_ref(), &addresses);
            }
        })
        .validate(|service, old, _| validate(service, old))
        .warn(|service, _, _| warnings(service))
        .validate_status(|service, old, _| validate_status(service, old))
        .warn_of_status(|service, _, _| warnings_of_status(service));
    Row {
        short_names: &["svc"],
        categories: ALL,
        subresources: Subresources::Status,
        columns: cells::columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// The fields that no manager owns unless a client sets them.
const FILLED: &[FilledField] = &[
    FilledField::field("/spec/clusterIP"),
    FilledField::field("/spec/clusterIPs"),
    FilledField::field("/spec/ipFamilies"),
    FilledField::field("/spec/ipFamilyPolicy"),
    FilledField::field("/spec/healthCheckNodePort"),
    FilledField::field("/spec/ports/*/nodePort"),
    FilledField::dropped("/spec/allocateLoadBalancerNodePorts"),
    FilledField::dropped("/spec/externalTrafficPolicy"),
    FilledField::dropped("/spec/internalTrafficPolicy"),
    FilledField::dropped("/spec/loadBalancerClass"),
];

fn strategy() -> Strategy {
    let selectable =
        SelectableFields::default().with_field("spec.clusterIP", "").with_field("spec.type", "");
    Strategy {
        names: NameRule::Dns1123Label,
        has_generation: false,
        selectable,
        returns_deleted_object: true,
        allows_create_on_update: true,
        storage_prefix: StoragePrefix::Named("services/specs"),
        quota_usage: QuotaUsage::Evaluated(&quota_usage::ServiceEvaluator),
        filled_by_system: FILLED,
        ..common()
    }
}

fn prepare(service: &mut Service) {
    let status = service.status.get_or_insert_default();
    let balancer = status.load_balancer.get_or_insert_default();
    let spec_type = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    if spec_type == Some("LoadBalancer") {
        let addresses = balancer.ingress.iter_mut().flatten().filter(|one| one.ip.is_some());
        addresses.for_each(|one| set_default(&mut one.ip_mode, "VIP"));
    }
    let Some(spec) = &mut service.spec else { return };
    set_default(&mut spec.type_, "ClusterIP");
    set_default(&mut spec.session_affinity, "None");
    if spec.type_.as_deref() != Some("ExternalName") {
        set_missing(&mut spec.internal_traffic_policy, "Cluster");
    }
    if spec.session_affinity.as_deref() == Some("ClientIP") {
        let config = spec.session_affinity_config.get_or_insert_default();
        config.client_ip.get_or_insert_default().timeout_seconds.get_or_insert(SESSION_SECONDS);
    }
    if spec.session_affinity.as_deref() == Some("None") {
        spec.session_affinity_config = None;
    }
    if is_reached_from_outside(spec) {
        set_default(&mut spec.external_traffic_policy, "Cluster");
    }
    if spec.type_.as_deref() == Some("LoadBalancer") {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
    }
    for port in spec.ports.iter_mut().flatten() {
        set_default(&mut port.protocol, "TCP");
        let is_nothing = |port: &IntOrString| match port {
            IntOrString::Int(number) => *number == 0,
            IntOrString::String(name) => name.is_empty(),
        };
        if port.target_port.as_ref().is_none_or(is_nothing) {
            port.target_port = Some(IntOrString::Int(port.port));
        }
    }
    // kube-apiserver validates this field before it drops it.
    let policy = spec.internal_traffic_policy.as_deref();
    if spec.type_.as_deref() == Some("ExternalName") && matches!(policy, Some("Cluster" | "Local"))
    {
        spec.internal_traffic_policy = None;
    }
}

/// Sets the fields that follow from others, after admission: addresses and node ports.
fn complete(service: &mut Service, old: Option<&Service>, addresses: &Addresses) {
    let Some(spec) = &mut service.spec else { return };
    // A Service that no longer uses a load balancer loses the addresses of the load balancer.
    let old_type = old.and_then(|old| old.spec.as_ref()?.type_.as_deref());
    if old_type == Some("LoadBalancer") && spec.type_.as_deref() != Some("LoadBalancer") {
        let status = service.status.get_or_insert_default();
        status.load_balancer.get_or_insert_default().ingress = None;
    }
    // A Service without ports is rejected, so it gets no address.
    let has_ports = spec.ports.as_ref().is_some_and(|ports| !ports.is_empty());
    let old = old.and_then(|old| old.spec.as_ref());
    if has_ports || spec.cluster_ip.is_some() || old.is_some() {
        addresses.allocate(spec, old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, prepared};
    use serde_json::{Value, json};

    fn defaulted(spec: Value) -> Value {
        let addresses = Addresses::default();
        let prepare = |service: &mut Service| {
            prepare(service);
            complete(service, None, &addresses);
        };
        prepared(prepare, json!({"spec": spec}))
    }

    #[test]
    fn defaults() {
        assert_eq!(
            defaulted(json!({"ports": [{"port": 80}]})),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {},
                "spec": {
                    "type": "ClusterIP", "sessionAffinity": "None",
                    "internalTrafficPolicy": "Cluster",
                    "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2"],
                    "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                    "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
                },
                "status": {"loadBalancer": {}},
            })
        );
    }

    #[test]
    fn defaults_of_each_type() {
        for (spec, expected) in [
            (
                json!({"type": "NodePort", "ports": [{"port": 80}]}),
                json!({"externalTrafficPolicy": "Cluster", "clusterIP": "10.96.0.2"}),
            ),
            (
                json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
                json!({"externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true}),
            ),
            (
                json!({"type": "ExternalName", "externalName": "a.b", "ports": [{"port": 80}]}),
                json!({"internalTrafficPolicy": null, "clusterIP": null}),
            ),
            // The Service is rejected, so it gets no address.
            (json!({}), json!({"clusterIP": null})),
            (
                json!({"sessionAffinity": "ClientIP"}),
                json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10_800}}}),
            ),
        ] {
            let filled = defaulted(spec.clone());
            for (field, value) in expected.as_object().unwrap() {
                assert_eq!(filled["spec"][field], *value, "{field} of {spec}");
            }
        }
    }

    #[test]
    fn a_service_update_keeps_the_cluster_ip_and_clears_the_ingress_status() {
        let old = object(json!({"spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
        }}));
        let new = json!({
            "spec": {"ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
        });
        let addresses = Addresses::default();
        let filled = prepared(
            |service| {
                prepare(service);
                complete(service, Some(&old), &addresses);
            },
            new,
        );
        assert_eq!(filled["spec"]["clusterIP"], "10.96.0.9");
        assert_eq!(filled["status"], json!({"loadBalancer": {}}));
    }
}
