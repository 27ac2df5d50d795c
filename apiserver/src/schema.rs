//! Types: what values may be, and everything that follows from it.
//!
//! A file for each walker: what is unknown is pruned, what Go would read otherwise
//! is coerced, what is absent gets its default, the rest is validated.

mod coerce;
mod default;
mod embedded;
mod formats;
mod junctors;
mod list_types;
mod merge_keys;
mod node;
mod pattern;
mod prune;
mod quantity;
mod strategic_merge;
mod structural;
mod types;
mod validate;
mod whole;

pub use coerce::give_shape;
pub use embedded::Malformed;
pub use formats::is_of_format;
pub use list_types::validate as validate_list_types;
pub use merge_keys::{ListMerge, MergeKeys};
pub use node::{Additional, JsonType, ListType, Schema};
pub use pattern::Pattern;
pub use quantity::Quantity;
pub use strategic_merge::StrategicMergePatch;
pub use structural::check as check_structure;
pub use types::{Field, FieldCount, FieldTable, Presence};
pub use validate::{node as validate_value, validate, validate_change, validate_status};
pub use whole::whole;

/// So many faults of one object are said; nobody mends more at a time.
pub const ERRORS_LIMIT: usize = 100;
