//! Parsers of JSON, YAML and protobuf, with limits on the size of the resulting trees, and the encoder of protobuf.

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

/// Encodes a JSON object as protobuf, in the envelope of responses. Returns `None` if its kind is not among the types.
pub fn write_protobuf(object: &Value, types: &Types) -> Option<Vec<u8>> {
    to_protobuf(object.as_object()?, types)
}

/// Decodes a protobuf object in the envelope of requests. Fields that its types do not define are ignored.
///
/// # Errors
/// The reason, if the message is malformed, its kind is not among the types, or it exceeds the limits of a document.
pub fn read_protobuf(bytes: &[u8], types: &Types) -> Result<Value, String> {
    from_protobuf(bytes, types, &Account::own()).map_err(|unread| unread.to_string())
}
