//! The sources of PersistentVolumes.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, HostPathVolumeSource, NFSVolumeSource, PersistentVolumeSpec,
    SecretReference,
};

use super::older_sources;
use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::defaulting::set_default;

const ONE: &str = "may not specify more than 1 volume type";

pub(crate) fn set_defaults(spec: &mut PersistentVolumeSpec) {
    if let Some(path) = &mut spec.host_path {
        path.type_.get_or_insert_default();
    }
    if let Some(iscsi) = &mut spec.iscsi {
        set_default(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut spec.rbd {
        set_default(&mut rbd.pool, "rbd");
        set_default(&mut rbd.user, "admin");
        set_default(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut spec.azure_disk {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
        disk.kind.get_or_insert_with(|| "Shared".to_owned());
        disk.fs_type.get_or_insert_with(|| "ext4".to_owned());
        disk.read_only.get_or_insert(false);
    }
    if let Some(scale_io) = &mut spec.scale_io {
        set_default(&mut scale_io.storage_mode, "ThinProvisioned");
        set_default(&mut scale_io.fs_type, "xfs");
    }
}

/// The sources of a volume, in the order of validation, and whether each is set.
fn all(spec: &PersistentVolumeSpec) -> [(&'static str, bool); 22] {
    [
        ("hostPath", spec.host_path.is_some()),
        ("gcePersistentDisk", spec.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", spec.aws_elastic_block_store.is_some()),
        ("glusterfs", spec.glusterfs.is_some()),
        ("flocker", spec.flocker.is_some()),
        ("nfs", spec.nfs.is_some()),
        ("rbd", spec.rbd.is_some()),
        ("quobyte", spec.quobyte.is_some()),
        ("cephFS", spec.cephfs.is_some()),
        ("iscsi", spec.iscsi.is_some()),
        ("cinder", spec.cinder.is_some()),
        ("fc", spec.fc.is_some()),
        ("flexVolume", spec.flex_volume.is_some()),
        ("azureFile", spec.azure_file.is_some()),
        ("vsphereVolume", spec.vsphere_volume.is_some()),
        ("photonPersistentDisk", spec.photon_persistent_disk.is_some()),
        ("portworxVolume", spec.portworx_volume.is_some()),
        ("azureDisk", spec.azure_disk.is_some()),
        ("scaleIO", spec.scale_io.is_some()),
        ("local", spec.local.is_some()),
        ("storageos", spec.storageos.is_some()),
        ("csi", spec.csi.is_some()),
    ]
}

/// Checks that a volume of this name has exactly one source, and validates the source.
pub(super) fn check(volume: &str, spec: &PersistentVolumeSpec, faults: &mut FieldErrors) {
    let mut count = 0;
    for (name, _) in all(spec).into_iter().filter(|(_, is_there)| *is_there) {
        // A flexVolume after another source is not an error.
        if count > 0 && name != "flexVolume" {
            faults.push(FieldError::forbidden(format!("spec.{name}"), ONE));
        } else {
            count += 1;
            check_one(volume, spec, name, faults);
        }
    }
    if count == 0 {
        faults.push(FieldError::required("spec", "must specify a volume type"));
    }
}

fn check_one(volume: &str, spec: &PersistentVolumeSpec, name: &str, faults: &mut FieldErrors) {
    if older_sources::check(volume, spec, name, faults).is_some() {
        return;
    }
    match (name, &spec.host_path, &spec.nfs, &spec.local, &spec.csi) {
        ("hostPath", Some(path), ..) => check_host_path(path, faults),
        ("nfs", _, Some(nfs), ..) => check_nfs(nfs, faults),
        ("local", _, _, Some(local), _) => {
            check_path(&local.path, "spec.local.path", faults);
            if spec.node_affinity.is_none() {
                let why = "Local volume requires node affinity";
                faults.push(FieldError::required("spec.nodeAffinity", why));
            }
        }
        ("csi", _, _, _, Some(csi)) => check_csi(csi, faults),
        _ => {}
    }
}

/// Checks a path. Returns whether it is set.
fn check_path(path: &str, at: &str, faults: &mut FieldErrors) -> bool {
    if path.is_empty() {
        faults.push(FieldError::required(at, ""));
    } else if path.split('/').any(|part| part == "..") {
        faults.push(FieldError::invalid(at, quote(path), "must not contain '..'"));
    }
    !path.is_empty()
}

fn check_host_path(path: &HostPathVolumeSource, faults: &mut FieldErrors) {
    let has_path = check_path(&path.path, "spec.hostPath.path", faults);
    let all = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    let sort = path.type_.as_deref().filter(|sort| has_path && !all.contains(sort));
    if let Some(sort) = sort {
        faults.push(FieldError::not_supported("spec.hostPath.type", quote(sort), &all));
    }
}

fn check_nfs(nfs: &NFSVolumeSource, faults: &mut FieldErrors) {
    if nfs.server.is_empty() {
        faults.push(FieldError::required("spec.nfs.server", ""));
    }
    if nfs.path.is_empty() {
        faults.push(FieldError::required("spec.nfs.path", ""));
    }
    if !nfs.path.starts_with('/') {
        let why = "must be an absolute path";
        faults.push(FieldError::invalid("spec.nfs.path", quote(&nfs.path), why));
    }
}

fn check_csi(csi: &CSIPersistentVolumeSource, faults: &mut FieldErrors) {
    check_driver_name("spec.csi.driver", &csi.driver, faults);
    if csi.volume_handle.is_empty() {
        faults.push(FieldError::required("spec.csi.volumeHandle", ""));
    }
    for (field, secret) in [
        ("controllerPublishSecretRef", &csi.controller_publish_secret_ref),
        ("controllerExpandSecretRef", &csi.controller_expand_secret_ref),
        ("nodePublishSecretRef", &csi.node_publish_secret_ref),
        ("nodeExpandSecretRef", &csi.node_expand_secret_ref),
    ] {
        let Some(secret) = secret else { continue };
        check_secret(secret, &format!("spec.csi.{field}"), faults);
    }
}

/// Checks the name of a CSI driver.
pub(crate) fn check_driver_name(at: &str, name: &str, faults: &mut FieldErrors) {
    const LONGEST: usize = 63;
    if name.is_empty() {
        return faults.push(FieldError::required(at, ""));
    }
    if name.len() > LONGEST {
        faults.push(FieldError::too_long(at, LONGEST as u64));
    }
    let lower = |name: &str| names::check_dns_1123_subdomain(&name.to_lowercase());
    check_with(at, name, lower, faults);
}

fn check_secret(secret: &SecretReference, at: &str, faults: &mut FieldErrors) {
    type Check = fn(&str) -> Vec<String>;
    let parts: [(&str, &Option<String>, Check); 2] = [
        ("name", &secret.name, names::check_dns_1123_subdomain),
        ("namespace", &secret.namespace, names::check_dns_1123_label),
    ];
    for (field, value, check) in parts {
        let at = format!("{at}.{field}");
        match value.as_deref().unwrap_or_default() {
            "" => faults.push(FieldError::required(at, "")),
            value => check_with(&at, value, check, faults),
        }
    }
}

/// A spec with only its source. The secret by which a driver expands volumes is ignored, because it may be set later.
pub(super) fn alone(
    spec: &PersistentVolumeSpec,
    old: &PersistentVolumeSpec,
) -> PersistentVolumeSpec {
    let mut alone = PersistentVolumeSpec {
        access_modes: None,
        capacity: None,
        claim_ref: None,
        mount_options: None,
        node_affinity: None,
        persistent_volume_reclaim_policy: None,
        storage_class_name: None,
        volume_attributes_class_name: None,
        volume_mode: None,
        ..spec.clone()
    };
    if let (Some(csi), Some(old)) = (&mut alone.csi, &old.csi)
        && old.controller_expand_secret_ref.is_none()
    {
        csi.controller_expand_secret_ref = None;
    }
    alone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::{Value, json};

    #[test]
    fn persistent_volume_source_validation_reports_invalid_fields() {
        for (spec, expected) in [
            (json!({"hostPath": {"path": "/a"}}), vec![]),
            (json!({}), vec!["spec: Required value: must specify a volume type"]),
            (
                json!({"hostPath": {"path": "/a/../b", "type": "X"}, "nfs": {"server": "", "path": ""}}),
                vec![
                    "spec.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
                    "spec.hostPath.type: Unsupported value: \"X\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
                    "spec.nfs: Forbidden: may not specify more than 1 volume type",
                ],
            ),
            (
                json!({"nfs": {"server": "", "path": ""}}),
                vec![
                    "spec.nfs.server: Required value",
                    "spec.nfs.path: Required value",
                    "spec.nfs.path: Invalid value: \"\": must be an absolute path",
                ],
            ),
            (
                json!({"local": {"path": "a"}}),
                vec!["spec.nodeAffinity: Required value: Local volume requires node affinity"],
            ),
            (
                json!({"csi": {"driver": "A.io", "volumeHandle": "", "nodePublishSecretRef": {"name": "s"}}}),
                vec![
                    "spec.csi.volumeHandle: Required value",
                    "spec.csi.nodePublishSecretRef.namespace: Required value",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            check("a", &object::<PersistentVolumeSpec>(spec.clone()), &mut faults);
            assert_eq!(texts(&faults), expected, "{spec}");
        }
    }

    #[test]
    fn a_controller_expand_secret_can_be_added_to_a_persistent_volume() {
        let spec = |more: Value| -> PersistentVolumeSpec {
            let mut csi = json!({"driver": "a", "volumeHandle": "b"});
            csi.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object(json!({"csi": csi, "capacity": {"storage": "1"}}))
        };
        let old = spec(json!({}));
        let same = |new: &PersistentVolumeSpec| alone(new, &old) == alone(&old, &old);
        assert!(same(&spec(json!({"controllerExpandSecretRef": {"name": "s"}}))));
        assert!(!same(&spec(json!({"nodePublishSecretRef": {"name": "s"}}))));
    }
}
