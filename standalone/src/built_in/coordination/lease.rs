//! Leases.

use aggregated_apiserver::{FieldError, Rules, Strategy};
use k8s_openapi::api::coordination::v1::Lease;

use crate::built_in::checks::{Faults, check_not_negative};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::guarded;

pub(crate) fn row() -> Row<Lease> {
    let rules = Rules::none().validate(|lease, _, _| validate(lease));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { allows_create_on_update: true, ..guarded() }
}

fn columns() -> Vec<Column<Lease>> {
    vec![Column::path("Holder", ".spec.holderIdentity"), Column::age()]
}

fn validate(lease: &Lease) -> Faults {
    let mut faults = Vec::new();
    let Some(spec) = &lease.spec else { return faults };
    if let Some(seconds) = spec.lease_duration_seconds.filter(|seconds| *seconds <= 0) {
        let why = "must be greater than 0";
        faults.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, why));
    }
    check_not_negative("spec.leaseTransitions", spec.lease_transitions, &mut faults);
    faults
}
