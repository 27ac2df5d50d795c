//! `pods/eviction`: deletes a Pod. PodDisruptionBudgets are not checked yet.

use aggregated_apiserver::strategy::{SubresourceError, SubresourceOutcome, SubresourceRequest};
use k8s_openapi::api::policy::v1::Eviction;
use serde_json::{Map, Value, json};

use super::{check_name, set_condition};
use crate::built_in::row::PostedSubresource;

pub(super) fn subresource() -> PostedSubresource {
    PostedSubresource::new::<Eviction>("eviction", evict).with_versions(&["v1beta1"])
}

fn evict(request: &SubresourceRequest<'_>) -> Result<SubresourceOutcome, SubresourceError> {
    check_name(request, "Eviction")?;
    let options = request.body.get("deleteOptions").and_then(Value::as_object).cloned();
    let mut pod = Value::Object(request.object.clone());
    let disrupted = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    set_condition(&mut pod, disrupted, request.context.now);
    match pod {
        Value::Object(pod) => Ok(SubresourceOutcome::Delete(pod, options.unwrap_or_else(Map::new))),
        _ => Err(SubresourceError::BadRequest("not a Pod".to_owned())),
    }
}
