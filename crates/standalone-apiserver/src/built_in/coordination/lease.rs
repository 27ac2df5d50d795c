//! Leases.

use aggregated_apiserver::strategy::FilledField;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::coordination::v1::Lease;

use crate::built_in::checks::{FieldErrors, check_not_negative};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::requiring_resource_version;

pub(crate) fn row() -> Row<Lease> {
    let rules = Validation::new()
        .prepare(|lease, context| drop_disabled(lease, context.old().as_ref()))
        .validate(|lease, _, _| validate(lease));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    const FILLED: &[FilledField] =
        &[FilledField::dropped("/spec/preferredHolder"), FilledField::dropped("/spec/strategy")];
    Strategy {
        allows_create_on_update: true,
        filled_by_system: FILLED,
        ..requiring_resource_version()
    }
}

fn columns() -> Vec<Column<Lease>> {
    vec![Column::path("Holder", ".spec.holderIdentity"), Column::age()]
}

/// Drops the fields of coordinated leader election, which is off by default, unless the old Lease has them.
fn drop_disabled(lease: &mut Lease, old: Option<&Lease>) {
    let Some(spec) = &mut lease.spec else { return };
    let old = old.and_then(|old| old.spec.as_ref());
    if old.is_none_or(|old| old.strategy.is_none()) {
        spec.strategy = None;
    }
    if old.is_none_or(|old| old.preferred_holder.is_none()) {
        spec.preferred_holder = None;
    }
}

fn validate(lease: &Lease) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &lease.spec else { return faults };
    if let Some(seconds) = spec.lease_duration_seconds.filter(|seconds| *seconds <= 0) {
        let why = "must be greater than 0";
        faults.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, why));
    }
    check_not_negative("spec.leaseTransitions", spec.lease_transitions, &mut faults);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::json;

    #[test]
    fn lease_validation_reports_invalid_fields() {
        for (spec, expected) in [
            (json!(null), vec![]),
            (json!({"leaseDurationSeconds": 1, "leaseTransitions": 0}), vec![]),
            (
                json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}),
                vec![
                    "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                    "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
            (
                json!({"leaseDurationSeconds": -5}),
                vec!["spec.leaseDurationSeconds: Invalid value: -5: must be greater than 0"],
            ),
        ] {
            assert_eq!(texts(&validate(&object(json!({"spec": spec})))), expected, "{spec}");
        }
    }

    #[test]
    fn a_put_can_create_a_lease_and_needs_a_resource_version_to_update() {
        let strategy = strategy();
        assert!(strategy.allows_create_on_update && !strategy.allows_unconditional_update);
    }
}
