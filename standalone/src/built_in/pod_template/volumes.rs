//! Volumes.

use std::collections::BTreeSet;

use aggregated_apiserver::{FieldError, names};
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, EmptyDirVolumeSource, PodSpec, Volume};

use super::images::default_pull_policy;
use super::spec::Owner;
use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::defaulting::set_default;

/// How long the token of a service account is valid.
const TOKEN_SECONDS: i64 = 3_600;

/// The mode of files: readable by all, writable by their owner.
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
        set_default(&mut template.spec.volume_mode, "Filesystem");
    }
    if let Some(path) = &mut volume.host_path {
        path.type_.get_or_insert_default();
    }
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

fn set_downward_defaults(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        set_default(&mut field.api_version, "v1");
    }
}

/// Validates volumes; answers with the names of those without faults, which containers
/// may mount.
pub(crate) fn validate<'a>(
    spec: &'a PodSpec,
    at: &str,
    owner: Owner,
    faults: &mut FieldErrors,
) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let at = format!("{at}.volumes[{index}]");
        let mut own = Vec::new();
        check_source(volume, spec, &at, owner, &mut own);
        if volume.name.is_empty() {
            own.push(FieldError::required(format!("{at}.name"), ""));
        } else {
            check_with(&format!("{at}.name"), &volume.name, names::check_dns_1123_label, &mut own);
        }
        if names.contains(volume.name.as_str()) {
            own.push(FieldError::duplicate(format!("{at}.name"), quote(&volume.name)));
        }
        if own.is_empty() {
            names.insert(volume.name.as_str());
        }
        faults.extend(own);
    }
    names
}

fn check_source(volume: &Volume, spec: &PodSpec, at: &str, owner: Owner, faults: &mut FieldErrors) {
    let tree = serde_json::to_value(volume).unwrap_or_default();
    let mut sources: Vec<&str> =
        tree.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    sources.retain(|name| *name != "name");
    // As kube-apiserver does: the first one is validated, the others are too many.
    sources.sort_by_key(|name| ORDER.iter().position(|one| one == name).unwrap_or(ORDER.len()));
    for name in sources.iter().skip(1) {
        let why = "may not specify more than 1 volume type";
        faults.push(FieldError::forbidden(format!("{at}.{name}"), why));
    }
    let mut need = |field: &str, text: Option<&String>| {
        if text.is_none_or(String::is_empty) {
            faults.push(FieldError::required(format!("{at}.{field}"), ""));
        }
    };
    match sources.first() {
        None => {
            let why = "must specify a volume type";
            faults.push(FieldError::required(at.to_owned(), why));
        }
        Some(&"hostPath") => {
            need("hostPath.path", volume.host_path.as_ref().map(|source| &source.path));
        }
        Some(&"secret") => {
            let name = volume.secret.as_ref().and_then(|source| source.secret_name.as_ref());
            need("secret.secretName", name);
        }
        Some(&"configMap") => {
            need("configMap.name", volume.config_map.as_ref().map(|source| &source.name));
        }
        Some(&"persistentVolumeClaim") => {
            let claim = volume.persistent_volume_claim.as_ref();
            need("persistentVolumeClaim.claimName", claim.map(|source| &source.claim_name));
        }
        Some(&"csi") => need("csi.driver", volume.csi.as_ref().map(|source| &source.driver)),
        Some(&"projected") => {
            let sources = volume.projected.as_ref().and_then(|one| one.sources.as_ref());
            for (index, source) in sources.into_iter().flatten().enumerate() {
                let has_account =
                    spec.service_account_name.as_ref().is_some_and(|name| !name.is_empty());
                if let Some(token) = source.service_account_token.as_ref() {
                    let at = format!("{at}.projected.sources[{index}].serviceAccountToken");
                    if owner == Owner::Pod && !has_account {
                        let why = "must not be specified when serviceAccountName is not set";
                        faults.push(FieldError::forbidden(at, why));
                    } else if token.path.is_empty() {
                        faults.push(FieldError::required(format!("{at}.path"), ""));
                    }
                }
            }
        }
        Some(_) => {}
    }
}

/// The order in which kube-apiserver looks for the source of a volume.
const ORDER: [&str; 28] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, prepared, texts};
    use serde_json::json;

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

    #[test]
    fn faults() {
        let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "p"}}]}});
        let mut named_token = token.clone();
        named_token["name"] = "v".into();
        for (volumes, of, expected) in [
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
                json!([named_token]),
                Owner::Pod,
                vec![
                    "s.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
                ],
            ),
            (json!([named_token]), Owner::Template, vec![]),
        ] {
            let mut faults = Vec::new();
            validate(&object(json!({"volumes": volumes})), "s", of, &mut faults);
            assert_eq!(texts(&faults), expected, "{volumes}");
        }
    }

    #[test]
    fn only_volumes_without_faults_can_be_mounted() {
        let spec: PodSpec =
            object(json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w"}]}));
        let names = validate(&spec, "s", Owner::Pod, &mut Vec::new());
        assert_eq!(names, BTreeSet::from(["v"]));
    }
}
