//! Writes: one pipeline for every object that is created, updated, patched, applied or restored.
//!
//! `pipeline` defines the order of the stages; each stage is a file. `Attributes` describe the request, and `Change` is
//! the change that it requests. Between the stages, an object is a `Draft`.

mod admission;
mod applied;
mod attributes;
mod change;
mod commit;
mod critical_section;
mod decode;
mod deletion;
mod draft;
mod embedded;
mod encode;
mod field_managers;
mod field_validation;
mod former_versions;
mod guards;
mod last_applied;
mod live;
mod merge_patch;
mod metadata_rules;
mod owners;
mod patch;
mod pipeline;
mod prepare;
mod reset;
mod restore;
mod review;
mod scale;
mod scale_managers;
mod sent_managers;
mod slow_writes;
mod stamp;
mod store_error;
mod validate;
mod validate_defaults;

pub use crate::object::json_patch::{OPERATIONS_LIMIT, Operation};
pub use admission::{validate_connection, validate_deletion};
pub use applied::SubmittedApply;
pub use attributes::{Attributes, CreateAuthorizer, Environment, Origin, Part, WriteOptions};
pub use change::Change;
pub use critical_section::{CommitLimit, CriticalSection, commit_limit};
pub use decode::{check_posted, check_preconditions, decode};
pub use deletion::{MarkOptions, Propagation, final_state, mark};
pub use draft::{Draft, Submitted};
pub use field_managers::{ManagedFields, manager_of_user_agent};
pub use field_validation::FieldValidation;
pub use guards::{Outcome, UnsettledWrites};
pub use live::Live;
pub use metadata_rules::check_manager;
pub use patch::{Patch, SubmittedPatch};
pub use pipeline::write;
pub use restore::{restore, restore_unchecked};
pub use review::admit_review;
pub use scale::{no_scale, scale_of};
pub use sent_managers::SentText;
pub use slow_writes::SlowWrites;
pub use store_error::{store_error, unavailable};
pub use validate_defaults::validate_defaults;

use serde_json::Value;

use crate::object::Tree;

/// A string field of an object; empty if it is missing or not a string.
fn text(tree: &Tree, field: &str) -> String {
    tree.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
