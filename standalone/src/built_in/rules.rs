//! What kube-apiserver demands of built-in kinds, beyond their types. Each rule
//! is here because programs meet it; what is not demanded, `docs/testing.md` says.

pub(crate) mod approval;
mod definitions;
mod discovery;

pub(super) use definitions::definitions;
pub(super) use discovery::{api_services, endpoint_slices};

use super::checks::{Faults, check_kept, check_one_of, check_with, quote, shown};
