//! Server-side apply: who owns which fields of an object, and what becomes of an object that is
//! applied to another one.
//!
//! Pure functions over the graph of types. A [`FieldSet`] is a set of paths; [`Managers`] say
//! whose they are. [`update`] changes that after a write of any other sort, [`apply`] merges an
//! applied object with the one that is there, prunes what its manager has applied before and
//! nobody owns now, and tells what others own of what would change.

use kubernetes_objects::error;
use kubernetes_schema as schema;

mod applied;
mod compare;
mod complete;
mod conflicts;
mod field_set;
mod fields;
mod fields_v1;
mod lent;
mod list;
mod managers;
mod merge;
mod owned;
mod path_element;
mod place;
mod reconcile;
mod remove;
mod stripped;
mod typed;
mod unchanged;
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

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
