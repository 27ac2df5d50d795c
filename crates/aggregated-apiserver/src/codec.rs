//! Bytes that become trees, bounded by what becomes of them: JSON, YAML and protobuf;
//! and trees that become protobuf.

mod go_text;
mod managed_fields;
mod protobuf;
mod text;
mod yaml;

pub use managed_fields::{ManagedFieldsText, most_in};
pub use protobuf::{
    event as event_in_protobuf, item as item_in_protobuf, list_frame as list_frame_in_protobuf,
    read as from_protobuf, to_protobuf,
};
pub use text::{ParseError, Parsed, from_json, object_from_json};
pub use yaml::{REPEATED_KEYS, YamlParsers, yaml_documents, yaml_memory, yaml_parsers};

use serde_json::Value;

use crate::quota::Account;
use crate::schema::Types;

/// Writes an object that is given in JSON as protobuf, with the envelope in which answers
/// carry it; nothing if its kind is not among the types.
pub fn write_protobuf(object: &Value, types: &Types) -> Option<Vec<u8>> {
    to_protobuf(object.as_object()?, types)
}

/// Reads an object in protobuf, with the envelope in which requests carry it, as JSON.
/// What its messages say beyond the fields of its types is ignored.
///
/// # Errors
/// What is wrong with it: it is broken, its kind is not among the types, or it holds
/// more than a document may.
pub fn read_protobuf(bytes: &[u8], types: &Types) -> Result<Value, String> {
    from_protobuf(bytes, types, &Account::own()).map_err(|unread| unread.to_string())
}
