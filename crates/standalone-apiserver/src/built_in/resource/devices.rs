//! The devices of ResourceSlices.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::resource::v1::{
    Device, DeviceAttribute, DeviceCounterConsumption, ResourceSlice, ResourceSliceSpec,
};

use super::checks::{
    check_binding, check_each, check_label, check_qualified_name, check_set, check_taint,
};
use super::request_policy;
use super::resource_slice::{check_counters, check_flag, check_node_name};
use crate::built_in::checks::{FieldErrors, go_struct, is_same, quote, to_json};
use crate::built_in::pod_template::affinity::check_node_selector;
use crate::built_in::resource_names::is_native;

const ATTRIBUTES_AND_CAPACITIES: usize = 32;
const ATTRIBUTE_VALUES: usize = 48;
const TAINTS: usize = 16;
const CONSUMED_COUNTERS: usize = 2;
const LONGEST_VALUE: usize = 64;
/// The largest length of a key in a path; longer ones are shortened.
const LONGEST_KEY: usize = 63 + 1 + 32;

/// Removes the fields of features that are off by default, unless the old slice has them.
pub(super) fn drop_disabled(spec: &mut ResourceSliceSpec, old: Option<&ResourceSlice>) {
    let is_used = |of: fn(&Device) -> bool| {
        let mut devices = old.into_iter().flat_map(|old| old.spec.devices.iter().flatten());
        devices.any(of)
    };
    let maps_resources = is_used(|device| {
        device.node_allocatable_resource_mappings.as_ref().is_some_and(|all| !all.is_empty())
    });
    let has_lists =
        is_used(|device| device.attributes.iter().flatten().any(|(_, one)| is_list(one)));
    for device in spec.devices.iter_mut().flatten() {
        if !maps_resources {
            device.node_allocatable_resource_mappings = None;
        }
        if !has_lists {
            for attribute in device.attributes.iter_mut().flat_map(|all| all.values_mut()) {
                (attribute.bools, attribute.ints) = (None, None);
                (attribute.strings, attribute.versions) = (None, None);
            }
        }
    }
}

fn is_list(attribute: &DeviceAttribute) -> bool {
    attribute.bools.is_some()
        || attribute.ints.is_some()
        || attribute.strings.is_some()
        || attribute.versions.is_some()
}

/// Whether a device has properties with which a slice may have fewer devices.
pub(super) fn is_advanced(device: &Device) -> bool {
    device.taints.as_ref().is_some_and(|all| !all.is_empty())
        || device.consumes_counters.as_ref().is_some_and(|all| !all.is_empty())
        || device.attributes.iter().flatten().any(|(_, attribute)| is_list(attribute))
}

/// Validates a device. `selects_nodes` is whether each device of the slice has nodes.
pub(super) fn check(
    device: &Device,
    old: Option<&Device>,
    selects_nodes: bool,
    at: &str,
    faults: &mut FieldErrors,
) {
    check_label(&device.name, &format!("{at}.name"), faults);
    check_counts(device, at, faults);
    let at_attributes = format!("{at}.attributes");
    for (name, attribute) in device.attributes.iter().flatten() {
        check_qualified_name(name, &at_attributes, faults);
        check_attribute(attribute, &format!("{at_attributes}[{}]", shortened(name)), faults);
    }
    check_capacity(device, &format!("{at}.capacity"), faults);
    if !old.is_some_and(|old| is_same(&old.taints, &device.taints)) {
        check_each(device.taints.as_ref(), TAINTS, &format!("{at}.taints"), faults, check_taint);
    }
    let counters = device.consumes_counters.as_ref();
    let at_counters = format!("{at}.consumesCounters");
    let set = |one: &DeviceCounterConsumption| quote(&one.counter_set);
    check_set(counters, CONSUMED_COUNTERS, &at_counters, faults, set, |one, at, faults| {
        check_counters(&one.counter_set, "counterSet", &one.counters, at, faults);
    });
    check_nodes(device, selects_nodes, at, faults);
    let failures = device.binding_failure_conditions.as_ref();
    check_binding(device.binding_conditions.as_ref(), failures, at, faults);
    check_mappings(device, &format!("{at}.nodeAllocatableResourceMappings"), faults);
}

fn check_counts(device: &Device, at: &str, faults: &mut FieldErrors) {
    let attributes = device.attributes.as_ref().map_or(0, |all| all.len());
    let count = attributes + device.capacity.as_ref().map_or(0, |all| all.len());
    if count > ATTRIBUTES_AND_CAPACITIES {
        let why = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES}"
        );
        faults.push(FieldError::invalid(at, count, &why));
    }
    let values = |one: &DeviceAttribute| {
        let lists = one.bools.as_ref().map_or(0, Vec::len)
            + one.ints.as_ref().map_or(0, Vec::len)
            + one.strings.as_ref().map_or(0, Vec::len)
            + one.versions.as_ref().map_or(0, Vec::len);
        lists.max(1)
    };
    let count: usize = device.attributes.iter().flatten().map(|(_, one)| values(one)).sum();
    if count > ATTRIBUTE_VALUES {
        let why =
            format!("the total number of attribute values must not exceed {ATTRIBUTE_VALUES}");
        faults.push(FieldError::invalid(at, count, &why));
    }
}

/// A key that is shortened in the middle if it is long.
fn shortened(key: &str) -> String {
    if key.len() <= LONGEST_KEY || !key.is_ascii() {
        return key.to_owned();
    }
    let rest = LONGEST_KEY - 3;
    format!("{}...{}", &key[..rest.div_ceil(2)], &key[key.len() - rest / 2..])
}

fn check_attribute(attribute: &DeviceAttribute, at: &str, faults: &mut FieldErrors) {
    if let Some(text) = &attribute.string {
        check_length(text, &format!("{at}.string"), faults);
    }
    if let Some(version) = &attribute.version {
        check_version(version, &format!("{at}.version"), faults);
    }
    check_list(attribute.bools.as_ref(), &format!("{at}.bools"), faults);
    check_list(attribute.ints.as_ref(), &format!("{at}.ints"), faults);
    let at_texts = format!("{at}.strings");
    check_list(attribute.strings.as_ref(), &at_texts, faults);
    for (index, text) in attribute.strings.iter().flatten().enumerate() {
        check_length(text, &format!("{at_texts}[{index}]"), faults);
    }
    let at_versions = format!("{at}.versions");
    check_list(attribute.versions.as_ref(), &at_versions, faults);
    for (index, version) in attribute.versions.iter().flatten().enumerate() {
        check_version(version, &format!("{at_versions}[{index}]"), faults);
    }
    let set = [
        attribute.bool.is_some(),
        attribute.int.is_some(),
        attribute.string.is_some(),
        attribute.version.is_some(),
        attribute.bools.is_some(),
        attribute.ints.is_some(),
        attribute.strings.is_some(),
        attribute.versions.is_some(),
    ];
    let value = match set.iter().filter(|is_set| **is_set).count() {
        0 => quote(""),
        1 => return,
        _ => shown(attribute),
    };
    faults.push(FieldError::invalid(at, value, "exactly one value must be specified"));
}

fn check_list<T>(list: Option<&Vec<T>>, at: &str, faults: &mut FieldErrors) {
    if list.is_some_and(Vec::is_empty) {
        faults.push(FieldError::invalid(at, "[]", "must not be empty if specified"));
    }
}

fn check_length(text: &str, at: &str, faults: &mut FieldErrors) {
    if text.len() > LONGEST_VALUE {
        faults.push(FieldError::too_long(at, LONGEST_VALUE as u64));
    }
}

fn check_version(version: &str, at: &str, faults: &mut FieldErrors) {
    if !is_semantic_version(version) {
        let why = "must be a string compatible with semver.org spec 2.0.0";
        faults.push(FieldError::invalid(at, quote(version), why));
    }
    check_length(version, at, faults);
}

/// Whether a string is a version such as `1.2.3-alpha.1+build`.
fn is_semantic_version(text: &str) -> bool {
    let is_number = |text: &str| {
        text == "0"
            || !text.is_empty()
                && !text.starts_with('0')
                && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let has_letter = |text: &str| text.bytes().any(|byte| !byte.is_ascii_digit());
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, Some(build)),
        None => (text, None),
    };
    let (numbers, release) = match text.split_once('-') {
        Some((numbers, release)) => (numbers, Some(release)),
        None => (text, None),
    };
    let is_of_release = |part: &str| is_number(part) || is_word(part) && has_letter(part);
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && release.is_none_or(|release| release.split('.').all(is_of_release))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// An attribute in the format of messages, with the field names of Go.
fn shown(attribute: &DeviceAttribute) -> String {
    go_struct(&[
        ("IntValue", to_json(&attribute.int)),
        ("BoolValue", to_json(&attribute.bool)),
        ("StringValue", to_json(&attribute.string)),
        ("VersionValue", to_json(&attribute.version)),
        ("IntValues", to_json(&attribute.ints)),
        ("BoolValues", to_json(&attribute.bools)),
        ("StringValues", to_json(&attribute.strings)),
        ("VersionValues", to_json(&attribute.versions)),
    ])
}

fn check_capacity(device: &Device, at: &str, faults: &mut FieldErrors) {
    for (name, capacity) in device.capacity.iter().flatten() {
        check_qualified_name(name, at, faults);
        let Some(policy) = &capacity.request_policy else { continue };
        let at = format!("{at}[{}].requestPolicy", shortened(name));
        if device.allow_multiple_allocations == Some(true) {
            request_policy::check(policy, &capacity.value, &at, faults);
        } else {
            faults.push(FieldError::forbidden(at, "allowMultipleAllocations must be true"));
        }
    }
}

fn check_nodes(device: &Device, selects_nodes: bool, at: &str, faults: &mut FieldErrors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if !selects_nodes {
        let has_nodes = device.node_name.is_some()
            || device.node_selector.is_some()
            || device.all_nodes.is_some();
        if has_nodes {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            faults.push(FieldError::invalid(at, "null", why));
        }
        return;
    }
    let mut set = Vec::new();
    check_node_name(device.node_name.as_deref(), at, "must not be empty", &mut set, faults);
    if let Some(selector) = &device.node_selector {
        set.push("`nodeSelector`");
        check_node_selector(selector, &format!("{at}.nodeSelector"), faults);
    }
    check_flag(device.all_nodes, at, "allNodes", "`allNodes`", &mut set, faults);
    match set.len() {
        0 => faults.push(FieldError::required(at, ONE)),
        1 => {}
        _ => {
            let value = quote(&format!("{{{}}}", set.join(", ")));
            faults.push(FieldError::invalid(at, value, ONE));
        }
    }
}

fn check_mappings(device: &Device, at: &str, faults: &mut FieldErrors) {
    for (name, mapping) in device.node_allocatable_resource_mappings.iter().flatten() {
        let at = format!("{at}[{name}]");
        if !is_native(name) {
            let why = "must be a node allocatable resource name";
            faults.push(FieldError::invalid(&*at, quote(name), why));
        }
        // The multiplier is 1 by default.
        if let Some(multiplier) = &mapping.allocation_multiplier
            && Quantity::parse(&multiplier.0).is_ok_and(|amount| amount.nanos() <= 0)
        {
            let at = format!("{at}.allocationMultiplier");
            faults.push(FieldError::invalid(at, quote(&multiplier.0), "must be positive"));
        }
        let Some(key) = &mapping.capacity_key else { continue };
        let at = format!("{at}.capacityKey");
        if key.is_empty() {
            let why = "capacityKey must not be an empty string";
            faults.push(FieldError::invalid(at, quote(""), why));
        } else if !device.capacity.as_ref().is_some_and(|all| all.contains_key(key)) {
            faults.push(FieldError::not_found(at, quote(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_semver() {
        for version in ["1.2.3", "0.0.0-alpha.1", "1.2.3-0a+b.01", "1.2.3--"] {
            assert!(is_semantic_version(version), "{version}");
        }
        for version in
            ["", "1.2", "01.2.3", "1.2.3-01", "1.2.3+", "1.2.3-a..b", "v1.2.3", "1.2.3.4"]
        {
            assert!(!is_semantic_version(version), "{version}");
        }
        assert_eq!(shortened(&"x".repeat(100)).len(), LONGEST_KEY);
    }
}
