//! Types: schemas of values, and the operations that follow from them.
//!
//! A [`Schema`] is a graph of nodes. Some nodes are built from a CustomResourceDefinition (`definition`), others from
//! the tables of built-in kinds (`types`). Each operation is a walker in a file of its own and does not depend on the
//! source of a node. Walkers prune unknown fields, convert values of Go types, fill in defaults and validate the
//! result. Lists are merged by strategic merge patches.

use kubernetes_objects::{error, object, quota};

mod beside_status;
mod coerce;
mod default;
mod definition;
mod faults;
mod formats;
mod junctors;
mod list_types;
mod node;
mod normalize;
mod normalize_numbers;
mod pattern;
mod prune;
mod quantity;
mod rules;
mod strategic_merge;
mod strict_problems;
mod structural;
mod types;
mod unchanged;
mod validate;

pub use beside_status::check_beside_status;
pub use coerce::coerce;
pub use default::fill_defaults;
pub use faults::Faults;
pub use formats::{is_of_format, unrecognized_formats};
pub use list_types::validate_list_types;
pub use node::{
    Additional, GoType, JsonType, ListMerge, ListType, Member, Presence, Schema, Type, TypeRef,
};
pub use normalize::{
    Malformed, coerce_metadata, normalize, normalize_embedded_metadata, normalize_without_defaults,
};
pub use normalize_numbers::{normalize_numbers, normalize_numbers_in_place};
pub use pattern::{Pattern, PatternCache, patterns_limit};
pub use prune::{prune, prune_value};
pub use quantity::Quantity;
pub use rules::{
    check_rules, judge as judge_by_rules, judge_at_once as judge_by_rules_at_once, judge_default,
};
pub use strategic_merge::StrategicMergePatch;
pub use strict_problems::strict_problems;
pub use structural::check as check_structure;
pub use types::{TypeId, Types};
pub use validate::{node as validate_value, validate, validate_change, validate_status};

/// The largest number of errors that are reported for one object. Users do not fix more at a time.
pub const ERRORS_LIMIT: usize = 100;

/// Runs the example of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
