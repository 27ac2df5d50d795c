//! The validation of PersistentVolumes.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeSpec,
    VolumeNodeAffinity,
};

use super::sources;
use crate::built_in::checks::{
    FieldErrors, check_immutable, check_one_of, check_with, quote, to_json,
};
use crate::built_in::core::persistent_volume_claim::{CLASS_ANNOTATION, check_access_modes};
use crate::built_in::node_labels;

/// The annotation with mount options, from before there was a field for them.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

pub(super) fn validate(volume: &PersistentVolume, old: Option<&PersistentVolume>) -> FieldErrors {
    let nothing = PersistentVolumeSpec::default();
    let spec = volume.spec.as_ref().unwrap_or(&nothing);
    let mut faults = Vec::new();
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    check_spec(name, spec, &mut faults);
    check_mount_options(volume, spec, &mut faults);
    let Some(old) = old else { return faults };
    // kube-apiserver reports the errors of an update twice.
    check_spec(name, spec, &mut faults);
    let old = old.spec.as_ref().unwrap_or(&nothing);
    if sources::alone(spec, old) != sources::alone(old, old) {
        let why = "spec.persistentvolumesource is immutable after creation";
        faults.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    check_immutable("volumeMode", &spec.volume_mode, &old.volume_mode, &mut faults);
    if old.node_affinity.is_some() {
        check_immutable("nodeAffinity", &spec.node_affinity, &old.node_affinity, &mut faults);
    }
    if old.volume_attributes_class_name.is_some() && spec.volume_attributes_class_name.is_none() {
        let why = "update from non-nil value to nil is forbidden";
        faults.push(FieldError::forbidden("spec.volumeAttributesClassName", why));
    }
    faults
}

fn check_spec(volume: &str, spec: &PersistentVolumeSpec, faults: &mut FieldErrors) {
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        faults.push(FieldError::required("spec.accessModes", ""));
    }
    check_access_modes(modes, "spec.accessModes", faults);
    check_capacity(spec, faults);
    let policy = spec.persistent_volume_reclaim_policy.as_ref();
    let policies = ["Delete", "Recycle", "Retain"];
    check_one_of("spec.persistentVolumeReclaimPolicy", policy, &policies, faults);
    if let Some(affinity) = &spec.node_affinity {
        check_affinity(affinity, faults);
    }
    sources::check(volume, spec, faults);
    check_recycled_root(spec, faults);
    let class = spec.storage_class_name.as_deref().filter(|class| !class.is_empty());
    if let Some(class) = class {
        check_with("spec.storageClassName", class, names::check_dns_1123_subdomain, faults);
    }
    let modes = ["Block", "Filesystem"];
    check_one_of("spec.volumeMode", spec.volume_mode.as_ref(), &modes, faults);
    if let Some(class) = &spec.volume_attributes_class_name {
        let at = "spec.volumeAttributesClassName";
        if class.is_empty() {
            faults.push(FieldError::required(at, "an empty string is disallowed"));
        } else {
            check_with(at, class, names::check_dns_1123_subdomain, faults);
        }
        if spec.csi.is_none() {
            let why = "has to be specified when using volumeAttributesClassName";
            faults.push(FieldError::required("spec.csi", why));
        }
    }
}

/// Checks that the root directory of a host is not recycled.
pub(super) fn check_recycled_root(spec: &PersistentVolumeSpec, faults: &mut FieldErrors) {
    let is_root = |path: &str| {
        !path.is_empty()
            && path.starts_with('/')
            && path.split('/').all(|part| matches!(part, "" | "."))
    };
    let is_of_root = spec.host_path.as_ref().is_some_and(|path| is_root(&path.path));
    if is_of_root && spec.persistent_volume_reclaim_policy.as_deref() == Some("Recycle") {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        faults.push(FieldError::forbidden("spec.persistentVolumeReclaimPolicy", why));
    }
}

fn check_capacity(spec: &PersistentVolumeSpec, faults: &mut FieldErrors) {
    const AT: &str = "spec.capacity";
    let capacity = spec.capacity.clone().unwrap_or_default();
    if capacity.is_empty() {
        faults.push(FieldError::required(AT, ""));
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        let value = if capacity.is_empty() { "null".to_owned() } else { to_json(&capacity) };
        faults.push(FieldError::not_supported(AT, value, &["storage"]));
    }
    for (name, amount) in &capacity {
        let Ok(amount) = Quantity::parse(&amount.0) else { continue };
        let at = format!("{AT}[{name}]");
        if amount.nanos() < 0 {
            let value = crate::built_in::amounts::whole_value(amount);
            let why = "must be a valid resource quantity";
            faults.push(FieldError::invalid(&*at, value, why));
        }
        if amount.nanos() <= 0 {
            let why = "must be greater than zero";
            faults.push(FieldError::invalid(at, quote(&amount.to_string()), why));
        }
    }
}

fn check_affinity(affinity: &VolumeNodeAffinity, faults: &mut FieldErrors) {
    const AT: &str = "spec.nodeAffinity.required";
    let Some(required) = &affinity.required else {
        let why = "must specify required node constraints";
        return faults.push(FieldError::required(AT, why));
    };
    let terms = &required.node_selector_terms;
    let at = format!("{AT}.nodeSelectorTerms");
    if terms.is_empty() {
        let why = "must have at least one node selector term";
        faults.push(FieldError::required(&*at, why));
    }
    for (index, term) in terms.iter().enumerate() {
        for (number, one) in term.match_expressions.iter().flatten().enumerate() {
            check_expression(one, &format!("{at}[{index}].matchExpressions[{number}]"), faults);
        }
        for (number, one) in term.match_fields.iter().flatten().enumerate() {
            check_field(one, &format!("{at}[{index}].matchFields[{number}]"), faults);
        }
    }
}

fn check_expression(one: &NodeSelectorRequirement, at: &str, faults: &mut FieldErrors) {
    let values = one.values.as_deref().unwrap_or_default();
    let at_values = format!("{at}.values");
    match one.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(FieldError::required(&*at_values, why));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(FieldError::forbidden(&*at_values, why));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            faults.push(FieldError::required(&*at_values, why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            let why = "not a valid selector operator";
            faults.push(FieldError::invalid(format!("{at}.operator"), quote(other), why));
        }
    }
    check_with(&format!("{at}.key"), &one.key, names::check_label_key, faults);
    for (index, value) in values.iter().enumerate() {
        check_with(&format!("{at_values}[{index}]"), value, names::check_label_value, faults);
    }
}

fn check_field(one: &NodeSelectorRequirement, at: &str, faults: &mut FieldErrors) {
    let values = one.values.as_deref().unwrap_or_default();
    match one.operator.as_str() {
        "In" | "NotIn" if values.len() != 1 => {
            let why =
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            faults.push(FieldError::required(format!("{at}.values"), why));
        }
        "In" | "NotIn" => {}
        other => {
            let why = "not a valid selector operator";
            faults.push(FieldError::invalid(format!("{at}.operator"), quote(other), why));
        }
    }
    if one.key != "metadata.name" {
        let why = "not a valid field selector key";
        faults.push(FieldError::invalid(format!("{at}.key"), quote(&one.key), why));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        let check = names::check_dns_1123_subdomain;
        check_with(&format!("{at}.values[{index}]"), value, check, faults);
    }
}

/// Checks the mount options, which some types of volumes do not support.
fn check_mount_options(
    volume: &PersistentVolume,
    spec: &PersistentVolumeSpec,
    faults: &mut FieldErrors,
) {
    let takes_options = spec.gce_persistent_disk.is_some()
        || spec.aws_elastic_block_store.is_some()
        || spec.glusterfs.is_some()
        || spec.nfs.is_some()
        || spec.rbd.is_some()
        || spec.quobyte.is_some()
        || spec.iscsi.is_some()
        || spec.cinder.is_some()
        || spec.cephfs.is_some()
        || spec.azure_file.is_some()
        || spec.vsphere_volume.is_some()
        || spec.azure_disk.is_some()
        || spec.photon_persistent_disk.is_some();
    if !takes_options && has_annotation(volume, MOUNT_OPTIONS) {
        let why = "may not specify mount options for this volume type";
        faults.push(FieldError::forbidden(format!("metadata.annotations.{MOUNT_OPTIONS}"), why));
    }
}

fn has_annotation(volume: &PersistentVolume, key: &str) -> bool {
    volume.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key))
}

/// Warnings about deprecated fields.
pub(super) fn warnings(volume: &PersistentVolume) -> Vec<String> {
    let nothing = PersistentVolumeSpec::default();
    let spec = volume.spec.as_ref().unwrap_or(&nothing);
    let mut warnings = Vec::new();
    for (key, why) in [
        (CLASS_ANNOTATION, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if has_annotation(volume, key) {
            warnings.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
    if spec.persistent_volume_reclaim_policy.as_deref() == Some("Recycle") {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {why}"));
    }
    warnings.extend(warnings_of_affinity(spec));
    let sources = [
        (spec.cephfs.is_some(), "cephfs: deprecated in v1.28, non-functional in v1.31+"),
        (
            spec.photon_persistent_disk.is_some(),
            "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+",
        ),
        (spec.scale_io.is_some(), "scaleIO: deprecated in v1.16, non-functional in v1.22+"),
        (spec.storageos.is_some(), "storageOS: deprecated in v1.22, non-functional in v1.25+"),
        (spec.glusterfs.is_some(), "glusterfs: deprecated in v1.25, non-functional in v1.26+"),
        (spec.rbd.is_some(), "rbd: deprecated in v1.28, non-functional in v1.31+"),
    ];
    let sources = sources.into_iter().filter(|(is_there, _)| *is_there);
    warnings.extend(sources.map(|(_, why)| format!("spec.{why}")));
    warnings
}

/// Warnings about deprecated labels of Nodes in the node affinity of a volume.
fn warnings_of_affinity(spec: &PersistentVolumeSpec) -> Vec<String> {
    const AT: &str = "spec.nodeAffinity.required.nodeSelectorTerms";
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let terms = required.into_iter().flat_map(|required| &required.node_selector_terms).enumerate();
    let of_term = |(index, term): (usize, &NodeSelectorTerm)| {
        let expressions = term.match_expressions.iter().flatten().enumerate();
        let warnings = expressions.filter_map(|(inner, one)| {
            let (key, why) = (&one.key, node_labels::deprecation(&one.key)?);
            Some(format!("{AT}[{index}].matchExpressions[{inner}].key: {key} is {why}"))
        });
        warnings.collect::<Vec<_>>()
    };
    terms.flat_map(of_term).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object};
    use serde_json::{Value, json};

    fn volume(more: Value) -> Value {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "nfs": {"server": "s", "path": "/a"},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    }

    #[test]
    fn persistent_volume_validation_reports_invalid_fields() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"accessModes": [], "capacity": {}}),
                vec![
                    "spec.accessModes: Required value",
                    "spec.capacity: Required value",
                    "spec.capacity: Unsupported value: null: supported values: \"storage\"",
                ],
            ),
            (
                json!({"capacity": {"storage": "-1"}, "persistentVolumeReclaimPolicy": "X", "volumeMode": "Y"}),
                vec![
                    "spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
                    "spec.capacity[storage]: Invalid value: \"-1\": must be greater than zero",
                    "spec.persistentVolumeReclaimPolicy: Unsupported value: \"X\": supported values: \"Delete\", \"Recycle\", \"Retain\"",
                    "spec.volumeMode: Unsupported value: \"Y\": supported values: \"Block\", \"Filesystem\"",
                ],
            ),
            (
                json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{
                    "matchExpressions": [{"key": "a", "operator": "Gt"}],
                    "matchFields": [{"key": "x", "operator": "Exists"}],
                }]}}}),
                vec![
                    "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
                    "spec.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].operator: Invalid value: \"Exists\": not a valid selector operator",
                    "spec.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].key: Invalid value: \"x\": not a valid field selector key",
                ],
            ),
            (
                json!({"volumeAttributesClassName": ""}),
                vec![
                    "spec.volumeAttributesClassName: Required value: an empty string is disallowed",
                    "spec.csi: Required value: has to be specified when using volumeAttributesClassName",
                ],
            ),
            (
                json!({"nfs": null, "hostPath": {"path": "//"}, "persistentVolumeReclaimPolicy": "Recycle"}),
                vec![
                    "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, volume(more.clone())), expected, "{more}");
        }
        let mut options = volume(json!({"nfs": null, "hostPath": {"path": "/a"}}));
        options["metadata"] = json!({"annotations": {MOUNT_OPTIONS: "ro"}});
        assert_eq!(
            faults_of_new(validate, options.clone()),
            [
                "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"
            ]
        );
        assert_eq!(warnings(&object(options)).len(), 1);
    }

    #[test]
    fn changes() {
        let larger = volume(json!({"capacity": {"storage": "2Gi"}}));
        assert_eq!(faults_of_update(validate, volume(json!({})), larger), [] as [&str; 0]);
        let moved = volume(json!({"nfs": {"server": "t", "path": "/a"}, "volumeMode": "Block"}));
        assert_eq!(
            faults_of_update(validate, volume(json!({"volumeMode": "Filesystem"})), moved),
            [
                "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
                "volumeMode: Invalid value: \"Block\": field is immutable",
            ]
        );
    }
}
