//! Nodes.

mod validation;

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::{FilledField, StoragePrefix};
use aggregated_apiserver::{SelectableFields, Strategy, Validation};
use k8s_openapi::api::core::v1::Node;

use crate::built_in::cell_texts::{NONE, or_none};
use crate::built_in::defaulting::sync_with_list;
use crate::built_in::pod_template::resources::round_up;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::common;
use validation::{validate, validate_status, warnings};

pub(crate) fn row() -> Row<Node> {
    let rules = Validation::new()
        .prepare(|node, _| prepare(node))
        .validate(|node, old, _| validate(node, old))
        .warn(|node, _, _| warnings(node))
        .validate_status(|node, old, _| validate_status(node, old));
    Row {
        short_names: &["no"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// The fields that no manager owns unless a client sets them.
const FILLED: &[FilledField] = &[FilledField::field("/spec/taints").by_admission()];

fn strategy() -> Strategy {
    let selectable = SelectableFields::default().with_field("spec.unschedulable", "false");
    Strategy {
        has_generation: false,
        selectable,
        keeps_status_on_create: true,
        storage_prefix: StoragePrefix::Named("minions"),
        filled_by_system: FILLED,
        ..common()
    }
}

fn columns() -> Vec<Column<Node>> {
    vec![
        Column::computed("Status", |node, _| status(node)),
        Column::computed("Roles", |node, _| roles(node)),
        Column::age(),
        Column::path("Version", ".status.nodeInfo.kubeletVersion"),
        Column::computed("Internal-IP", |node, _| address(node, "InternalIP")).wide(),
        Column::computed("External-IP", |node, _| address(node, "ExternalIP")).wide(),
        Column::path("OS-Image", ".status.nodeInfo.osImage").wide(),
        Column::path("Kernel-Version", ".status.nodeInfo.kernelVersion").wide(),
        Column::path("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion").wide(),
    ]
}

fn status(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
    let mut status = match ready.map(|ready| ready.status.as_str()) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Node) -> String {
    const ROLE: &str = "node-role.kubernetes.io/";
    let labels = node.metadata.labels.iter().flatten();
    let roles: Vec<&str> = labels
        .filter_map(|(key, _)| key.strip_prefix(ROLE))
        .filter(|role| !role.is_empty())
        .collect();
    or_none(roles.join(","))
}

fn address(node: &Node, address_type: &str) -> String {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let mut found = addresses.into_iter().flatten();
    let found = found.find(|address| address.type_ == address_type);
    found.map_or_else(|| NONE.to_owned(), |address| address.address.clone())
}

fn prepare(node: &mut Node) {
    if let Some(status) = &mut node.status {
        round_up(&mut status.capacity);
        round_up(&mut status.allocatable);
        // The API no longer configures kubelets.
        status.config = None;
    }
    if let Some(status) = &mut node.status
        && status.allocatable.as_ref().is_none_or(BTreeMap::is_empty)
    {
        status.allocatable.clone_from(&status.capacity);
    }
    let spec = node.spec.get_or_insert_default();
    spec.config_source = None;
    sync_with_list(&mut spec.pod_cidr, &mut spec.pod_cidrs, |range| range.clone(), |range| range);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_update, prepared};
    use serde_json::{Value, json};

    #[test]
    fn defaults() {
        let filled = prepared(
            prepare,
            json!({
                "spec": {"podCIDR": "10.0.0.0/24"},
                "status": {"capacity": {"cpu": "0.0001", "memory": "1Gi"}},
            }),
        );
        let amounts = json!({"cpu": "1m", "memory": "1Gi"});
        assert_eq!(filled["status"], json!({"capacity": amounts, "allocatable": amounts}));
        assert_eq!(filled["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    }

    #[test]
    fn pod_cidrs_of_a_node_can_be_set_once() {
        let node = |ranges: &[&str]| json!({"spec": {"podCIDRs": ranges}});
        let (none, one) = (node(&[]), node(&["10.0.0.0/24"]));
        for (old, new, is_refused) in [
            (&none, &one, false),
            (&one, &one, false),
            (&one, &none, true),
            (&one, &node(&["10.0.1.0/24"]), true),
        ] {
            let why = "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid";
            let expected: Vec<&str> = is_refused.then_some(why).into_iter().collect();
            assert_eq!(faults_of_update(validate, old.clone(), new.clone()), expected);
        }
    }

    #[test]
    fn node_printer_columns_are_filled() {
        let node = json!({
            "metadata": {"labels": {
                "node-role.kubernetes.io/a": "", "node-role.kubernetes.io/": "", "node-role.kubernetes.io/b": "",
            }},
            "spec": {"unschedulable": true},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        assert_eq!(
            cells(columns(), node),
            json!({
                "Status": "Ready,SchedulingDisabled", "Roles": "a,b", "Age": "<unknown>",
                "Internal-IP": "10.0.0.1", "External-IP": "<none>",
            })
        );
        let status = |status: Value| cells(columns(), json!({"status": status}))["Status"].clone();
        assert_eq!(
            status(json!({"conditions": [{"type": "Ready", "status": "Unknown"}]})),
            "NotReady"
        );
        assert_eq!(status(json!({})), "Unknown");
    }
}
