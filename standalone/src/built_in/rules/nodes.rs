//! Nodes.

use aggregated_apiserver::{FieldError, Rules};
use k8s_openapi::api::core::v1::Node;

pub(in super::super) fn nodes(rules: Rules<Node>) -> Rules<Node> {
    rules.validate(|node: &Node, old, _| {
        let mut faults = Vec::new();
        let ranges = |node: &Node| {
            let ranges = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone());
            ranges.unwrap_or_default()
        };
        let before = old.map(ranges).unwrap_or_default();
        if !before.is_empty() && ranges(node) != before {
            let why = "node updates may not change podCIDR except from \"\" to valid";
            faults.push(FieldError::forbidden("spec.podCIDRs", why));
        }
        faults
    })
}
