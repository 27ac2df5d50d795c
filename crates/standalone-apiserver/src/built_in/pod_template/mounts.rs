//! Volume mounts and block devices of containers.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{Container, VolumeDevice, VolumeMount};

use super::paths::check_descending;
use super::scope::Scope;
use crate::built_in::checks::{FieldErrors, quote};

/// Validates the mounts and the devices of a container.
pub(crate) fn validate(
    container: &Container,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let devices = container.volume_devices.as_deref().unwrap_or_default();
    check_mounts(mounts, devices, container, scope, &format!("{at}.volumeMounts"), faults);
    check_devices(devices, mounts, scope, &format!("{at}.volumeDevices"), faults);
}

fn check_mounts(
    mounts: &[VolumeMount],
    devices: &[VolumeDevice],
    container: &Container,
    scope: &Scope<'_>,
    list: &str,
    faults: &mut FieldErrors,
) {
    let mut paths = BTreeSet::new();
    let devices: BTreeMap<&str, &str> =
        devices.iter().map(|one| (one.name.as_str(), one.device_path.as_str())).collect();
    for (index, mount) in mounts.iter().enumerate() {
        let name_at = format!("{list}[{index}].name");
        let path_at = format!("{list}[{index}].mountPath");
        let (name, path) = (mount.name.as_str(), mount.mount_path.as_str());
        if name.is_empty() {
            faults.push(FieldError::required(&*name_at, ""));
        }
        if !scope.volumes.contains_key(name) {
            faults.push(FieldError::not_found(&*name_at, quote(name)));
        }
        if path.is_empty() {
            faults.push(FieldError::required(&*path_at, ""));
        }
        if !paths.insert(path) {
            faults.push(FieldError::invalid(&*path_at, quote(path), "must be unique"));
        }
        if devices.contains_key(name) {
            let why = "must not already exist in volumeDevices";
            faults.push(FieldError::invalid(name_at, quote(name), why));
        }
        if devices.values().any(|device| *device == path) {
            let why = "must not already exist as a path in volumeDevices";
            faults.push(FieldError::invalid(path_at, quote(path), why));
        }
        check_options(mount, container, list, index, faults);
    }
}

/// Validates the options of a mount. Most errors have the path of the list.
fn check_options(
    mount: &VolumeMount,
    container: &Container,
    list: &str,
    index: usize,
    faults: &mut FieldErrors,
) {
    let sub_path = mount.sub_path.as_deref().unwrap_or_default();
    if !sub_path.is_empty() {
        check_descending(&format!("{list}.subPath"), sub_path, faults);
    }
    let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            let at = format!("{list}[{index}].subPathExpr");
            let why = "subPathExpr and subPath are mutually exclusive";
            faults.push(FieldError::invalid(at, quote(expression), why));
        }
        check_descending(&format!("{list}.subPathExpr"), expression, faults);
    }
    let propagation = mount.mount_propagation.as_deref();
    if let Some(propagation) = propagation {
        let at = format!("{list}.mountPropagation");
        let all = ["Bidirectional", "HostToContainer", "None"];
        if !all.contains(&propagation) {
            faults.push(FieldError::not_supported(&*at, quote(propagation), &all));
        }
        let is_privileged =
            container.security_context.as_ref().and_then(|context| context.privileged);
        if propagation == "Bidirectional" && is_privileged != Some(true) {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            faults.push(FieldError::forbidden(at, why));
        }
    }
    let at = format!("{list}.recursiveReadOnly");
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.read_only != Some(true) {
                let why = "may only be specified when readOnly is true";
                faults.push(FieldError::forbidden(&*at, why));
            }
            if propagation.is_some_and(|propagation| propagation != "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                faults.push(FieldError::forbidden(at, why));
            }
        }
        Some(other) => {
            let all = ["Disabled", "Enabled", "IfPossible"];
            faults.push(FieldError::not_supported(at, quote(other), &all));
        }
    }
}

fn check_devices(
    devices: &[VolumeDevice],
    mounts: &[VolumeMount],
    scope: &Scope<'_>,
    list: &str,
    faults: &mut FieldErrors,
) {
    let mounts: BTreeMap<&str, &str> =
        mounts.iter().map(|one| (one.name.as_str(), one.mount_path.as_str())).collect();
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in devices.iter().enumerate() {
        let (name, path) = (device.name.as_str(), device.device_path.as_str());
        let mut name_errors = Vec::new();
        let volume = scope.volumes.get(name);
        if name.is_empty() {
            faults.push(FieldError::required(format!("{list}[{index}].name"), ""));
        } else if !names.insert(name) {
            name_errors.push("must be unique");
        }
        let is_claim = volume
            .map(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
        if is_claim == Some(false) {
            name_errors.push(
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            );
        }
        let invalid = |field: &str, value: &str, why: &str| {
            FieldError::invalid(format!("{list}[{index}].{field}"), quote(value), why)
        };
        faults.extend(name_errors.into_iter().map(|why| invalid("name", name, why)));
        if volume.is_none() {
            faults.push(FieldError::not_found(format!("{list}[{index}].name"), quote(name)));
        }
        if path.is_empty() {
            faults.push(FieldError::required(format!("{list}[{index}].devicePath"), ""));
        }
        if paths.contains(path) {
            faults.push(invalid("devicePath", path, "must be unique"));
        }
        if path.split('/').any(|element| element == "..") {
            faults.push(invalid("devicePath", path, "can not contain backsteps ('..')"));
        } else {
            paths.insert(path);
        }
        if mounts.contains_key(name) {
            faults.push(invalid("name", name, "must not already exist in volumeMounts"));
        }
        if mounts.values().any(|mount| *mount == path) {
            let why = "must not already exist as a path in volumeMounts";
            faults.push(invalid("devicePath", path, why));
        }
    }
}
