//! DefaultTolerationSeconds: adds tolerations to a Pod for a node that is not ready or unreachable, for a limited time.

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};

use super::is_of;

/// The taints of a node that is not ready or unreachable.
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The time for which a Pod remains on a node with such a taint, in seconds.
const SECONDS: i64 = 300;

/// The admission plugin DefaultTolerationSeconds of Kubernetes.
pub(super) struct DefaultTolerationSeconds;

impl AdmissionPlugin for DefaultTolerationSeconds {
    fn name(&self) -> &str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation != AdmissionOperation::Delete && is_of(request, "", "pods")
    }

    fn mutate<'a>(
        &'a self,
        _request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        if !missing(object).is_empty() {
            add_tolerations(object);
        }
        Box::pin(ready(Ok(())))
    }
}

/// Adds the missing tolerations to a Pod.
pub(crate) fn add_tolerations(pod: &mut Map<String, Value>) {
    let added = missing(pod).into_iter().map(|key| {
        json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
        })
    });
    let added: Vec<Value> = added.collect();
    let Value::Object(spec) = pod.entry("spec").or_insert_with(|| json!({})) else { return };
    match spec.entry("tolerations").or_insert(Value::Null) {
        Value::Array(tolerations) => tolerations.extend(added),
        other => *other = added.into(),
    }
}

/// The taints that a Pod does not tolerate.
fn missing(pod: &Map<String, Value>) -> Vec<&'static str> {
    let tolerations = pod.get("spec").and_then(|spec| spec.get("tolerations")?.as_array());
    let is_of = |toleration: &Value, field: &str, wanted: &str| {
        let text = toleration[field].as_str().unwrap_or_default();
        text.is_empty() || text == wanted
    };
    let is_tolerated = |key: &str| {
        let mut all = tolerations.into_iter().flatten();
        all.any(|one| is_of(one, "key", key) && is_of(one, "effect", "NoExecute"))
    };
    TAINTS.into_iter().filter(|key| !is_tolerated(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_tolerations_are_added() {
        let tolerations = |given: Value| {
            let mut pod = Map::from_iter([("spec".to_owned(), json!({"tolerations": given}))]);
            add_tolerations(&mut pod);
            pod["spec"]["tolerations"].clone()
        };
        let default = |key: &str| {
            json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            })
        };
        let [not_ready, unreachable] = TAINTS;
        assert_eq!(tolerations(json!(null)), json!([default(not_ready), default(unreachable)]));
        let all = json!([{"operator": "Exists"}]);
        assert_eq!(tolerations(all.clone()), all);
        let one = json!({"key": not_ready, "effect": "NoExecute"});
        assert_eq!(tolerations(json!([one])), json!([one, default(unreachable)]));
        let other = json!({"key": not_ready, "effect": "NoSchedule"});
        assert_eq!(tolerations(json!([other])).as_array().map(Vec::len), Some(3));
    }
}
