//! The API for users of the library: kinds that are defined by Rust types.
//!
//! Only this module handles the user's types. All other modules handle an [`Object`](crate::object::Object).

mod cells;
mod computed;
mod convert;
mod disclosed;
mod disclosures;
mod kind;
mod kinds;
mod located;
mod lookup;
mod numbered;
mod round_trips;
mod rules;
mod stored;
mod versions;
mod visibility;
mod yaml;

pub use cells::Cells;
pub use computed::{Computed, ComputedFromSeveral, Variant, Variants};
pub use convert::{ConversionFailure, Convert};
pub use disclosed::{DisclosureFault, check_disclosures, check_variant_disclosures};
pub use disclosures::{Disclosures, LookupRights};
pub use kind::{Kind, Role, SourceKind};
pub use kinds::Kinds;
pub use lookup::{Everything, Lookup, MetadataLookup, MetadataType, Related, Scoped, Total};
pub use round_trips::{RoundTripFault, check_round_trips};
pub use rules::Rules;
pub use stored::Stored;
pub use versions::Versions;
pub use visibility::Visibility;
pub use yaml::DefinitionError;

pub use crate::cluster::{SourceApi, SourceScope, SourceType};

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
