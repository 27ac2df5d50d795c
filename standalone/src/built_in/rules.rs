//! What kube-apiserver demands of built-in kinds, beyond their types. Each rule
//! is here because programs meet it; what is not demanded, `docs/testing.md` says.

pub(crate) mod approval;
mod batch;
mod definitions;
mod discovery;
mod workloads;

pub(super) use batch::{cron_jobs, jobs};
pub(super) use definitions::definitions;
pub(super) use discovery::{api_services, endpoint_slices};
pub(super) use workloads::{deployments, replica_sets};

use super::checks::{
    Faults, check_kept, check_not_negative, check_one_of, check_with, quote, shown,
};
use super::label_selector as selectors;
