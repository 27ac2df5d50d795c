//! The spec of a volume within another object, which has no PersistentVolume.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use super::sources;
use super::validation::check_recycled_root;
use crate::built_in::checks::FieldErrors;
use crate::built_in::core::persistent_volume_claim::check_access_modes;

const NOT_INLINE: &str = "may not be specified in the context of inline volumes";

/// Validates the spec at `at`.
pub(crate) fn check(spec: &PersistentVolumeSpec, at: &str, faults: &mut FieldErrors) {
    let mut found = Vec::new();
    if spec.claim_ref.is_some() {
        found.push(FieldError::forbidden("claimRef", NOT_INLINE));
    }
    if spec.capacity.as_ref().is_some_and(|capacity| !capacity.is_empty()) {
        found.push(FieldError::forbidden("capacity", NOT_INLINE));
    }
    if spec.csi.is_none() {
        let why = "has to be specified in the context of inline volumes";
        found.push(FieldError::required("csi", why));
    }
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        found.push(FieldError::required("accessModes", ""));
    }
    check_access_modes(modes, "accessModes", &mut found);
    let policy = spec.persistent_volume_reclaim_policy.as_deref().unwrap_or_default();
    if !["", "Retain"].contains(&policy) {
        let why = "may only be Retain in the context of inline volumes";
        found.push(FieldError::forbidden("persistentVolumeReclaimPolicy", why));
    }
    if spec.node_affinity.is_some() {
        found.push(FieldError::forbidden("nodeAffinity", NOT_INLINE));
    }
    found.extend(errors_of_sources(spec));
    if spec.storage_class_name.as_ref().is_some_and(|class| !class.is_empty()) {
        found.push(FieldError::forbidden("storageClassName", NOT_INLINE));
    }
    if spec.volume_mode.as_ref().is_some_and(|mode| mode != "Filesystem") {
        let why =
            "may not specify volumeMode other than Filesystem in the context of inline volumes";
        found.push(FieldError::forbidden("volumeMode", why));
    }
    faults.extend(found.into_iter().map(|error| error.below(at)));
}

/// The errors of the sources, with paths below the spec.
fn errors_of_sources(spec: &PersistentVolumeSpec) -> impl Iterator<Item = FieldError> {
    // A local volume needs a node affinity, which an inline spec may not have.
    let spec = PersistentVolumeSpec { node_affinity: None, ..spec.clone() };
    let mut found = Vec::new();
    sources::check("", &spec, &mut found);
    check_recycled_root(&spec, &mut found);
    let below = |path: &str| path.trim_start_matches("spec").trim_start_matches('.').to_owned();
    found.into_iter().map(move |error| error.with_field(below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn fields_of_a_persistent_volume_are_not_allowed_inline() {
        let spec: PersistentVolumeSpec = object(json!({
            "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "a", "volumeMode": "Block", "nodeAffinity": {},
            "local": {"path": "a"},
        }));
        let mut faults = Vec::new();
        check(&spec, "s", &mut faults);
        assert_eq!(
            texts(&faults),
            [
                "s.capacity: Forbidden: may not be specified in the context of inline volumes",
                "s.csi: Required value: has to be specified in the context of inline volumes",
                "s.accessModes: Required value",
                "s.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes",
                "s.nodeAffinity: Forbidden: may not be specified in the context of inline volumes",
                "s.nodeAffinity: Required value: Local volume requires node affinity",
                "s.storageClassName: Forbidden: may not be specified in the context of inline volumes",
                "s.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes",
            ]
        );
        let mut faults = Vec::new();
        check(&PersistentVolumeSpec::default(), "s", &mut faults);
        assert_eq!(texts(&faults).last().unwrap(), "s: Required value: must specify a volume type");
    }
}
