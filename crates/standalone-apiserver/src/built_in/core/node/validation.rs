//! The validation of Nodes.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::checks::{FieldErrors, check_not_negative_amount, check_with, quote, to_json};
use crate::built_in::networks::{Network, check_network, is_pair_of_networks, warning_of_network};
use crate::built_in::resource_names::is_whole;

/// The annotation with taints, from before there was a field for them.
const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates a Node. An update is validated twice, with the same errors, same as in kube-apiserver.
pub(super) fn validate(node: &Node, old: Option<&Node>) -> FieldErrors {
    let mut faults = Vec::new();
    check_annotations(node, &mut faults);
    check_taints(taints(node), "metadata.taints", &mut faults);
    check_amounts(node, &mut faults);
    check_swap(node, &mut faults);
    check_features(node, &mut faults);
    check_pod_ranges(node, &mut faults);
    if let Some(old) = old {
        check_update(node, old, &mut faults);
    }
    faults
}

/// Validates an update of the status of a Node.
pub(super) fn validate_status(node: &Node, old: Option<&Node>) -> FieldErrors {
    let mut faults = Vec::new();
    if let Some(old) = old {
        check_update(node, old, &mut faults);
    }
    faults
}

/// Warnings about a Node.
pub(super) fn warnings(node: &Node) -> Vec<String> {
    let mut warnings = Vec::new();
    if external_id(node).is_some() {
        let why = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        warnings.push(why.to_owned());
    }
    let ranges = pod_ranges(node).iter().enumerate();
    warnings.extend(ranges.filter_map(|(index, range)| {
        warning_of_network(&format!("spec.podCIDRs[{index}]"), range)
    }));
    warnings
}

fn spec(node: &Node) -> Option<&NodeSpec> {
    node.spec.as_ref()
}

fn status(node: &Node) -> Option<&NodeStatus> {
    node.status.as_ref()
}

fn taints(node: &Node) -> &[Taint] {
    spec(node).and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn pod_ranges(node: &Node) -> &[String] {
    spec(node).and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default()
}

fn external_id(node: &Node) -> Option<&String> {
    spec(node)?.external_id.as_ref().filter(|id| !id.is_empty())
}

fn check_update(node: &Node, old: &Node, faults: &mut FieldErrors) {
    check_annotations(node, faults);
    check_amounts(node, faults);
    check_features(node, faults);
    check_addresses(node, faults);
    check_pod_ranges_kept(node, old, faults);
    let provider =
        |node: &Node| spec(node).and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
    if !provider(old).is_empty() && provider(old) != provider(node) {
        let why = "node updates may not change providerID except from \"\" to valid";
        faults.push(FieldError::forbidden("spec.providerID", why));
    }
    check_taints(taints(node), "metadata.taints", faults);
    if external_id(node) != external_id(old) {
        faults.push(FieldError::forbidden("spec.externalID", "may not be updated"));
    }
}

/// Checks the taints in the annotation.
fn check_annotations(node: &Node, faults: &mut FieldErrors) {
    const AT: &str = "metadata.annotations";
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(TAINTS));
    let Some(annotation) = annotation.filter(|annotation| !annotation.is_empty()) else { return };
    match serde_json::from_str::<Vec<Taint>>(annotation) {
        Ok(taints) => check_taints(&taints, &format!("{AT}.{TAINTS}"), faults),
        Err(error) => faults.push(FieldError::invalid(AT, quote(TAINTS), &error.to_string())),
    }
}

fn check_taints(taints: &[Taint], at: &str, faults: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = format!("{at}[{index}]");
        check_with(&format!("{at}.key"), &taint.key, names::check_label_key, faults);
        let value = taint.value.as_deref().unwrap_or_default();
        let why = names::check_label_value(value);
        if !why.is_empty() {
            faults.push(FieldError::invalid(format!("{at}.value"), quote(value), &why.join(";")));
        }
        let at_effect = format!("{at}.effect");
        match taint.effect.as_str() {
            "" => faults.push(FieldError::required(at_effect, "")),
            effect if EFFECTS.contains(&effect) => {}
            effect => faults.push(FieldError::not_supported(at_effect, quote(effect), &EFFECTS)),
        }
        if !seen.insert((&taint.effect, &taint.key)) {
            let value = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}",
                quote(&taint.key),
                quote(value),
                quote(&taint.effect),
                to_json(&taint.time_added)
            );
            let why = "taints must be unique by key and effect pair";
            let twice = FieldError::duplicate(at, value);
            faults.push(twice.with_words(|words| format!("{words}: {why}")));
        }
    }
}

fn check_amounts(node: &Node, faults: &mut FieldErrors) {
    let lists = [
        ("capacity", status(node).and_then(|status| status.capacity.as_ref())),
        ("allocatable", status(node).and_then(|status| status.allocatable.as_ref())),
    ];
    for (list, amounts) in lists {
        check_list_of_amounts(list, amounts, faults);
    }
}

fn check_list_of_amounts(
    list: &str,
    amounts: Option<&BTreeMap<String, Amount>>,
    faults: &mut FieldErrors,
) {
    for (name, amount) in amounts.into_iter().flatten() {
        let at = format!("status.{list}.{name}");
        check_not_negative_amount(&at, amount, faults);
        let is_integer = |amount: Quantity| amount.nanos() % 1_000_000_000 == 0;
        if is_whole(name) && !Quantity::parse(&amount.0).is_ok_and(is_integer) {
            faults.push(FieldError::invalid(&at, quote(&amount.0), "must be an integer"));
        }
    }
}

/// Checks that feature names are sorted alphabetically, without duplicates.
fn check_features(node: &Node, faults: &mut FieldErrors) {
    let features = status(node).and_then(|status| status.declared_features.as_deref());
    let features = features.unwrap_or_default();
    let at = |index: usize| format!("status.declaredFeatures[{index}]");
    for (index, feature) in features.iter().enumerate() {
        if let Some(why) = fault_of_feature(feature) {
            let why = format!("invalid feature name {}: {why}", quote(feature));
            faults.push(FieldError::invalid(at(index), quote(feature), &why));
        }
        match features.get(index + 1) {
            Some(next) if next == feature => {
                faults.push(FieldError::duplicate(at(index + 1), quote(next)));
            }
            Some(next) if next < feature => {
                let why = "list must be sorted alphabetically";
                faults.push(FieldError::invalid(at(index + 1), quote(next), why));
            }
            _ => {}
        }
    }
}

/// Returns the error in the name of a feature, such as `MyFeature/mySubFeature`.
fn fault_of_feature(name: &str) -> Option<&'static str> {
    if name.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    let is_segment = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let is_name = name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.split('/').all(is_segment);
    (!is_name).then_some("must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes")
}

fn check_swap(node: &Node, faults: &mut FieldErrors) {
    let info = status(node).and_then(|status| status.node_info.as_ref());
    let capacity = info.and_then(|info| info.swap.as_ref()?.capacity);
    if let Some(capacity) = capacity.filter(|capacity| *capacity <= 0) {
        let at = "metadata.nodeSwapStatus.capacity";
        faults.push(FieldError::invalid(at, capacity, "must be greater than zero"));
    }
}

fn check_pod_ranges(node: &Node, faults: &mut FieldErrors) {
    let ranges = pod_ranges(node);
    for (index, range) in ranges.iter().enumerate() {
        check_network(&format!("spec.podCIDRs[{index}]"), range, faults);
    }
    if ranges.len() < 2 {
        return;
    }
    let mut unread = ranges.iter().enumerate().filter(|(_, range)| Network::parse(range).is_none());
    if let Some((index, range)) = unread.next() {
        let why = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {range})"
        );
        faults.push(FieldError::internal("spec.podCIDRs", &why));
    }
    if !is_pair_of_networks(ranges) {
        let why = "may specify no more than one CIDR for each IP family";
        faults.push(FieldError::invalid("spec.podCIDRs", to_json(&ranges), why));
    }
}

/// Checks that the Pod CIDRs of a Node do not change once they are set. Each changed one is an error.
fn check_pod_ranges_kept(node: &Node, old: &Node, faults: &mut FieldErrors) {
    let (new, before) = (pod_ranges(node), pod_ranges(old));
    let changes = match (before.is_empty(), new.len() == before.len()) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => new.iter().zip(before).filter(|(new, before)| new != before).count(),
    };
    let why = "node updates may not change podCIDR except from \"\" to valid";
    faults.extend((0..changes).map(|_| FieldError::forbidden("spec.podCIDRs", why)));
}

fn check_addresses(node: &Node, faults: &mut FieldErrors) {
    let addresses = status(node).and_then(|status| status.addresses.as_ref());
    let mut seen = BTreeSet::new();
    for (index, one) in addresses.into_iter().flatten().enumerate() {
        if !seen.insert((&one.type_, &one.address)) {
            let value =
                format!("{{\"Type\":{},\"Address\":{}}}", quote(&one.type_), quote(&one.address));
            faults.push(FieldError::duplicate(format!("status.addresses[{index}]"), value));
        }
    }
}
