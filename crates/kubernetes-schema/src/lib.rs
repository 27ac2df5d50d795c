//! Types: what values may be, and everything that follows from it.
//!
//! A [`Schema`] is a graph of nodes. A definition describes one (`definition`), the
//! tables of Kubernetes' own types hold others (`types`), and a walker, a file each,
//! does not know where a node came from: what is unknown is pruned, what Go reads is
//! coerced, what is absent gets its default, the rest is validated; lists are merged
//! by strategic merge patches.

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

/// At most this many faults of one object are reported; nobody fixes more at a time.
pub const ERRORS_LIMIT: usize = 100;

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
