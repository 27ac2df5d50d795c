//! The sources of volumes that are disks of a provider, or network file systems.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, FCVolumeSource, FlockerVolumeSource, ISCSIVolumeSource,
    LocalObjectReference, NFSVolumeSource, QuobyteVolumeSource, StorageOSVolumeSource, Volume,
};

use super::volume_sources::{Source, source};
use crate::built_in::checks::{FieldErrors, check_given, check_one_of, check_with, quote, to_json};

/// The sources for which validation mostly checks that fields are set.
pub(super) fn of_providers<'a>(volume: &'a Volume, at: &'a str) -> Vec<Source<'a>> {
    let need = move |field: &str, value: &str, faults: &mut FieldErrors| {
        check_given(&format!("{at}.{field}"), value, faults);
    };
    let partition = move |field: &str, number: Option<i32>, faults: &mut FieldErrors| {
        if let Some(number) = number.filter(|number| !(0..=255).contains(number)) {
            let why = "must be between 1 and 255, inclusive";
            faults.push(FieldError::invalid(format!("{at}.{field}.partition"), number, why));
        }
    };
    let some = move |field: &str, all: &[String], faults: &mut FieldErrors| {
        if all.is_empty() {
            faults.push(FieldError::required(format!("{at}.{field}"), ""));
        }
    };
    vec![
        source(&volume.gce_persistent_disk, "gcePersistentDisk", move |one, faults| {
            need("persistentDisk.pdName", &one.pd_name, faults);
            partition("persistentDisk", one.partition, faults);
        }),
        source(&volume.aws_elastic_block_store, "awsElasticBlockStore", move |one, faults| {
            need("awsElasticBlockStore.volumeID", &one.volume_id, faults);
            partition("awsElasticBlockStore", one.partition, faults);
        }),
        source(&volume.nfs, "nfs", move |one, faults| check_nfs(one, &format!("{at}.nfs"), faults)),
        source(&volume.iscsi, "iscsi", move |one, faults| {
            check_iscsi(one, &format!("{at}.iscsi"), faults);
        }),
        source(&volume.glusterfs, "glusterfs", move |one, faults| {
            need("glusterfs.endpoints", &one.endpoints, faults);
            need("glusterfs.path", &one.path, faults);
        }),
        source(&volume.flocker, "flocker", move |one, faults| {
            check_flocker(one, &format!("{at}.flocker"), faults);
        }),
        source(&volume.rbd, "rbd", move |one, faults| {
            some("rbd.monitors", &one.monitors, faults);
            need("rbd.image", &one.image, faults);
        }),
        source(&volume.cinder, "cinder", move |one, faults| {
            need("cinder.volumeID", &one.volume_id, faults);
            check_secret(one.secret_ref.as_ref(), &format!("{at}.cinder"), faults);
        }),
        source(&volume.cephfs, "cephFS", move |one, faults| {
            some("cephfs.monitors", &one.monitors, faults);
        }),
        source(&volume.quobyte, "quobyte", move |one, faults| {
            check_quobyte(one, &format!("{at}.quobyte"), faults);
        }),
        source(&volume.fc, "fc", move |one, faults| check_fc(one, &format!("{at}.fc"), faults)),
        source(&volume.flex_volume, "flexVolume", move |one, faults| {
            need("flexVolume.driver", &one.driver, faults);
            for (key, _) in one.options.iter().flatten() {
                let domain = key.split_once('/').map_or(key.as_str(), |(domain, _)| domain);
                let domain = format!(".{}", domain.to_lowercase());
                if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                    let at = format!("{at}.flexVolume.options[{key}]");
                    let why = "kubernetes.io and k8s.io namespaces are reserved";
                    faults.push(FieldError::invalid(at, quote(key), why));
                }
            }
        }),
        source(&volume.azure_file, "azureFile", move |one, faults| {
            need("azureFile.secretName", &one.secret_name, faults);
            need("azureFile.shareName", &one.share_name, faults);
        }),
        source(&volume.vsphere_volume, "vsphereVolume", move |one, faults| {
            need("vsphereVolume.volumePath", &one.volume_path, faults);
        }),
        source(&volume.photon_persistent_disk, "photonPersistentDisk", move |one, faults| {
            need("photonPersistentDisk.pdID", &one.pd_id, faults);
        }),
        source(&volume.portworx_volume, "portworxVolume", move |one, faults| {
            need("portworxVolume.volumeID", &one.volume_id, faults);
        }),
        source(&volume.azure_disk, "azureDisk", move |one, faults| {
            check_azure_disk(one, &format!("{at}.azureDisk"), faults);
        }),
        source(&volume.storageos, "storageos", move |one, faults| {
            check_storage_os(one, &format!("{at}.storageos"), faults);
        }),
        source(&volume.scale_io, "scaleIO", move |one, faults| {
            need("scaleIO.gateway", &one.gateway, faults);
            need("scaleIO.system", &one.system, faults);
            need("scaleIO.volumeName", one.volume_name.as_deref().unwrap_or_default(), faults);
        }),
    ]
}

fn check_nfs(one: &NFSVolumeSource, at: &str, faults: &mut FieldErrors) {
    check_given(&format!("{at}.server"), &one.server, faults);
    let path_at = format!("{at}.path");
    check_given(&path_at, &one.path, faults);
    if !one.path.starts_with('/') {
        faults.push(FieldError::invalid(path_at, quote(&one.path), "must be an absolute path"));
    }
}

fn check_iscsi(one: &ISCSIVolumeSource, at: &str, faults: &mut FieldErrors) {
    check_given(&format!("{at}.targetPortal"), &one.target_portal, faults);
    let name_at = format!("{at}.iqn");
    if check_given(&name_at, &one.iqn, faults) {
        check_initiator(&one.iqn, &name_at, faults);
    }
    check_lun(one.lun, at, faults);
    let uses_chap = one.chap_auth_discovery == Some(true) || one.chap_auth_session == Some(true);
    if uses_chap && one.secret_ref.is_none() {
        faults.push(FieldError::required(format!("{at}.secretRef"), ""));
    }
    if let Some(name) = &one.initiator_name {
        check_initiator(name, &format!("{at}.initiatorname"), faults);
    }
}

fn check_lun(lun: i32, at: &str, faults: &mut FieldErrors) {
    if !(0..=255).contains(&lun) {
        let why = "must be between 0 and 255, inclusive";
        faults.push(FieldError::invalid(format!("{at}.lun"), lun, why));
    }
}

/// Checks the name of an iSCSI node.
fn check_initiator(name: &str, at: &str, faults: &mut FieldErrors) {
    let is_alphanumeric = |text: &str, length: usize| {
        text.len() == length + 1 && text.bytes().skip(1).all(|byte| byte.is_ascii_alphanumeric())
    };
    let is_valid = match (name.get(..3), name.get(3..)) {
        (Some("iqn"), Some(_)) => is_iqn(name),
        (Some("eui"), Some(rest)) => is_alphanumeric(rest, 16),
        (Some("naa"), Some(rest)) => is_alphanumeric(rest, 32),
        _ => {
            let why = "must be valid format starting with iqn, eui, or naa";
            return faults.push(FieldError::invalid(at, quote(name), why));
        }
    };
    if !is_valid {
        faults.push(FieldError::invalid(at, quote(name), "must be valid format"));
    }
}

/// Whether a name ends with `iqn.YYYY-MM.DOMAIN:IDENTIFIER`.
fn is_iqn(name: &str) -> bool {
    let is_one = |rest: &str| {
        let Some((date, rest)) = rest.get(..7).zip(rest.get(7..)) else { return false };
        let is_date = date.bytes().enumerate().all(|(index, byte)| match index {
            4 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
        let Some((domain, identifier)) =
            rest.strip_prefix('.').and_then(|rest| rest.split_once(':'))
        else {
            return false;
        };
        let is_domain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        let is_other = |one: char| !one.is_ascii_whitespace() && !",;*&$|".contains(one);
        is_date
            && !domain.is_empty()
            && domain.bytes().all(is_domain)
            && !identifier.is_empty()
            && identifier.chars().all(is_other)
    };
    name.match_indices("iqn.").any(|(start, _)| is_one(&name[start + 4..]))
}

fn check_flocker(one: &FlockerVolumeSource, at: &str, faults: &mut FieldErrors) {
    let (name, uuid) = (
        one.dataset_name.as_deref().unwrap_or_default(),
        one.dataset_uuid.as_deref().unwrap_or_default(),
    );
    if name.is_empty() && uuid.is_empty() {
        faults.push(FieldError::required(at, "one of datasetName and datasetUUID is required"));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        faults.push(FieldError::invalid(at, quote("resource"), why));
    }
    if name.contains('/') {
        let at = format!("{at}.datasetName");
        faults.push(FieldError::invalid(at, quote(name), "must not contain '/'"));
    }
}

fn check_secret(secret: Option<&LocalObjectReference>, at: &str, faults: &mut FieldErrors) {
    if let Some(secret) = secret {
        check_given(&format!("{at}.secretRef.name"), &secret.name, faults);
    }
}

fn check_quobyte(one: &QuobyteVolumeSource, at: &str, faults: &mut FieldErrors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry_at = format!("{at}.registry");
    if one.registry.is_empty() {
        faults.push(FieldError::required(registry_at, PAIRS));
    } else if one.tenant.as_ref().is_some_and(|tenant| tenant.len() >= 65) {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        faults.push(FieldError::required(format!("{at}.tenant"), why));
    } else {
        let is_pair = |pair: &&str| match pair.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").is_some_and(|(host, port)| {
                !host.contains(['[', ']']) && !port.contains([':', '[', ']'])
            }),
            None => pair.matches(':').count() == 1 && !pair.contains(['[', ']']),
        };
        for _ in one.registry.split(',').filter(|pair| !is_pair(pair)) {
            faults.push(FieldError::invalid(&*registry_at, quote(&one.registry), PAIRS));
        }
    }
    check_given(&format!("{at}.volume"), &one.volume, faults);
}

fn check_fc(one: &FCVolumeSource, at: &str, faults: &mut FieldErrors) {
    let targets = one.target_wwns.as_deref().unwrap_or_default();
    let has_ids = one.wwids.as_ref().is_some_and(|ids| !ids.is_empty());
    let targets_at = format!("{at}.targetWWNs");
    if targets.is_empty() {
        if !has_ids {
            let why = "must specify either targetWWNs or wwids, but not both";
            faults.push(FieldError::required(targets_at, why));
        }
        return;
    }
    if has_ids {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        faults.push(FieldError::invalid(targets_at, to_json(&targets), why));
    }
    match one.lun {
        None => {
            let why = "lun is required if targetWWNs is specified";
            faults.push(FieldError::required(format!("{at}.lun"), why));
        }
        Some(lun) => check_lun(lun, at, faults),
    }
}

fn check_azure_disk(one: &AzureDiskVolumeSource, at: &str, faults: &mut FieldErrors) {
    check_given(&format!("{at}.diskName"), &one.disk_name, faults);
    let uri_at = format!("{at}.diskURI");
    check_given(&uri_at, &one.disk_uri, faults);
    let modes = ["None", "ReadOnly", "ReadWrite"];
    check_one_of(format!("{at}.cachingMode"), one.caching_mode.as_ref(), &modes, faults);
    let kinds = ["Dedicated", "Managed", "Shared"];
    check_one_of(format!("{at}.kind"), one.kind.as_ref(), &kinds, faults);
    let (beginning, example) = match one.kind.as_deref() {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !one.disk_uri.starts_with(beginning) {
        faults.push(FieldError::not_supported(uri_at, quote(&one.disk_uri), &[example]));
    }
}

fn check_storage_os(one: &StorageOSVolumeSource, at: &str, faults: &mut FieldErrors) {
    let name_at = format!("{at}.volumeName");
    let name = one.volume_name.as_deref().unwrap_or_default();
    if check_given(&name_at, name, faults) {
        check_with(&name_at, name, names::check_dns_1123_label, faults);
    }
    let namespace = one.volume_namespace.as_deref().unwrap_or_default();
    if !namespace.is_empty() {
        let at = format!("{at}.volumeNamespace");
        check_with(&at, namespace, names::check_dns_1123_label, faults);
    }
    check_secret(one.secret_ref.as_ref(), at, faults);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_iscsi_nodes() {
        for (name, count) in [
            ("iqn.2015-02.example.com:storage", 0),
            ("eui.0123456789abcdef", 0),
            ("naa.0123456789abcdef0123456789abcdef", 0),
            ("iqn.2015.example.com", 1),
            ("eui.0", 1),
            ("abc", 1),
            ("", 1),
        ] {
            let mut faults = Vec::new();
            check_initiator(name, "f", &mut faults);
            assert_eq!(faults.len(), count, "{name}");
        }
    }
}
