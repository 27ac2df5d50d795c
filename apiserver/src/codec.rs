//! Bytes that become trees: JSON, YAML and protobuf, all bounded by what becomes
//! of them.

mod go_text;
mod protobuf;
mod text;

pub use protobuf::read as read_protobuf;
pub use text::{Parsed, from_json, from_yaml};
