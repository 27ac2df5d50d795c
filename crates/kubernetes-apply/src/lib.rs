//! Server-side apply: ownership of the fields of an object, and merging of an applied object into the live object.
//!
//! All functions are pure and walk the graph of types. A [`FieldSet`] is a set of paths; [`Managers`] record which
//! manager owns which paths. The function [`update`] changes the ownership after any write that is not an apply. The
//! function [`apply`] merges an applied object into the live object, and removes fields that its manager applied before
//! and no manager owns now. It reports a conflict for each changed field that another manager owns.

use kubernetes_objects::error;
use kubernetes_schema as schema;

mod added_metadata;
mod applied;
mod compare;
mod complete;
mod conflicts;
mod field_set;
mod fields;
mod fields_v1;
mod list;
mod managers;
mod merge;
mod owned;
mod path_element;
mod place;
mod reconcile;
mod remove;
mod typed;
mod unchanged;
mod unowned_fields;
mod update;
mod value;
mod versions;

pub use applied::{Application, Outcome, Refused, apply};
pub use compare::compare;
pub use conflicts::{Conflict, Conflicts};
pub use field_set::FieldSet;
pub use fields::Fields;
pub use managers::{Managed, Manager, Managers, Operation};
pub use owned::owned;
pub use path_element::PathElement;
pub use place::Place;
pub use typed::{check, check_loosely_beside};
pub use update::{Update, reconciled, update};
pub use versions::Versions;

#[cfg(test)]
mod tests;

/// Runs the example of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
