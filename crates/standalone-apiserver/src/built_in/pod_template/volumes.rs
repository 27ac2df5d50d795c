//! Volumes.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, EmptyDirVolumeSource, PodSpec, Volume, VolumeProjection,
};

use super::images::default_pull_policy;
use super::paths::check_local;
use super::resources::round_up;
use super::scope::Scope;
use super::volume_sources;
use super::windows::containers;
use crate::built_in::checks::{FieldErrors, check_given, check_with, quote};
use crate::built_in::defaulting::{set_default, set_missing};

/// The default validity of the token of a ServiceAccount, in seconds.
const TOKEN_SECONDS: i64 = 3_600;

/// The default mode of files: readable by all users, writable by the owner.
const MODE: i32 = 0o644;

/// Sets the defaults of a volume.
pub(crate) fn set_defaults(volume: &mut Volume) {
    let name = std::mem::take(&mut volume.name);
    if *volume == Volume::default() {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    volume.name = name;
    if let Some(map) = &mut volume.config_map {
        map.default_mode.get_or_insert(MODE);
    }
    if let Some(secret) = &mut volume.secret {
        secret.default_mode.get_or_insert(MODE);
    }
    if let Some(image) = &mut volume.image {
        let policy = default_pull_policy(image.reference.as_deref().unwrap_or_default());
        set_default(&mut image.pull_policy, policy);
    }
    if let Some(template) =
        volume.ephemeral.iter_mut().find_map(|one| one.volume_claim_template.as_mut())
    {
        set_missing(&mut template.spec.volume_mode, "Filesystem");
        if let Some(resources) = &mut template.spec.resources {
            round_up(&mut resources.limits);
            round_up(&mut resources.requests);
        }
    }
    if let Some(path) = &mut volume.host_path {
        path.type_.get_or_insert_default();
    }
    set_disk_defaults(volume);
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(MODE);
        downward.items.iter_mut().flatten().for_each(set_downward_defaults);
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(MODE);
        for source in projected.sources.iter_mut().flatten() {
            if let Some(token) = &mut source.service_account_token {
                token.expiration_seconds.get_or_insert(TOKEN_SECONDS);
            }
            let items = source.downward_api.iter_mut().flat_map(|one| &mut one.items).flatten();
            items.for_each(set_downward_defaults);
        }
    }
}

/// Sets the defaults of sources that are disks of a provider.
fn set_disk_defaults(volume: &mut Volume) {
    if let Some(iscsi) = &mut volume.iscsi {
        set_default(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut volume.rbd {
        set_default(&mut rbd.pool, "rbd");
        set_default(&mut rbd.user, "admin");
        set_default(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut volume.azure_disk {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
        disk.kind.get_or_insert_with(|| "Shared".to_owned());
        disk.fs_type.get_or_insert_with(|| "ext4".to_owned());
        disk.read_only.get_or_insert(false);
    }
    if let Some(scale_io) = &mut volume.scale_io {
        set_default(&mut scale_io.storage_mode, "ThinProvisioned");
        set_default(&mut scale_io.fs_type, "xfs");
    }
}

fn set_downward_defaults(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        set_default(&mut field.api_version, "v1");
    }
}

/// Removes projected sources whose features are off by default, unless the old PodSpec has one.
pub(crate) fn drop_disabled(spec: &mut PodSpec, old: Option<&PodSpec>) {
    let old_sources: Vec<VolumeProjection> =
        old.into_iter().flat_map(projections).cloned().collect();
    let has_bundle = old_sources.iter().any(|source| source.cluster_trust_bundle.is_some());
    let has_certificate = old_sources.iter().any(|source| source.pod_certificate.is_some());
    let volumes = spec.volumes.iter_mut().flatten();
    let projected = volumes.filter_map(|volume| volume.projected.as_mut());
    for source in projected.flat_map(|projected| projected.sources.iter_mut().flatten()) {
        if !has_bundle {
            source.cluster_trust_bundle = None;
        }
        if !has_certificate {
            source.pod_certificate = None;
        }
    }
}

/// The sources of all projected volumes.
fn projections(spec: &PodSpec) -> impl Iterator<Item = &VolumeProjection> {
    let volumes = spec.volumes.iter().flatten();
    let projected = volumes.filter_map(|volume| volume.projected.as_ref());
    projected.flat_map(|projected| projected.sources.iter().flatten())
}

/// Whether tokens of a PodSpec have paths outside of their volumes.
pub(crate) fn has_invalid_token_paths(spec: &PodSpec) -> bool {
    let mut faults = Vec::new();
    for token in projections(spec).filter_map(|source| source.service_account_token.as_ref()) {
        check_local("", &token.path, &mut faults);
    }
    !faults.is_empty()
}

/// Validates volumes. Returns the volumes without errors, which containers can mount.
pub(crate) fn validate<'a>(
    scope: &Scope<'a>,
    at: &str,
    faults: &mut FieldErrors,
) -> BTreeMap<&'a str, &'a Volume> {
    let spec: &'a PodSpec = scope.spec;
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let ephemeral = volumes.iter().filter(|volume| volume.ephemeral.is_some());
    let created: BTreeSet<String> = scope
        .pod_name()
        .into_iter()
        .flat_map(|pod| ephemeral.clone().map(move |volume| format!("{pod}-{}", volume.name)))
        .collect();
    let mut valid = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = format!("{at}.volumes[{index}]");
        let mut own = Vec::new();
        volume_sources::validate(volume, scope, &at, &mut own);
        let name_at = format!("{at}.name");
        if check_given(&name_at, &volume.name, &mut own) {
            check_with(&name_at, &volume.name, names::check_dns_1123_label, &mut own);
        }
        if valid.contains_key(volume.name.as_str()) {
            own.push(FieldError::duplicate(name_at, quote(&volume.name)));
        }
        if own.is_empty() {
            valid.insert(volume.name.as_str(), volume);
        }
        faults.extend(own);
        let claim = volume.persistent_volume_claim.as_ref().map(|claim| &claim.claim_name);
        if let Some(claim) = claim.filter(|claim| created.contains(*claim)) {
            let at = format!("{at}.persistentVolumeClaim.claimName");
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            faults.push(FieldError::invalid(at, quote(claim), why));
        }
    }
    valid
}

/// Checks that tokens belong to a ServiceAccount, which is optional in a template.
pub(crate) fn check_tokens(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    if scope.spec.service_account_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return;
    }
    for (index, volume) in scope.spec.volumes.iter().flatten().enumerate() {
        let sources = volume.projected.iter().flat_map(|one| one.sources.iter().flatten());
        for (number, source) in sources.enumerate() {
            if source.service_account_token.is_some() {
                let at = format!(
                    "{at}.volumes[{index}].projected.sources[{number}].serviceAccountToken"
                );
                let why = "must not be specified when serviceAccountName is not set";
                faults.push(FieldError::forbidden(at, why));
            }
        }
    }
}

/// Checks that variables are read from files of `emptyDir` volumes.
pub(crate) fn check_files_of_variables(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let volumes = scope.spec.volumes.as_deref().unwrap_or_default();
    for (at, container) in containers(scope, at) {
        for (index, variable) in container.env.iter().flatten().enumerate() {
            let file = variable.value_from.as_ref().and_then(|from| from.file_key_ref.as_ref());
            let Some(file) = file else { continue };
            let at = format!("{at}.env[{index}].valueFrom.fileKeyRef.volumeName");
            let name = file.volume_name.as_str();
            match volumes.iter().rev().find(|volume| volume.name == name) {
                None => faults.push(FieldError::not_found(at, quote(name))),
                Some(volume) if volume.empty_dir.is_none() => {
                    let why = "referenced volume must be of type emptyDir";
                    faults.push(FieldError::invalid(at, quote(name), why));
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::pod_template::scope::Owner;
    use crate::built_in::testing::{object, prepared, texts};
    use serde_json::{Value, json};

    #[test]
    fn defaults() {
        for (volume, expected) in [
            (json!({"name": "v"}), json!({"name": "v", "emptyDir": {}})),
            (
                json!({"name": "v", "secret": {"secretName": "s"}}),
                json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}),
            ),
            (
                json!({"name": "v", "hostPath": {"path": "/a"}}),
                json!({"name": "v", "hostPath": {"path": "/a", "type": ""}}),
            ),
            (
                json!({"name": "v", "image": {"reference": "a:1"}}),
                json!({"name": "v", "image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}}),
            ),
            (
                json!({"name": "v", "projected": {"defaultMode": 1, "sources": [
                    {"serviceAccountToken": {"path": "p"}},
                    {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "f"}}]}},
                ]}}),
                json!({"name": "v", "projected": {"defaultMode": 1, "sources": [
                    {"serviceAccountToken": {"path": "p", "expirationSeconds": 3_600}},
                    {"downwardAPI": {"items": [
                        {"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "f"}},
                    ]}},
                ]}}),
            ),
        ] {
            assert_eq!(prepared(set_defaults, volume), expected);
        }
    }

    fn faults(volumes: Value, owner: Owner) -> (Vec<String>, Vec<String>) {
        let spec: PodSpec = object(json!({"volumes": volumes}));
        let scope = Scope::new(&spec, owner, None, None);
        let mut faults = Vec::new();
        let valid = validate(&scope, "s", &mut faults);
        let valid = valid.into_keys().map(str::to_owned).collect();
        if owner == Owner::Pod {
            check_tokens(&scope, "s", &mut faults);
        }
        (texts(&faults), valid)
    }

    #[test]
    fn sources() {
        let token = json!([{"name": "v", "projected": {"sources": [
            {"serviceAccountToken": {"path": "p", "expirationSeconds": 3_600}},
        ]}}]);
        for (volumes, owner, expected) in [
            (json!([{"name": "v", "emptyDir": {}}]), Owner::Pod, vec![]),
            (
                json!([{"name": "v"}, {"emptyDir": {}}]),
                Owner::Pod,
                vec![
                    "s.volumes[0]: Required value: must specify a volume type",
                    "s.volumes[1].name: Required value",
                ],
            ),
            (
                json!([{"name": "v", "configMap": {}, "emptyDir": {}}]),
                Owner::Pod,
                vec!["s.volumes[0].configMap: Forbidden: may not specify more than 1 volume type"],
            ),
            (
                json!([{"name": "v", "secret": {}}, {"name": "w", "hostPath": {"path": ""}}]),
                Owner::Pod,
                vec![
                    "s.volumes[0].secret.secretName: Required value",
                    "s.volumes[1].hostPath.path: Required value",
                ],
            ),
            (
                json!([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
                Owner::Pod,
                vec!["s.volumes[1].name: Duplicate value: \"v\""],
            ),
            (
                token.clone(),
                Owner::Pod,
                vec![
                    "s.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
                ],
            ),
            (token, Owner::Template, vec![]),
        ] {
            assert_eq!(faults(volumes.clone(), owner).0, expected, "{volumes}");
        }
    }

    #[test]
    fn only_valid_volumes_can_be_mounted() {
        let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "w"}]);
        assert_eq!(faults(volumes, Owner::Pod).1, ["v"]);
    }
}
