//! The API for users of the library: kinds that are defined by Rust types.
//!
//! Only this module handles the user's types. All other modules handle an [`Object`](crate::object::Object).

mod computed;
mod convert;
mod field_permission_check;
mod field_permissions;
mod kind;
mod kinds;
mod located_errors;
mod lookup;
mod numbered_values;
mod printer_columns;
mod round_trips;
mod stored;
mod validation;
mod versions;
mod visibility;
mod yaml;

pub use computed::{CompletionError, Computed, ComputedFromVariants, FanOut, Variant, Variants};
pub use convert::{ConversionError, Convert};
pub use field_permission_check::{
    FieldPermissionError, check_field_permissions, check_variant_field_permissions,
};
pub use field_permissions::{FieldPermissions, LookupRights};
pub use kind::{Backend, Kind, SourceKind};
pub use kinds::Kinds;
pub use lookup::{
    Aggregate, AllObjects, Lookup, LookupOptions, MetadataLookup, MetadataType, Related,
};
pub use printer_columns::PrinterColumns;
pub use round_trips::{RoundTripError, check_round_trips};
pub use stored::Stored;
pub use validation::Validation;
pub use versions::Versions;
pub use visibility::Visibility;
pub use yaml::DefinitionError;

pub use crate::cluster::{SourceApi, SourceOptions, SourceType};

use kube::Resource;
use serde_json::Value;

use crate::object::Tree;

/// Converts a typed object to a JSON tree.
fn to_tree<K: serde::Serialize>(object: &K) -> Result<Tree, String> {
    match serde_json::to_value(object) {
        Ok(Value::Object(tree)) => Ok(tree),
        Ok(_) => Err("is not an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The qualified name of a kind for messages, such as `llamas.farm.example.com`.
fn qualified<K: Resource<DynamicType = ()>>() -> String {
    crate::error::qualified(&K::group(&()), &K::plural(&()))
}
