//! PersistentVolumeClaimResize: a claim may request more storage only if its StorageClass allows expansion.

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::types::Quantity;
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Map, Value};

use super::is_of;

type Tree = Map<String, Value>;

/// The admission plugin PersistentVolumeClaimResize of Kubernetes.
pub(super) struct ClaimResize;

impl AdmissionPlugin for ClaimResize {
    fn name(&self) -> &str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        let is_update = request.operation == AdmissionOperation::Update;
        is_update && is_of(request, "", "persistentvolumeclaims")
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let judged = object.map_or(Ok(()), |object| judge(request, object));
        Box::pin(ready(judged))
    }
}

fn judge(request: &AdmissionRequest<'_>, claim: &Tree) -> Result<(), AdmissionError> {
    let Some(old) = request.old::<PersistentVolumeClaim>() else { return Ok(()) };
    let claim: PersistentVolumeClaim = serde_json::from_value(Value::Object(claim.clone()))
        .map_err(|why| AdmissionError::bad_request(format!("cannot read the claim: {why}")))?;
    if !grows(&claim, &old) {
        return Ok(());
    }
    let phase = old.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Bound") {
        let why = "Only bound persistent volume claims can be expanded";
        return Err(AdmissionError::forbidden(why));
    }
    if is_expandable(request, class_of(&claim), class_of(&old))? {
        return Ok(());
    }
    Err(AdmissionError::forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}

fn grows(claim: &PersistentVolumeClaim, old: &PersistentVolumeClaim) -> bool {
    requested(claim) > requested(old)
}

/// The storage that a claim requests, in billionths of a byte.
fn requested(claim: &PersistentVolumeClaim) -> i128 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage"));
    storage.and_then(|storage| Quantity::parse(&storage.0).ok()).map_or(0, |amount| amount.nanos())
}

/// The StorageClass that a claim names, in its field or in the older annotation.
fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let annotations = claim.metadata.annotations.as_ref();
    let annotation = annotations.and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    let field = || claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    annotation.or_else(field).map(String::as_str).unwrap_or_default()
}

fn is_expandable(
    request: &AdmissionRequest<'_>,
    class: &str,
    old: &str,
) -> Result<bool, AdmissionError> {
    if class.is_empty() || class != old {
        return Ok(false);
    }
    let class: Option<StorageClass> =
        request.find("storage.k8s.io/v1", "storageclasses", None, class)?;
    Ok(class.and_then(|class| class.allow_volume_expansion) == Some(true))
}
