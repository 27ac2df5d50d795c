//! The validation of the ResourceClaim that a scheduler creates for the extended resources of a Pod.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::{NameRule, names};
use k8s_openapi::api::core::v1::{PodExtendedResourceClaimStatus, PodSpec};

use crate::built_in::checks::{FieldErrors, check_with, quote};

const AT: &str = "status.extendedResourceClaimStatus";

/// Validates the claim in the status of a Pod with this spec.
pub(super) fn validate(
    claim: &PodExtendedResourceClaimStatus,
    spec: &PodSpec,
    faults: &mut FieldErrors,
) {
    let list = format!("{AT}.requestMappings");
    if claim.request_mappings.is_empty() {
        faults.push(FieldError::required(&*list, "at least one request mapping is required"));
    }
    let mut seen = BTreeSet::new();
    for (index, mapping) in claim.request_mappings.iter().enumerate() {
        let at = format!("{list}[{index}]");
        let container = mapping.container_name.as_str();
        let (resource, request) = (mapping.resource_name.as_str(), mapping.request_name.as_str());
        let init = spec.init_containers.iter().flatten();
        // Containers come last, so that a container hides an init container of the same name.
        match spec.containers.iter().rev().chain(init.rev()).find(|one| one.name == container) {
            None => {
                let why = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                let at = format!("{at}.containerName");
                faults.push(FieldError::invalid(at, quote(container), why));
            }
            Some(found) => {
                let requests = found.resources.as_ref().and_then(|all| all.requests.as_ref());
                if !requests.is_some_and(|requests| requests.contains_key(resource)) {
                    let why = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                    let at = format!("{at}.resourceName");
                    faults.push(FieldError::invalid(at, quote(resource), why));
                }
            }
        }
        // The path has no index, same as in kube-apiserver.
        let name_at = format!("{AT}.requestName");
        check_with(&name_at, request, names::check_dns_1123_label, faults);
        if !seen.insert((container, resource, request)) {
            for (field, value) in
                [("containerName", container), ("resourceName", resource), ("requestName", request)]
            {
                faults.push(FieldError::duplicate(format!("{at}.{field}"), quote(value)));
            }
        }
    }
    let name = claim.resource_claim_name.as_str();
    let at = format!("{AT}.resourceClaimName");
    if name.is_empty() {
        faults.push(FieldError::required(at, ""));
    } else {
        check_with(&at, name, |name| NameRule::Dns1123Subdomain.check(name), faults);
    }
}
