//! ResourceClaims.

mod quota_usage;

use aggregated_apiserver::strategy::QuotaUsage;
use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{claim_spec, claim_status};
use crate::built_in::checks::{FieldErrors, check_immutable};
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::without_generation;

pub(crate) fn row() -> Row<ResourceClaim> {
    let rules = Validation::new()
        .prepare(|claim: &mut ResourceClaim, context| {
            set_defaults(claim);
            if let Some(old) = context.old().filter(|_| context.is_admitted) {
                claim_status::drop_deallocated(claim, &old);
            }
        })
        .validate(|claim, old, _| validate(claim, old))
        .validate_status(|claim, old, _| claim_status::validate(claim, old));
    Row { subresources: Subresources::Status, columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy {
        returns_deleted_object: true,
        updates_metadata_with_status: false,
        quota_usage: QuotaUsage::Evaluated(&quota_usage::ClaimEvaluator),
        ..without_generation()
    }
}

fn columns() -> Vec<Column<ResourceClaim>> {
    vec![Column::computed("State", |claim: &ResourceClaim, _| state(claim)), Column::age()]
}

/// The state of a claim: `pending`, or `allocated,reserved`.
fn state(claim: &ResourceClaim) -> String {
    let status = claim.status.as_ref();
    let is_deleted = claim.metadata.deletion_timestamp.is_some();
    let is_allocated = status.is_some_and(|status| status.allocation.is_some());
    let consumers = status.and_then(|status| status.reserved_for.as_ref());
    let is_reserved = is_allocated && consumers.is_some_and(|all| !all.is_empty());
    let states = [
        ("deleted", is_deleted),
        ("pending", !is_allocated && !is_deleted),
        ("allocated", is_allocated),
        ("reserved", is_reserved),
    ];
    let states = states.into_iter().filter(|(_, is_one)| *is_one).map(|(name, _)| name);
    states.collect::<Vec<_>>().join(",")
}

fn set_defaults(claim: &mut ResourceClaim) {
    claim_spec::set_defaults(&mut claim.spec);
    let allocation = claim.status.as_mut().and_then(|status| status.allocation.as_mut());
    let devices = allocation.and_then(|allocation| allocation.devices.as_mut());
    for result in devices.into_iter().flat_map(|devices| devices.results.iter_mut().flatten()) {
        claim_spec::set_operators(result.tolerations.as_mut());
    }
}

fn validate(claim: &ResourceClaim, old: Option<&ResourceClaim>) -> FieldErrors {
    let mut faults = Vec::new();
    match old {
        // A spec that does not change is not validated again.
        Some(old) => check_immutable("spec", &claim.spec, &old.spec, &mut faults),
        None => claim_spec::validate(&claim.spec, "spec", &mut faults),
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object, prepared};
    use serde_json::{Value, json};

    fn claim(devices: Value) -> Value {
        json!({"spec": {"devices": devices}})
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
        let valid = json!({
            "requests": [
                {"name": "a", "exactly": exactly},
                {"name": "b", "firstAvailable": [
                    {"name": "c", "deviceClassName": "c", "allocationMode": "All"},
                ]},
            ],
            "constraints": [{"requests": ["a", "b/c"], "matchAttribute": "a.b/c"}],
            "config": [{"requests": ["b"], "opaque": {"driver": "a.b", "parameters": {}}}],
        });
        assert_eq!(faults_of_new(validate, claim(valid)), [] as [&str; 0]);
        let broken = json!({
            "requests": [
                {"name": "a"},
                {"name": "a", "exactly": {"deviceClassName": "", "allocationMode": "All", "count": 2}},
            ],
            "constraints": [{"requests": ["x"]}, {"matchAttribute": "c"}],
        });
        let reference = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        assert_eq!(
            faults_of_new(validate, claim(broken)),
            [
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required".to_owned(),
                "spec.devices.requests[1].exactly.deviceClassName: Required value".to_owned(),
                "spec.devices.requests[1].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'".to_owned(),
                "spec.devices.requests[1]: Duplicate value: \"a\"".to_owned(),
                format!("spec.devices.constraints[0].requests[0]: Invalid value: \"x\": {reference}"),
                "spec.devices.constraints[0]: Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set".to_owned(),
                "spec.devices.constraints[1].matchAttribute: Invalid value: \"c\": a fully qualified name must be a domain and a name separated by a slash".to_owned(),
            ]
        );
    }

    #[test]
    fn claims_have_defaults_and_states() {
        let one = json!({"name": "a", "exactly": {"deviceClassName": "c", "tolerations": [{"key": "a"}]}});
        let filled = prepared(set_defaults, claim(json!({"requests": [one]})));
        assert_eq!(
            filled["spec"]["devices"]["requests"][0]["exactly"],
            json!({
                "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
                "tolerations": [{"key": "a", "operator": "Equal"}],
            })
        );
        assert_eq!(state(&object(filled.clone())), "pending");
        let mut reserved = filled;
        reserved["status"] = json!({"allocation": {}, "reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}]});
        assert_eq!(state(&object(reserved)), "allocated,reserved");
    }

    #[test]
    fn a_status_has_only_allocated_devices() {
        let result = json!({"request": "a", "driver": "d", "pool": "p", "device": "x"});
        let spec =
            json!({"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}});
        let status = |results: Value, devices: Value| json!({"spec": spec, "status": {"allocation": {"devices": {"results": results}}, "devices": devices}});
        let device = json!([{"driver": "d", "pool": "p", "device": "x"}]);
        let valid = status(json!([result]), device.clone());
        let old = json!({"spec": spec});
        let check =
            |old: &Value, new: Value| faults_of_update(claim_status::validate, old.clone(), new);
        assert_eq!(check(&old, valid.clone()), [] as [&str; 0]);
        assert_eq!(check(&old, status(json!([]), device.clone())).len(), 1);
        assert_eq!(check(&valid, status(json!([]), json!([]))).len(), 1);
        let mut released: ResourceClaim =
            object(json!({"spec": spec, "status": {"devices": device}}));
        claim_status::drop_deallocated(&mut released, &object(valid));
        assert_eq!(released.status.unwrap().devices, None);
    }
}
