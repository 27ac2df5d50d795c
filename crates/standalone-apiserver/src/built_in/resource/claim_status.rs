//! The status of ResourceClaims.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, AllocationResult, DeviceRequestAllocationResult, NetworkDeviceData,
    ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus,
};

use super::checks::{
    check_binding, check_each, check_label, check_pool_name, check_set, check_uid,
};
use super::claim_spec::RequestNames;
use super::configuration::{CONFIGURATIONS, check_object, check_opaque};
use crate::built_in::checks::{FieldErrors, check_immutable, check_one_of, go_struct, quote};
use crate::built_in::conditions;
use crate::built_in::core::persistent_volume::check_driver_name;
use crate::built_in::networks::check_interface_address;
use crate::built_in::pod_template::affinity::check_node_selector;

/// The largest numbers of consumers, results, conditions and addresses.
const CONSUMERS: usize = 256;
const RESULTS: usize = 32;
const CONDITIONS: usize = 8;
const ADDRESSES: usize = 16;
const LONGEST_INTERFACE: usize = 256;
const LONGEST_HARDWARE_ADDRESS: usize = 128;

/// A device: its driver, pool and name, and the share of it.
type DeviceId<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

fn id_of_result(result: &DeviceRequestAllocationResult) -> DeviceId<'_> {
    (&result.driver, &result.pool, &result.device, result.share_id.as_deref())
}

fn id_of_status(status: &AllocatedDeviceStatus) -> DeviceId<'_> {
    (&status.driver, &status.pool, &status.device, status.share_id.as_deref())
}

/// The devices of a claim.
fn allocated(status: Option<&ResourceClaimStatus>) -> BTreeSet<DeviceId<'_>> {
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.iter().flat_map(|devices| devices.results.iter().flatten()).map(id_of_result).collect()
}

/// Removes the status of devices that the claim has no more.
pub(super) fn drop_deallocated(claim: &mut ResourceClaim, old: &ResourceClaim) {
    let Some(mut devices) = claim.status.as_mut().and_then(|status| status.devices.take()) else {
        return;
    };
    let now = allocated(claim.status.as_ref());
    let before = allocated(old.status.as_ref());
    devices.retain(|device| {
        let id = id_of_status(device);
        now.contains(&id) || !before.contains(&id)
    });
    if let Some(status) = claim.status.as_mut().filter(|_| !devices.is_empty()) {
        status.devices = Some(devices);
    }
}

/// Validates the status of a claim.
pub(super) fn validate(claim: &ResourceClaim, old: Option<&ResourceClaim>) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(status) = &claim.status else { return faults };
    let old_status = old.and_then(|old| old.status.as_ref());
    let consumers = status.reserved_for.as_ref();
    let uid = |one: &ResourceClaimConsumerReference| quote(&one.uid);
    check_set(consumers, CONSUMERS, "status.reservedFor", &mut faults, uid, check_consumer);
    let devices = allocated(Some(status));
    let key = |device: &AllocatedDeviceStatus| shown(&id_of_status(device));
    let all = status.devices.as_ref();
    check_set(all, usize::MAX, "status.devices", &mut faults, key, |device, at, faults| {
        check_device(device, &devices, at, faults);
    });
    check_reservations(claim, status, old_status, &mut faults);
    let before = old_status.and_then(|old| old.allocation.as_ref());
    match (&status.allocation, before) {
        (Some(allocation), Some(old)) => {
            check_immutable("status.allocation", allocation, old, &mut faults);
        }
        (Some(allocation), None) => {
            check_allocation(allocation, &RequestNames::of(&claim.spec), &mut faults);
        }
        (None, _) => {}
    }
    faults
}

fn check_consumer(one: &ResourceClaimConsumerReference, at: &str, faults: &mut FieldErrors) {
    for (field, value) in [("resource", &one.resource), ("name", &one.name), ("uid", &one.uid)] {
        if value.is_empty() {
            faults.push(FieldError::required(format!("{at}.{field}"), ""));
        }
    }
}

fn check_reservations(
    claim: &ResourceClaim,
    status: &ResourceClaimStatus,
    old: Option<&ResourceClaimStatus>,
    faults: &mut FieldErrors,
) {
    const AT: &str = "status.reservedFor";
    let consumers = status.reserved_for.as_deref().unwrap_or_default();
    if consumers.is_empty() {
        return;
    }
    if status.allocation.is_none() {
        let why = "may not be specified when `allocated` is not set";
        return faults.push(FieldError::forbidden(AT, why));
    }
    let known = old.and_then(|old| old.reserved_for.as_deref()).unwrap_or_default();
    let is_deleted = claim.metadata.deletion_timestamp.is_some();
    if is_deleted && consumers.iter().any(|one| !known.contains(one)) {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        faults.push(FieldError::forbidden(AT, why));
    }
}

fn check_allocation(
    allocation: &AllocationResult,
    request_names: &RequestNames<'_>,
    faults: &mut FieldErrors,
) {
    const AT: &str = "status.allocation";
    if let Some(devices) = &allocation.devices {
        let at = format!("{AT}.devices.results");
        check_each(devices.results.as_ref(), RESULTS, &at, faults, |result, at, faults| {
            check_result(result, request_names, at, faults);
        });
        let at = format!("{AT}.devices.config");
        // A class and a claim have configurations.
        let most = 2 * CONFIGURATIONS;
        check_each(devices.config.as_ref(), most, &at, faults, |one, at, faults| {
            let at_source = format!("{at}.source");
            match one.source.as_str() {
                "" => faults.push(FieldError::required(at_source, "")),
                _ => {
                    let all = ["FromClaim", "FromClass"];
                    check_one_of(at_source, Some(&one.source), &all, faults);
                }
            }
            request_names.check_all(one.requests.as_ref(), &format!("{at}.requests"), faults);
            check_opaque(one.opaque.as_ref(), false, at, faults);
        });
    }
    if let Some(selector) = &allocation.node_selector {
        check_node_selector(selector, &format!("{AT}.nodeSelector"), faults);
    }
}

fn check_result(
    result: &DeviceRequestAllocationResult,
    request_names: &RequestNames<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    request_names.check(&result.request, &format!("{at}.request"), faults);
    check_driver_name(&format!("{at}.driver"), &result.driver, faults);
    check_pool_name(&result.pool, &format!("{at}.pool"), faults);
    check_label(&result.device, &format!("{at}.device"), faults);
    let failures = result.binding_failure_conditions.as_ref();
    check_binding(result.binding_conditions.as_ref(), failures, at, faults);
    if let Some(share) = &result.share_id {
        check_uid(share, &format!("{at}.shareID"), faults);
    }
}

fn check_device(
    device: &AllocatedDeviceStatus,
    allocated: &BTreeSet<DeviceId<'_>>,
    at: &str,
    faults: &mut FieldErrors,
) {
    check_driver_name(&format!("{at}.driver"), &device.driver, faults);
    check_pool_name(&device.pool, &format!("{at}.pool"), faults);
    check_label(&device.device, &format!("{at}.device"), faults);
    if let Some(share) = &device.share_id {
        check_uid(share, &format!("{at}.shareID"), faults);
    }
    let id = id_of_status(device);
    if !allocated.contains(&id) {
        let why = "must be an allocated device in the claim";
        faults.push(FieldError::invalid(at, shown(&id), why));
    }
    let conditions = device.conditions.as_deref().unwrap_or_default();
    let at_conditions = format!("{at}.conditions");
    if conditions.len() > CONDITIONS {
        let count = conditions.len();
        faults.push(FieldError::too_many(&*at_conditions, count, CONDITIONS as u64));
    }
    conditions::check(conditions, &at_conditions, faults);
    if let Some(data) = device.data.as_ref().filter(|data| !data.0.is_null()) {
        check_object(data, false, &format!("{at}.data"), faults);
    }
    if let Some(network) = &device.network_data {
        check_network(network, &format!("{at}.networkData"), faults);
    }
}

fn check_network(network: &NetworkDeviceData, at: &str, faults: &mut FieldErrors) {
    for (field, value, longest) in [
        ("interfaceName", &network.interface_name, LONGEST_INTERFACE),
        ("hardwareAddress", &network.hardware_address, LONGEST_HARDWARE_ADDRESS),
    ] {
        if value.as_ref().is_some_and(|value| value.len() > longest) {
            faults.push(FieldError::too_long(format!("{at}.{field}"), longest as u64));
        }
    }
    let key = |address: &String| quote(address);
    let at = format!("{at}.ips");
    check_set(network.ips.as_ref(), ADDRESSES, &at, faults, key, |address, at, faults| {
        check_interface_address(at, address, faults);
    });
}

/// A device in the format of messages, with the field names of Go.
fn shown((driver, pool, device, share): &DeviceId<'_>) -> String {
    go_struct(&[
        ("Driver", quote(driver)),
        ("Pool", quote(pool)),
        ("Device", quote(device)),
        ("ShareID", quote(share.unwrap_or_default())),
    ])
}
