//! The cluster IPs of Services, and their IP families.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::ServiceSpec;

use super::{is_headless, type_of};
use crate::built_in::checks::{FieldErrors, check_one_of, quote, to_json};
use crate::built_in::networks::{check_address, parse_address};

const AT: &str = "spec.clusterIPs";
const FAMILIES: &str = "spec.ipFamilies";
const POLICY: &str = "spec.ipFamilyPolicy";

const KEPT: &str = "may not change once set";

/// The addresses of a Service.
fn addresses(spec: &ServiceSpec) -> &[String] {
    spec.cluster_ips.as_deref().unwrap_or_default()
}

fn families(spec: &ServiceSpec) -> &[String] {
    spec.ip_families.as_deref().unwrap_or_default()
}

/// Checks the addresses of a Service. Addresses of the old Service are not checked again.
pub(super) fn check(spec: &ServiceSpec, old: Option<&ServiceSpec>, faults: &mut FieldErrors) {
    let all = addresses(spec);
    check_singular(spec, faults);
    let mut seen = BTreeSet::new();
    for (index, family) in families(spec).iter().enumerate() {
        let at = format!("{FAMILIES}[{index}]");
        check_one_of(&at, Some(family), &["IPv4", "IPv6"], faults);
        if !seen.insert(family) {
            faults.push(FieldError::duplicate(at, quote(family)));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    check_one_of(POLICY, spec.ip_family_policy.as_ref(), &policies, faults);
    let before = faults.len();
    for (index, address) in all.iter().enumerate() {
        if index == 0 && address == "None" {
            if all.len() > 1 {
                let why = "'None' must be the first and only value";
                faults.push(FieldError::invalid(AT, to_json(&all), why));
            }
        } else if !old.is_some_and(|old| addresses(old).contains(address)) {
            check_address(&format!("{AT}[{index}]"), address, faults);
        }
    }
    let has_invalid = faults.len() > before;
    if all.len() > 2 {
        faults.push(FieldError::invalid(AT, to_json(&all), "may only hold up to 2 values"));
    }
    if has_invalid {
        return;
    }
    if all.len() > 1 && !is_dual_stack(all) {
        let why = "may specify no more than one IP for each IP family";
        faults.push(FieldError::invalid(AT, to_json(&all), why));
    }
    if !is_headless(spec) {
        check_families_of_addresses(spec, faults);
    }
}

/// Checks that the older field contains the first address.
fn check_singular(spec: &ServiceSpec, faults: &mut FieldErrors) {
    let all = addresses(spec);
    match (spec.cluster_ip.as_deref().unwrap_or_default(), all.first()) {
        ("", Some(_)) => {
            let why = "must be empty when `clusterIP` is not specified";
            faults.push(FieldError::invalid(AT, to_json(&all), why));
        }
        ("", None) => {}
        (_, None) => faults.push(FieldError::required(AT, "")),
        (one, Some(first)) if one != first => {
            let why = "first value must match `clusterIP`";
            faults.push(FieldError::invalid(AT, to_json(&all), why));
        }
        _ => {}
    }
}

fn is_ipv6(address: &str) -> bool {
    parse_address(address).is_some_and(|address| address.is_ipv6())
}

fn is_dual_stack(addresses: &[String]) -> bool {
    let of_ipv6 = addresses.iter().filter(|address| is_ipv6(address)).count();
    of_ipv6 > 0 && of_ipv6 < addresses.len()
}

fn check_families_of_addresses(spec: &ServiceSpec, faults: &mut FieldErrors) {
    for (index, (address, family)) in addresses(spec).iter().zip(families(spec)).enumerate() {
        let is_right = match family.as_str() {
            "IPv4" => !is_ipv6(address),
            "IPv6" => is_ipv6(address),
            _ => true,
        };
        if !is_right {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            faults.push(FieldError::invalid(format!("{AT}[{index}]"), quote(address), &why));
        }
    }
}

/// Checks that a Service keeps its first address and family, and releases others only on request.
pub(super) fn check_change(spec: &ServiceSpec, old: &ServiceSpec, faults: &mut FieldErrors) {
    if type_of(spec) == "ExternalName" || type_of(old) == "ExternalName" {
        return;
    }
    if !(is_headless(spec) && is_headless(old)) {
        check_change_of_addresses(spec, old, faults);
    }
    if !is_headless(spec) && !is_headless(old) {
        check_change_of_families(spec, old, faults);
    }
}

fn check_change_of_addresses(spec: &ServiceSpec, old: &ServiceSpec, faults: &mut FieldErrors) {
    let (new, before) = (addresses(spec), addresses(old));
    let shown = to_json(&new);
    let first = format!("{AT}[0]");
    if new.len() == before.len() {
        for index in (0..new.len()).filter(|index| new[*index] != before[*index]) {
            faults.push(FieldError::invalid(format!("{AT}[{index}]"), &shown, KEPT));
        }
        return;
    }
    if new.is_empty() {
        let why = "primary clusterIP can not be unset";
        faults.push(FieldError::invalid(first, "null", why));
        return;
    }
    if before.first().is_some_and(|before| *before != new[0]) {
        faults.push(FieldError::invalid(first, &shown, KEPT));
    }
    if before.len() > new.len() && new.len() == 1 {
        check_release("clusterIP", spec, faults);
    }
}

fn check_change_of_families(spec: &ServiceSpec, old: &ServiceSpec, faults: &mut FieldErrors) {
    let (new, before) = (families(spec), families(old));
    let at = format!("{FAMILIES}[0]");
    if new.len() == before.len() {
        let changed = new.iter().zip(before).filter(|(new, before)| new != before);
        faults.extend(changed.map(|_| FieldError::invalid(&at, to_json(&new), KEPT)));
        return;
    }
    if before.len() > new.len() && addresses(spec).is_empty() {
        let why = "primary ipFamily can not be unset";
        faults.push(FieldError::invalid(&at, to_json(&new), why));
    }
    if let (Some(new), Some(before)) = (new.first(), before.first())
        && new != before
    {
        faults.push(FieldError::invalid(&at, to_json(&addresses(spec)), KEPT));
    }
    if before.len() > new.len() && new.len() == 1 {
        check_release("ipFamily", spec, faults);
    }
}

fn check_release(released: &str, spec: &ServiceSpec, faults: &mut FieldErrors) {
    if spec.ip_family_policy.as_deref() != Some("SingleStack") {
        let why = format!("must be set to 'SingleStack' when releasing the secondary {released}");
        faults.push(FieldError::invalid(POLICY, to_json(&spec.ip_family_policy), &why));
    }
}

/// Checks that the cluster supports the IP families. It supports only IPv4. A headless Service without a selector is
/// not checked.
pub(super) fn check_families(spec: &ServiceSpec, faults: &mut FieldErrors) {
    let selects = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
    if type_of(spec) == "ExternalName" || (is_headless(spec) && !selects) {
        return;
    }
    if let Some(policy @ "RequireDualStack") = spec.ip_family_policy.as_deref() {
        let why = "this cluster is not configured for dual-stack services";
        faults.push(FieldError::invalid(POLICY, quote(policy), why));
    }
    for (index, family) in families(spec).iter().enumerate().filter(|(_, one)| *one != "IPv4") {
        let at = format!("{FAMILIES}[{index}]");
        faults.push(FieldError::invalid(at, quote(family), "not configured on this cluster"));
    }
}
