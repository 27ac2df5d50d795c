//! The sources of volumes whose drivers were formerly part of Kubernetes.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, FCVolumeSource, FlexPersistentVolumeSource, FlockerVolumeSource,
    GlusterfsPersistentVolumeSource, ISCSIPersistentVolumeSource, PersistentVolumeSpec,
    QuobyteVolumeSource, StorageOSPersistentVolumeSource,
};

use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote, to_json};

const UNITS: &str = "must be between 0 and 255, inclusive";

/// Checks the source of this name, if it is one of these.
pub(super) fn check(
    volume: &str,
    spec: &PersistentVolumeSpec,
    name: &str,
    faults: &mut FieldErrors,
) -> Option<()> {
    match name {
        "gcePersistentDisk" => {
            let disk = spec.gce_persistent_disk.as_ref()?;
            let at = "spec.persistentDisk";
            check_required(at, &[("pdName", &disk.pd_name)], faults);
            check_partition(at, disk.partition, faults);
        }
        "awsElasticBlockStore" => {
            let disk = spec.aws_elastic_block_store.as_ref()?;
            let at = "spec.awsElasticBlockStore";
            check_required(at, &[("volumeID", &disk.volume_id)], faults);
            check_partition(at, disk.partition, faults);
        }
        "glusterfs" => check_glusterfs(spec.glusterfs.as_ref()?, faults),
        "flocker" => check_flocker(spec.flocker.as_ref()?, faults),
        "rbd" => {
            let rbd = spec.rbd.as_ref()?;
            check_monitors("spec.rbd", &rbd.monitors, faults);
            check_required("spec.rbd", &[("image", &rbd.image)], faults);
        }
        "quobyte" => check_quobyte(spec.quobyte.as_ref()?, faults),
        "cephFS" => check_monitors("spec.cephfs", &spec.cephfs.as_ref()?.monitors, faults),
        "iscsi" => check_iscsi(volume, spec.iscsi.as_ref()?, faults),
        "cinder" => {
            let cinder = spec.cinder.as_ref()?;
            check_required("spec.cinder", &[("volumeID", &cinder.volume_id)], faults);
            let secret = cinder.secret_ref.as_ref();
            let secret = secret.map(|secret| (secret.name.as_ref(), secret.namespace.as_ref()));
            check_secret("spec.cinder", secret, faults);
        }
        "fc" => check_fibre_channel(spec.fc.as_ref()?, faults),
        "flexVolume" => check_flexible(spec.flex_volume.as_ref()?, faults),
        "azureFile" => {
            let file = spec.azure_file.as_ref()?;
            let mut fields =
                vec![("secretName", &file.secret_name), ("shareName", &file.share_name)];
            fields.extend(file.secret_namespace.as_ref().map(|one| ("secretNamespace", one)));
            check_required("spec.azureFile", &fields, faults);
        }
        "azureDisk" => check_azure_disk(spec.azure_disk.as_ref()?, faults),
        "vsphereVolume" => {
            let path = &spec.vsphere_volume.as_ref()?.volume_path;
            check_required("spec.vsphereVolume", &[("volumePath", path)], faults);
        }
        "photonPersistentDisk" => {
            let id = &spec.photon_persistent_disk.as_ref()?.pd_id;
            check_required("spec.photonPersistentDisk", &[("pdID", id)], faults);
        }
        "portworxVolume" => {
            let id = &spec.portworx_volume.as_ref()?.volume_id;
            check_required("spec.portworxVolume", &[("volumeID", id)], faults);
        }
        "scaleIO" => {
            let source = spec.scale_io.as_ref()?;
            let name = source.volume_name.clone().unwrap_or_default();
            let fields =
                [("gateway", &source.gateway), ("system", &source.system), ("volumeName", &name)];
            check_required("spec.scaleIO", &fields, faults);
        }
        "storageos" => check_storage_os(spec.storageos.as_ref()?, faults),
        _ => return None,
    }
    Some(())
}

/// Checks that none of these fields is empty.
fn check_required(at: &str, fields: &[(&str, &String)], faults: &mut FieldErrors) {
    let empty = fields.iter().filter(|(_, value)| value.is_empty());
    faults.extend(empty.map(|(field, _)| FieldError::required(format!("{at}.{field}"), "")));
}

fn check_monitors(at: &str, monitors: &[String], faults: &mut FieldErrors) {
    if monitors.is_empty() {
        faults.push(FieldError::required(format!("{at}.monitors"), ""));
    }
}

fn check_partition(at: &str, partition: Option<i32>, faults: &mut FieldErrors) {
    if let Some(partition) = partition.filter(|partition| !(0..=255).contains(partition)) {
        let why = "must be between 1 and 255, inclusive";
        faults.push(FieldError::invalid(format!("{at}.partition"), partition, why));
    }
}

/// Checks that a secret, if it is set, has a name and a namespace.
fn check_secret(
    at: &str,
    secret: Option<(Option<&String>, Option<&String>)>,
    faults: &mut FieldErrors,
) {
    let Some((name, namespace)) = secret else { return };
    let nothing = String::new();
    let fields = [("name", name.unwrap_or(&nothing)), ("namespace", namespace.unwrap_or(&nothing))];
    check_required(&format!("{at}.secretRef"), &fields, faults);
}

fn check_glusterfs(source: &GlusterfsPersistentVolumeSource, faults: &mut FieldErrors) {
    const AT: &str = "spec.glusterfs.endpointsNamespace";
    let fields = [("endpoints", &source.endpoints), ("path", &source.path)];
    check_required("spec.glusterfs", &fields, faults);
    match source.endpoints_namespace.as_deref() {
        Some("") => {
            let why = "if the endpointnamespace is set, it must be a valid namespace name";
            faults.push(FieldError::invalid(AT, quote(""), why));
        }
        Some(name) => check_with(AT, name, names::check_dns_1123_label, faults),
        None => {}
    }
}

fn check_flocker(source: &FlockerVolumeSource, faults: &mut FieldErrors) {
    const AT: &str = "spec.flocker";
    let name = source.dataset_name.as_deref().unwrap_or_default();
    let uuid = source.dataset_uuid.as_deref().unwrap_or_default();
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => {
            let why = "one of datasetName and datasetUUID is required";
            faults.push(FieldError::required(AT, why));
        }
        (false, false) => {
            let why = "datasetName and datasetUUID can not be specified simultaneously";
            faults.push(FieldError::invalid(AT, quote("resource"), why));
        }
        _ => {}
    }
    if name.contains('/') {
        let at = format!("{AT}.datasetName");
        faults.push(FieldError::invalid(at, quote(name), "must not contain '/'"));
    }
}

fn check_quobyte(source: &QuobyteVolumeSource, faults: &mut FieldErrors) {
    const AT: &str = "spec.quobyte.registry";
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = &source.registry;
    if registry.is_empty() {
        faults.push(FieldError::required(AT, PAIRS));
    } else if source.tenant.as_ref().is_some_and(|tenant| tenant.len() > 64) {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        faults.push(FieldError::required("spec.quobyte.tenant", why));
    } else {
        let wrong = registry.split(',').filter(|pair| !is_host_and_port(pair));
        faults.extend(wrong.map(|_| FieldError::invalid(AT, quote(registry), PAIRS)));
    }
    check_required("spec.quobyte", &[("volume", &source.volume)], faults);
}

/// Whether Go can split a string into a host and a port.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, _)) = text.rsplit_once(':') else { return false };
    match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').is_some_and(|host| !host.contains(['[', ']'])),
        None => !host.contains([':', '[', ']']),
    }
}

fn check_iscsi(volume: &str, source: &ISCSIPersistentVolumeSource, faults: &mut FieldErrors) {
    const AT: &str = "spec.iscsi";
    let portal = &source.target_portal;
    check_required(AT, &[("targetPortal", portal)], faults);
    let initiator = source.initiator_name.as_deref();
    if initiator.is_some() && volume.len() + 1 + portal.len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        faults.push(FieldError::invalid(format!("{AT}.targetportal"), quote(portal), why));
    }
    check_required(AT, &[("iqn", &source.iqn)], faults);
    if !source.iqn.is_empty() {
        check_iscsi_name(&format!("{AT}.iqn"), &source.iqn, faults);
    }
    if !(0..=255).contains(&source.lun) {
        faults.push(FieldError::invalid(format!("{AT}.lun"), source.lun, UNITS));
    }
    let is_authenticated =
        source.chap_auth_discovery == Some(true) || source.chap_auth_session == Some(true);
    match &source.secret_ref {
        None if is_authenticated => {
            faults.push(FieldError::required(format!("{AT}.secretRef"), ""));
        }
        Some(secret) if secret.name.as_ref().is_none_or(String::is_empty) => {
            faults.push(FieldError::required(format!("{AT}.secretRef.name"), ""));
        }
        _ => {}
    }
    if let Some(initiator) = initiator {
        check_iscsi_name(&format!("{AT}.initiatorname"), initiator, faults);
    }
}

fn check_iscsi_name(at: &str, name: &str, faults: &mut FieldErrors) {
    // The prefix is followed by one more character.
    let is_number = |length: usize| {
        let rest: Vec<char> = name.chars().skip(4).collect();
        rest.len() == length && rest.iter().all(char::is_ascii_alphanumeric)
    };
    let is_name = match name.get(..3) {
        Some("iqn") => is_qualified(name),
        Some("eui") => is_number(16),
        Some("naa") => is_number(32),
        _ => false,
    };
    if !is_name {
        faults.push(FieldError::invalid(at, quote(name), "must be valid format"));
    }
}

/// Whether a name has the format `iqn.2001-04.com.example:storage`.
fn is_qualified(name: &str) -> bool {
    let Some((date, name)) = name.strip_prefix("iqn.").and_then(|rest| rest.split_at_checked(7))
    else {
        return false;
    };
    let is_date = date.bytes().enumerate().all(|(index, byte)| match index {
        4 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let Some((authority, unit)) = name.strip_prefix('.').and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let is_authority = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let is_unit = |c: char| !c.is_ascii_whitespace() && !",;*&$|".contains(c);
    is_date
        && !authority.is_empty()
        && authority.chars().all(is_authority)
        && !unit.is_empty()
        && unit.chars().all(is_unit)
}

fn check_fibre_channel(source: &FCVolumeSource, faults: &mut FieldErrors) {
    const NAMES: &str = "spec.fc.targetWWNs";
    let names = source.target_wwns.as_deref().unwrap_or_default();
    let ids = source.wwids.as_deref().unwrap_or_default();
    if names.is_empty() && ids.is_empty() {
        let why = "must specify either targetWWNs or wwids, but not both";
        faults.push(FieldError::required(NAMES, why));
    }
    if names.is_empty() {
        return;
    }
    if !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        faults.push(FieldError::invalid(NAMES, to_json(&names), why));
    }
    match source.lun {
        None => {
            let why = "lun is required if targetWWNs is specified";
            faults.push(FieldError::required("spec.fc.lun", why));
        }
        Some(lun) if !(0..=255).contains(&lun) => {
            faults.push(FieldError::invalid("spec.fc.lun", lun, UNITS));
        }
        Some(_) => {}
    }
}

/// Checks that the options of a flexible volume are not in the namespaces of Kubernetes.
fn check_flexible(source: &FlexPersistentVolumeSource, faults: &mut FieldErrors) {
    const AT: &str = "spec.flexVolume";
    check_required(AT, &[("driver", &source.driver)], faults);
    for key in source.options.iter().flatten().map(|(key, _)| key) {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if [".kubernetes.io", ".k8s.io"].iter().any(|reserved| namespace.ends_with(reserved)) {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            faults.push(FieldError::invalid(format!("{AT}.options[{key}]"), quote(key), why));
        }
    }
}

fn check_azure_disk(source: &AzureDiskVolumeSource, faults: &mut FieldErrors) {
    const AT: &str = "spec.azureDisk";
    const MANAGED: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str =
        "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let fields = [("diskName", &source.disk_name), ("diskURI", &source.disk_uri)];
    check_required(AT, &fields, faults);
    let modes = ["None", "ReadOnly", "ReadWrite"];
    check_one_of(format!("{AT}.cachingMode"), source.caching_mode.as_ref(), &modes, faults);
    let kinds = ["Dedicated", "Managed", "Shared"];
    check_one_of(format!("{AT}.kind"), source.kind.as_ref(), &kinds, faults);
    let Some(kind) = source.kind.as_deref() else { return };
    let (start, form) = match kind {
        "Managed" => ("/subscriptions/", MANAGED),
        _ => ("https://", BLOB),
    };
    if !source.disk_uri.starts_with(start) {
        let at = format!("{AT}.diskURI");
        faults.push(FieldError::not_supported(at, quote(&source.disk_uri), &[form]));
    }
}

fn check_storage_os(source: &StorageOSPersistentVolumeSource, faults: &mut FieldErrors) {
    const AT: &str = "spec.storageos";
    let at_name = format!("{AT}.volumeName");
    match source.volume_name.as_deref().unwrap_or_default() {
        "" => faults.push(FieldError::required(at_name, "")),
        name => check_with(&at_name, name, names::check_dns_1123_label, faults),
    }
    if let Some(namespace) = source.volume_namespace.as_deref().filter(|name| !name.is_empty()) {
        let at = format!("{AT}.volumeNamespace");
        check_with(&at, namespace, names::check_dns_1123_label, faults);
    }
    let secret = source.secret_ref.as_ref();
    let secret = secret.map(|secret| (secret.name.as_ref(), secret.namespace.as_ref()));
    check_secret(AT, secret, faults);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_iscsi() {
        let is_name = |name: &str| {
            let mut faults = Vec::new();
            check_iscsi_name("f", name, &mut faults);
            faults.is_empty()
        };
        for name in ["iqn.2001-04.com.example:storage:disk", "eui.0123456789abcdef"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "iq", "iqn.2001-04.com.example", "iqn.2001-4.a:b", "eui.1", "naa.x", "x"] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        for (text, is_pair) in
            [("a:1", true), ("[::1]:1", true), ("a", false), ("::1:1", false), (":", true)]
        {
            assert_eq!(is_host_and_port(text), is_pair, "{text}");
        }
    }
}
