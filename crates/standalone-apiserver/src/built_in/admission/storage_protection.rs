//! StorageObjectInUseProtection: adds a finalizer to new claims, volumes and classes of attributes, so that they are not removed while they
//! are used. `controllers/storage_protection` removes the finalizer.

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};

use super::creates;

/// The finalizer of a PersistentVolumeClaim.
pub(crate) const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";

/// The finalizer of a PersistentVolume.
pub(crate) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// The finalizer of a VolumeAttributesClass.
pub(crate) const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";

/// The admission plugin StorageObjectInUseProtection of Kubernetes.
pub(super) struct StorageObjectInUseProtection;

impl AdmissionPlugin for StorageObjectInUseProtection {
    fn name(&self) -> &str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        finalizer(request).is_some()
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        if let Some(finalizer) = finalizer(request) {
            add(object, finalizer);
        }
        Box::pin(ready(Ok(())))
    }
}

fn finalizer(request: &AdmissionRequest<'_>) -> Option<&'static str> {
    let finalizers = [
        ("", "persistentvolumeclaims", CLAIM_FINALIZER),
        ("", "persistentvolumes", VOLUME_FINALIZER),
        ("storage.k8s.io", "volumeattributesclasses", CLASS_FINALIZER),
    ];
    let found =
        finalizers.into_iter().find(|(group, resource, _)| creates(request, group, resource));
    found.map(|(.., finalizer)| finalizer)
}

fn add(object: &mut AdmissionObject<'_>, finalizer: &str) {
    let metadata = object.get("metadata").and_then(Value::as_object);
    let finalizers = metadata.and_then(|metadata| metadata.get("finalizers")?.as_array());
    if finalizers.is_some_and(|all| all.iter().any(|one| one == finalizer)) {
        return;
    }
    let mut finalizers = finalizers.cloned().unwrap_or_default();
    finalizers.push(finalizer.into());
    if let Value::Object(metadata) = object.entry("metadata").or_insert_with(|| json!({})) {
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
}
