//! Roles.

use aggregated_apiserver::Validation;
use k8s_openapi::api::rbac::v1::Role;

use super::policy_rule::{self, Paths};
use super::strategy::strategy;
use crate::built_in::checks::FieldErrors;
use crate::built_in::row::{Column, Row};

pub(crate) fn row() -> Row<Role> {
    let rules = Validation::new().validate(|role, _, _| validate(role));
    Row { columns: vec![Column::created_at()], rules, ..Row::new(strategy()) }
}

fn validate(role: &Role) -> FieldErrors {
    let mut faults = Vec::new();
    policy_rule::check(role.rules.as_ref(), Paths::Refused, &mut faults);
    faults
}
