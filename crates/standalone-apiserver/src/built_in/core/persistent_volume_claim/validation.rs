//! The validation of PersistentVolumeClaims, and of templates of claims.

use std::collections::BTreeMap;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
    TypedObjectReference,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::CLASS_ANNOTATION;
use crate::built_in::amounts::whole_value;
use crate::built_in::checks::{
    FieldErrors, check_immutable, check_one_of, check_with, quote, to_json,
};
use crate::built_in::label_selector;

/// The resource that a claim requests.
pub(super) const STORAGE: &str = "storage";

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const FOR_ONE_POD: &str = "ReadWriteOncePod";

pub(super) fn validate(
    claim: &PersistentVolumeClaim,
    old: Option<&PersistentVolumeClaim>,
) -> FieldErrors {
    let mut faults = Vec::new();
    validate_spec(claim.spec.as_ref(), "spec", &mut faults);
    if let Some(old) = old {
        validate_change(claim, old, &mut faults);
    }
    faults
}

/// The resize states of a claim.
const RESIZES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizePending",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
];

/// Validates the status of a claim.
pub(super) fn validate_status(claim: &PersistentVolumeClaim) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(status) = &claim.status else { return faults };
    for (name, amount) in status.capacity.iter().flatten() {
        check_amount(&format!("status.capacity[{name}]"), amount, &mut faults);
    }
    const STATUSES: &str = "status.allocatedResourceStatuses";
    let mut states = RESIZES;
    states.sort_unstable();
    for (name, state) in status.allocated_resource_statuses.iter().flatten() {
        check_resource_name(name, STATUSES, &mut faults);
        if !RESIZES.contains(&state.as_str()) {
            faults.push(FieldError::not_supported(STATUSES, quote(name), &states));
        }
    }
    const AMOUNTS: &str = "status.allocatedResources";
    for (name, amount) in status.allocated_resources.iter().flatten() {
        if check_resource_name(name, AMOUNTS, &mut faults) {
            check_amount(&format!("{AMOUNTS}[{name}]"), amount, &mut faults);
        }
    }
    faults
}

/// Checks that an amount is not negative.
fn check_amount(at: &str, amount: &Amount, faults: &mut FieldErrors) {
    if let Some(amount) = Quantity::parse(&amount.0).ok().filter(|amount| amount.nanos() < 0) {
        let value = whole_value(amount);
        faults.push(FieldError::invalid(at, value, "must be a valid resource quantity"));
    }
}

/// Checks the name of a resource. `storage` is the only native resource of a claim. Returns whether the name is valid.
fn check_resource_name(name: &str, at: &str, faults: &mut FieldErrors) -> bool {
    let before = faults.len();
    check_with(at, name, names::check_label_key, faults);
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    if faults.len() == before && is_native && name != STORAGE {
        faults.push(FieldError::not_supported(at, quote(name), &[STORAGE]));
    }
    faults.len() == before
}

/// Validates the spec of a claim, or of a template of claims.
pub(crate) fn validate_spec(
    spec: Option<&PersistentVolumeClaimSpec>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let nothing = PersistentVolumeClaimSpec::default();
    let spec = spec.unwrap_or(&nothing);
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        let why = "at least 1 access mode is required";
        faults.push(FieldError::required(format!("{at}.accessModes"), why));
    }
    if let Some(selector) = &spec.selector {
        label_selector::validate(selector, &format!("{at}.selector"), faults);
    }
    check_access_modes(modes, &format!("{at}.accessModes"), faults);
    check_size(asked(spec), &format!("{at}.resources[{STORAGE}]"), faults);
    let class = spec.storage_class_name.as_deref();
    check_class(class, &format!("{at}.storageClassName"), faults);
    let modes = ["Block", "Filesystem"];
    check_one_of(format!("{at}.volumeMode"), spec.volume_mode.as_ref(), &modes, faults);
    check_sources(spec, at, faults);
    let class = spec.volume_attributes_class_name.as_deref();
    check_class(class, &format!("{at}.volumeAttributesClassName"), faults);
}

/// Validates the access modes of a volume.
pub(crate) fn check_access_modes(modes: &[String], at: &str, faults: &mut FieldErrors) {
    for mode in modes {
        check_one_of(at, Some(mode), &MODES, faults);
    }
    let is_shared = |mode: &String| mode != FOR_ONE_POD && MODES.contains(&mode.as_str());
    if modes.iter().any(|mode| mode == FOR_ONE_POD) && modes.iter().any(is_shared) {
        let why = "may not use ReadWriteOncePod with other access modes";
        faults.push(FieldError::forbidden(at, why));
    }
}

fn asked(spec: &PersistentVolumeClaimSpec) -> Option<&Amount> {
    spec.resources.as_ref()?.requests.as_ref()?.get(STORAGE)
}

fn check_size(size: Option<&Amount>, at: &str, faults: &mut FieldErrors) {
    let Some(size) = size else { return faults.push(FieldError::required(at, "")) };
    if let Some(size) = Quantity::parse(&size.0).ok().filter(|size| size.nanos() <= 0) {
        let why = "must be greater than zero";
        faults.push(FieldError::invalid(at, quote(&size.to_string()), why));
    }
}

fn check_class(class: Option<&str>, at: &str, faults: &mut FieldErrors) {
    if let Some(class) = class.filter(|class| !class.is_empty()) {
        check_with(at, class, names::check_dns_1123_subdomain, faults);
    }
}

/// Validates the two fields for the data source, and checks that they are consistent.
fn check_sources(spec: &PersistentVolumeClaimSpec, at: &str, faults: &mut FieldErrors) {
    let (older, newer) = (spec.data_source.as_ref(), spec.data_source_ref.as_ref());
    if let Some(TypedLocalObjectReference { api_group, kind, name }) = older {
        let at = format!("{at}.dataSource");
        check_source((api_group.as_deref(), kind, name), &at, faults);
    }
    let mut is_elsewhere = false;
    if let Some(TypedObjectReference { api_group, kind, name, namespace }) = newer {
        let at = format!("{at}.dataSourceRef");
        check_source((api_group.as_deref(), kind, name), &at, faults);
        if let Some(namespace) = namespace.as_ref().filter(|namespace| !namespace.is_empty()) {
            is_elsewhere = true;
            let at = format!("{at}.namespace");
            check_with(&at, namespace, names::check_dns_1123_label, faults);
        }
    }
    let (Some(older), Some(newer)) = (older, newer) else { return };
    // In this error, kube-apiserver reports the path of the field as the value.
    let value = "{}";
    if is_elsewhere {
        let why = "may not be specified when dataSourceRef.namespace is specified";
        faults.push(FieldError::invalid(at, value, why));
    } else if (&older.api_group, &older.kind, &older.name)
        != (&newer.api_group, &newer.kind, &newer.name)
    {
        faults.push(FieldError::invalid(at, value, "must match dataSourceRef"));
    }
}

fn check_source(
    (group, kind, name): (Option<&str>, &str, &str),
    at: &str,
    faults: &mut FieldErrors,
) {
    for (field, value) in [("name", name), ("kind", kind)] {
        if value.is_empty() {
            faults.push(FieldError::required(format!("{at}.{field}"), ""));
        }
    }
    let group = group.unwrap_or_default();
    if !group.is_empty() {
        check_with(&format!("{at}.apiGroup"), group, names::check_dns_1123_subdomain, faults);
    } else if kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        faults.push(FieldError::invalid(at, quote(kind), why));
    }
}

/// Validates a change. In a bound claim, the size and the VolumeAttributesClass may change; in other claims, the volume
/// may be set once.
fn validate_change(
    claim: &PersistentVolumeClaim,
    old: &PersistentVolumeClaim,
    faults: &mut FieldErrors,
) {
    let nothing = PersistentVolumeClaimSpec::default();
    let old_spec = old.spec.as_ref().unwrap_or(&nothing);
    let new_spec = claim.spec.as_ref().unwrap_or(&nothing);
    let (mut before, mut after) = (old_spec.clone(), new_spec.clone());
    if before.volume_name.as_ref().is_none_or(String::is_empty) {
        before.volume_name.clone_from(&after.volume_name);
    }
    let annotation = |claim: &PersistentVolumeClaim| {
        claim.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_ANNOTATION)).cloned()
    };
    let (old_class, new_class) = (annotation(old), annotation(claim));
    let moves_to_field = old_class.is_some()
        && old_spec.storage_class_name.is_none()
        && new_spec.storage_class_name == old_class
        && (new_class.is_none() || new_class == old_class);
    if moves_to_field {
        after.storage_class_name = None;
    } else {
        let at = format!("metadata.annotations.{CLASS_ANNOTATION}");
        let text = |class: Option<String>| class.unwrap_or_default();
        check_immutable(&at, &text(new_class.clone()), &text(old_class.clone()), faults);
        // A missing StorageClass may be set once.
        let is_unnamed = old_class.is_none() && old_spec.storage_class_name.is_none();
        if is_unnamed && new_spec.storage_class_name.is_some() {
            after.storage_class_name = None;
        }
    }
    let is_bound =
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    if is_bound {
        if let Some(requests) = after.resources.as_mut().and_then(|all| all.requests.as_mut()) {
            let size = asked(&before).cloned().unwrap_or(Amount("0".to_owned()));
            requests.insert(STORAGE.to_owned(), size);
        }
        after.volume_attributes_class_name.clone_from(&before.volume_attributes_class_name);
    }
    if after != before {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        faults.push(FieldError::forbidden("spec", why));
    }
    let nanos = |amount: Option<&Amount>| {
        amount.and_then(|amount| Quantity::parse(&amount.0).ok()).map_or(0, |size| size.nanos())
    };
    let capacity = old.status.as_ref().and_then(|status| status.capacity.as_ref()?.get(STORAGE));
    let (new_size, old_size) = (nanos(asked(new_spec)), nanos(asked(old_spec)));
    if new_size < old_size && new_size <= nanos(capacity) {
        let why = "field can not be less than status.capacity";
        faults.push(FieldError::forbidden("spec.resources.requests.storage", why));
    }
    if new_spec.volume_mode != old_spec.volume_mode {
        check_immutable("volumeMode", &new_spec.volume_mode, &old_spec.volume_mode, faults);
    }
    let had_attributes =
        old.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.as_ref());
    let class = new_spec.volume_attributes_class_name.as_deref();
    if had_attributes.is_some() && class != old_spec.volume_attributes_class_name.as_deref() {
        let why = match class {
            None => {
                "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"
            }
            Some("") => {
                "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"
            }
            Some(_) => return,
        };
        faults.push(FieldError::forbidden("spec.volumeAttributesClassName", why));
    }
}

/// Warnings about the deprecated annotation, and about sizes.
pub(super) fn warnings(claim: &PersistentVolumeClaim) -> Vec<String> {
    let annotations = claim.metadata.annotations.as_ref();
    let is_old = annotations.is_some_and(|all| all.contains_key(CLASS_ANNOTATION));
    let old = format!(
        "metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
    );
    let sizes = warnings_of_sizes(claim.spec.as_ref(), "spec");
    is_old.then_some(old).into_iter().chain(sizes).collect()
}

/// Warnings about sizes that are not a whole number of bytes, in the spec of a claim or of a template of claims.
pub(crate) fn warnings_of_sizes(spec: Option<&PersistentVolumeClaimSpec>, at: &str) -> Vec<String> {
    let Some(resources) = spec.and_then(|spec| spec.resources.as_ref()) else { return Vec::new() };
    let fractional = |list: &str, amounts: Option<&BTreeMap<String, Amount>>| {
        let amount = Quantity::parse(&amounts?.get(STORAGE)?.0).ok()?;
        (amount.nanos() % 1_000_000_000 != 0).then(|| {
            let amount = to_json(&amount.to_string());
            format!("{at}.resources.{list}[{STORAGE}]: fractional byte value {amount} is invalid, must be an integer")
        })
    };
    let requests = fractional("requests", resources.requests.as_ref());
    requests.into_iter().chain(fractional("limits", resources.limits.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object};
    use serde_json::{Value, json};

    fn claim(more: Value) -> Value {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    }

    #[test]
    fn invalid_persistent_volume_claims_are_rejected() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"accessModes": [], "resources": {}}),
                vec![
                    "spec.accessModes: Required value: at least 1 access mode is required",
                    "spec.resources[storage]: Required value",
                ],
            ),
            (
                json!({"accessModes": ["X", "ReadWriteOncePod", "ReadOnlyMany"]}),
                vec![
                    "spec.accessModes: Unsupported value: \"X\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
                    "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                ],
            ),
            (
                json!({"resources": {"requests": {"storage": "0"}}, "volumeMode": "X"}),
                vec![
                    "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
                    "spec.volumeMode: Unsupported value: \"X\": supported values: \"Block\", \"Filesystem\"",
                ],
            ),
            (
                json!({"dataSource": {"kind": "X", "name": ""}}),
                vec![
                    "spec.dataSource.name: Required value",
                    "spec.dataSource: Invalid value: \"X\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, claim(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn changes() {
        const IMMUTABLE: &str = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        const SMALLER: &str = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
        let sized = |size: &str| json!({"resources": {"requests": {"storage": size}}});
        let with = |phase: &str, more: Value| {
            let mut claim = claim(more);
            claim["status"] = json!({"phase": phase, "capacity": {"storage": "1Gi"}});
            claim
        };
        for (phase, old, new, expected) in [
            ("Pending", json!({}), json!({}), vec![]),
            ("Pending", json!({}), json!({"volumeName": "v"}), vec![]),
            ("Pending", json!({}), json!({"storageClassName": "s"}), vec![]),
            ("Pending", json!({}), sized("2Gi"), vec![IMMUTABLE]),
            ("Bound", json!({}), sized("2Gi"), vec![]),
            ("Bound", sized("3Gi"), sized("2Gi"), vec![]),
            ("Bound", sized("2Gi"), sized("1Gi"), vec![SMALLER]),
            ("Bound", json!({"volumeName": "v"}), json!({"volumeName": "w"}), vec![IMMUTABLE]),
            ("Bound", json!({}), json!({"accessModes": ["ReadWriteMany"]}), vec![IMMUTABLE]),
        ] {
            let faults = faults_of_update(validate, with(phase, old), with(phase, new.clone()));
            assert_eq!(faults, expected, "{phase} {new}");
        }
    }

    #[test]
    fn a_part_of_a_byte_is_warned_of() {
        let parts = claim(json!({"resources": {"requests": {"storage": "1500m"}}}));
        let warning = "spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer";
        assert_eq!(warnings(&object(parts)), [warning]);
        assert_eq!(warnings(&object(claim(json!({})))), [] as [&str; 0]);
    }
}
