//! TaintNodesByCondition: adds the taint for nodes that are not ready to a new Node.

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};

use super::creates;

const KEY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

/// The admission plugin TaintNodesByCondition of Kubernetes.
pub(super) struct TaintNodesByCondition;

impl AdmissionPlugin for TaintNodesByCondition {
    fn name(&self) -> &str {
        "TaintNodesByCondition"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates(request, "", "nodes")
    }

    fn mutate<'a>(
        &'a self,
        _request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        add_taint(object);
        Box::pin(ready(Ok(())))
    }
}

fn add_taint(node: &mut Map<String, Value>) {
    let Value::Object(spec) = node.entry("spec").or_insert_with(|| json!({})) else { return };
    let taints = spec.entry("taints").or_insert(Value::Null);
    if !taints.is_array() {
        *taints = json!([]);
    }
    let Value::Array(taints) = taints else { return };
    if !taints.iter().any(|taint| taint["key"] == KEY && taint["effect"] == EFFECT) {
        taints.push(json!({"key": KEY, "effect": EFFECT}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_tainted_once() {
        let taints = |spec: Value| {
            let mut node = Map::from_iter([("spec".to_owned(), spec)]);
            add_taint(&mut node);
            node["spec"]["taints"].clone()
        };
        let taint = json!({"key": KEY, "effect": EFFECT});
        assert_eq!(taints(json!({})), json!([taint]));
        assert_eq!(taints(json!({"taints": [taint]})), json!([taint]));
        let other = json!({"key": KEY, "effect": "NoExecute"});
        assert_eq!(taints(json!({"taints": [other]})), json!([other, taint]));
    }
}
