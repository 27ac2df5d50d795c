//! Administrative access to devices that are in use: claims with it need a label of their namespace. kube-apiserver
//! checks this in the storage of claims.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::admission::{
    AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Map, Value};

const GROUP: &str = "resource.k8s.io";
/// The label of namespaces whose claims may have the access.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Checks the label of the namespace of claims with administrative access.
pub(crate) struct DeviceAdminAccess;

impl AdmissionPlugin for DeviceAdminAccess {
    fn name(&self) -> &str {
        "DeviceAdminAccess"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        let is_new = request.operation == AdmissionOperation::Create;
        let is_status = request.subresource == "status";
        request.group == GROUP
            && match request.resource {
                "resourceclaims" => is_new || is_status,
                "resourceclaimtemplates" => is_new,
                _ => false,
            }
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Map<String, Value>>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(object.map_or(Ok(()), |object| judge(request, object))))
    }
}

fn judge(
    request: &AdmissionRequest<'_>,
    object: &Map<String, Value>,
) -> Result<(), AdmissionError> {
    let Some(path) = requested(request, object) else { return Ok(()) };
    let namespace = request.namespace.unwrap_or_default();
    let found = request.find::<Namespace>("v1", "namespaces", None, namespace)?;
    let labels = found.and_then(|namespace| namespace.metadata.labels).unwrap_or_default();
    if labels.get(LABEL).is_some_and(|value| value == "true") {
        return Ok(());
    }
    let why = format!(
        "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
    );
    Err(AdmissionError::invalid(vec![FieldError::forbidden(path, &why)]))
}

/// The path of the first field that requests the access.
fn requested(request: &AdmissionRequest<'_>, object: &Map<String, Value>) -> Option<String> {
    let (pointer, inner, path) = match (request.resource, request.subresource) {
        (_, "status") => {
            ("/allocation/devices/results", "/adminAccess", "status.allocation.devices.results")
        }
        ("resourceclaimtemplates", _) => {
            ("/spec/devices/requests", "/exactly/adminAccess", "spec.devices.requests")
        }
        _ => ("/devices/requests", "/exactly/adminAccess", "spec.devices.requests"),
    };
    let part = object.get(if request.subresource == "status" { "status" } else { "spec" })?;
    let all = part.pointer(pointer)?.as_array()?;
    let has_access = |one: &Value| one.pointer(inner) == Some(&Value::Bool(true));
    let index = all.iter().position(has_access)?;
    Some(format!("{path}[{index}].adminAccess"))
}
