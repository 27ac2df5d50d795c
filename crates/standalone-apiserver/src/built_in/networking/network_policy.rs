//! NetworkPolicies.

use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote, to_json};
use crate::built_in::label_selector;
use crate::built_in::networks::{Network, check_network, warning_of_network};
use crate::built_in::pod_template::ports;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::with_generation;

const TYPES: [&str; 2] = ["Ingress", "Egress"];

pub(crate) fn row() -> Row<NetworkPolicy> {
    let rules = Validation::new()
        .prepare(|policy, _| prepare(policy))
        .validate(|policy, old, _| validate(policy, old))
        .warn(|policy, _, _| warnings(policy));
    Row { short_names: &["netpol"], columns: columns(), rules, ..Row::new(with_generation()) }
}

fn columns() -> Vec<Column<NetworkPolicy>> {
    vec![
        Column::computed("Pod-Selector", |policy: &NetworkPolicy, _| {
            let nothing = LabelSelector::default();
            let selector = policy.spec.as_ref().and_then(|spec| spec.pod_selector.as_ref());
            label_selector::shown_selector(Some(selector.unwrap_or(&nothing)))
        }),
        Column::age(),
    ]
}

fn prepare(policy: &mut NetworkPolicy) {
    let spec = policy.spec.get_or_insert_default();
    let of_ingress = spec.ingress.iter_mut().flatten().map(|rule| &mut rule.ports);
    let of_egress = spec.egress.iter_mut().flatten().map(|rule| &mut rule.ports);
    for port in of_ingress.chain(of_egress).flatten().flatten() {
        // An empty protocol gets no default, and is rejected.
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
    if spec.policy_types.as_ref().is_none_or(Vec::is_empty) {
        let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
        let count = if has_egress { 2 } else { 1 };
        spec.policy_types = Some(TYPES[..count].iter().map(|one| (*one).to_owned()).collect());
    }
}

/// The rules of a policy: the path, the field of the peers, the ports and the peers.
fn rules(
    spec: &NetworkPolicySpec,
) -> impl Iterator<Item = (String, &'static str, &[NetworkPolicyPort], &[NetworkPolicyPeer])> {
    let ingress = spec.ingress.iter().flatten().enumerate().map(|(index, rule)| {
        (format!("spec.ingress[{index}]"), "from", rule.ports.as_deref(), rule.from.as_deref())
    });
    let egress = spec.egress.iter().flatten().enumerate().map(|(index, rule)| {
        (format!("spec.egress[{index}]"), "to", rule.ports.as_deref(), rule.to.as_deref())
    });
    ingress.chain(egress).map(|(at, side, ports, peers)| {
        (at, side, ports.unwrap_or_default(), peers.unwrap_or_default())
    })
}

fn blocks(spec: &NetworkPolicySpec) -> impl Iterator<Item = (String, &IPBlock)> {
    rules(spec).flat_map(|(at, side, _, peers)| {
        let blocks = peers
            .iter()
            .enumerate()
            .filter_map(|(index, peer)| Some((index, peer.ip_block.as_ref()?)));
        blocks.map(move |(index, block)| (format!("{at}.{side}[{index}].ipBlock"), block))
    })
}

fn validate(policy: &NetworkPolicy, old: Option<&NetworkPolicy>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = NetworkPolicySpec::default();
    let spec = policy.spec.as_ref().unwrap_or(&nothing);
    if let Some(selector) = &spec.pod_selector {
        label_selector::validate(selector, "spec.podSelector", &mut faults);
    }
    let old = old.and_then(|old| old.spec.as_ref());
    let known: Vec<&str> = old.map(networks).unwrap_or_default();
    for (at, side, ports, peers) in rules(spec) {
        for (index, port) in ports.iter().enumerate() {
            check_port(port, &format!("{at}.ports[{index}]"), &mut faults);
        }
        for (index, peer) in peers.iter().enumerate() {
            check_peer(peer, &format!("{at}.{side}[{index}]"), &known, &mut faults);
        }
    }
    check_types(spec, &mut faults);
    faults
}

/// All networks of a policy. They are not validated again in an update.
fn networks(spec: &NetworkPolicySpec) -> Vec<&str> {
    let networks = blocks(spec)
        .flat_map(|(_, block)| std::iter::once(&block.cidr).chain(block.except.iter().flatten()));
    networks.map(String::as_str).collect()
}

fn check_port(port: &NetworkPolicyPort, at: &str, faults: &mut FieldErrors) {
    let protocols = ["TCP", "UDP", "SCTP"];
    check_one_of(format!("{at}.protocol"), port.protocol.as_ref(), &protocols, faults);
    let (at, at_end) = (format!("{at}.port"), format!("{at}.endPort"));
    match (&port.port, port.end_port) {
        (Some(IntOrString::Int(number)), end) => {
            ports::check_port_number(&at, i64::from(*number), faults);
            let Some(end) = end else { return };
            if end < *number {
                // In this error, kube-apiserver reports the port as the value.
                let why = "must be greater than or equal to `port`";
                faults.push(FieldError::invalid(&at_end, number, why));
            }
            ports::check_port_number(&at_end, i64::from(end), faults);
        }
        (Some(IntOrString::String(name)), end) => {
            if let Some(end) = end {
                let why = "may not be specified when `port` is non-numeric";
                faults.push(FieldError::invalid(at_end, end, why));
            }
            check_with(&at, name, ports::faults_of_port_name, faults);
        }
        (None, Some(end)) => {
            let why = "may not be specified when `port` is not specified";
            faults.push(FieldError::invalid(at_end, end, why));
        }
        (None, None) => {}
    }
}

fn check_peer(peer: &NetworkPolicyPeer, at: &str, known: &[&str], faults: &mut FieldErrors) {
    let selectors =
        [("podSelector", &peer.pod_selector), ("namespaceSelector", &peer.namespace_selector)];
    let mut count = 0;
    for (field, selector) in selectors {
        let Some(selector) = selector else { continue };
        count += 1;
        label_selector::validate(selector, &format!("{at}.{field}"), faults);
    }
    match &peer.ip_block {
        Some(block) => {
            check_block(block, &format!("{at}.ipBlock"), known, faults);
            if count > 0 {
                let why = "may not specify both ipBlock and another peer";
                faults.push(FieldError::forbidden(at, why));
            }
        }
        None if count == 0 => faults.push(FieldError::required(at, "must specify a peer")),
        None => {}
    }
}

fn check_block(block: &IPBlock, at: &str, known: &[&str], faults: &mut FieldErrors) {
    if block.cidr.is_empty() {
        return faults.push(FieldError::required(format!("{at}.cidr"), ""));
    }
    let check = |at: &str, text: &str, faults: &mut FieldErrors| {
        if known.contains(&text) { Network::parse(text) } else { check_network(at, text, faults) }
    };
    let Some(whole) = check(&format!("{at}.cidr"), &block.cidr, faults) else { return };
    for (index, text) in block.except.iter().flatten().enumerate() {
        let at = format!("{at}.except[{index}]");
        let part = check(&at, text, faults);
        if part.is_some_and(|part| !part.is_strictly_within(whole)) {
            let why = "must be a strict subset of `cidr`";
            faults.push(FieldError::invalid(at, quote(text), why));
        }
    }
}

fn check_types(spec: &NetworkPolicySpec, faults: &mut FieldErrors) {
    let types = spec.policy_types.as_deref().unwrap_or_default();
    if types.len() > TYPES.len() {
        let why = "may not specify more than two policyTypes";
        return faults.push(FieldError::invalid("spec.policyTypes", to_json(&types), why));
    }
    for (index, one) in types.iter().enumerate() {
        check_one_of(format!("spec.policyTypes[{index}]"), Some(one), &TYPES, faults);
    }
}

/// Warnings about networks that are not in canonical form.
fn warnings(policy: &NetworkPolicy) -> Vec<String> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    let warnings = blocks(spec).flat_map(|(at, block)| {
        let whole = warning_of_network(&format!("{at}.cidr"), &block.cidr);
        let parts = block.except.iter().flatten().enumerate();
        let parts = parts
            .filter_map(|(index, part)| warning_of_network(&format!("{at}.except[{index}]"), part));
        whole.into_iter().chain(parts).collect::<Vec<_>>()
    });
    warnings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, object, prepared};
    use serde_json::{Value, json};

    #[test]
    fn defaults() {
        for (spec, types) in [
            (json!({}), json!(["Ingress"])),
            (json!({"egress": []}), json!(["Ingress"])),
            (json!({"egress": [{}]}), json!(["Ingress", "Egress"])),
            (json!({"policyTypes": ["Egress"]}), json!(["Egress"])),
        ] {
            assert_eq!(prepared(prepare, json!({"spec": spec}))["spec"]["policyTypes"], types);
        }
        let policy = json!({"spec": {"ingress": [{"ports": [{}]}], "egress": [{"ports": [{"protocol": "UDP"}]}]}});
        let spec = prepared(prepare, policy)["spec"].clone();
        assert_eq!(spec["ingress"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(spec["egress"][0]["ports"][0]["protocol"], "UDP");
    }

    #[test]
    fn ports_and_peers() {
        let of = |rule: Value| json!({"spec": {"ingress": [rule]}});
        for (rule, expected) in [
            (json!({"ports": [{}, {"port": 1, "endPort": 2}, {"port": "a"}]}), vec![]),
            (
                json!({"ports": [{"port": 5, "endPort": 4}]}),
                vec![
                    "spec.ingress[0].ports[0].endPort: Invalid value: 5: must be greater than or equal to `port`",
                ],
            ),
            (
                json!({"ports": [{"port": "a", "endPort": 4}, {"endPort": 4}]}),
                vec![
                    "spec.ingress[0].ports[0].endPort: Invalid value: 4: may not be specified when `port` is non-numeric",
                    "spec.ingress[0].ports[1].endPort: Invalid value: 4: may not be specified when `port` is not specified",
                ],
            ),
            (
                json!({"from": [{}]}),
                vec!["spec.ingress[0].from[0]: Required value: must specify a peer"],
            ),
            (
                json!({"from": [{"podSelector": {}, "ipBlock": {"cidr": ""}}]}),
                vec![
                    "spec.ingress[0].from[0].ipBlock.cidr: Required value",
                    "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
                ],
            ),
            (
                json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.0.0.0/8"]}}]}),
                vec![
                    "spec.ingress[0].from[0].ipBlock.except[1]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, of(rule.clone())), expected, "{rule}");
        }
        let three = json!({"spec": {"policyTypes": ["Ingress", "Egress", "Ingress"]}});
        assert_eq!(
            faults_of_new(validate, three),
            [
                "spec.policyTypes: Invalid value: [\"Ingress\",\"Egress\",\"Ingress\"]: may not specify more than two policyTypes"
            ]
        );
    }

    #[test]
    fn an_unchanged_invalid_cidr_of_a_network_policy_is_accepted_in_updates() {
        let of = |cidr: &str| json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": cidr}}]}]}});
        assert_eq!(faults_of_update(validate, of("10.0.0.1/8"), of("10.0.0.1/8")), [] as [&str; 0]);
        assert_eq!(faults_of_update(validate, of("10.0.0.1/8"), of("10.0.0.2/8")).len(), 1);
    }

    #[test]
    fn network_policies_have_warnings_and_table_rows() {
        let policy = json!({"spec": {
            "podSelector": {"matchLabels": {"a": "b"}},
            "egress": [{"to": [{"ipBlock": {"cidr": "2001:DB8::/48", "except": ["2001:DB8::/64"]}}]}],
        }});
        let warnings = warnings(&object(policy.clone()));
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("spec.egress[0].to[0].ipBlock.cidr: IPv6 CIDR"));
        assert!(warnings[1].starts_with("spec.egress[0].to[0].ipBlock.except[0]: IPv6 CIDR"));
        assert_eq!(cells(columns(), policy), json!({"Pod-Selector": "a=b", "Age": "<unknown>"}));
        assert_eq!(cells(columns(), json!({}))["Pod-Selector"], "<none>");
    }
}
