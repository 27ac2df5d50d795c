//! Protobuf, both directions: the preferred encoding of typed Go clients.
//!
//! The envelope is `k8s`, a zero byte, and a message with the apiVersion and kind, and the bytes of the object.

mod decode;
mod encode;

pub use decode::read;
pub use encode::{event, item, list_frame, to_protobuf};

/// The prefix of every object.
const MAGIC: &[u8] = b"k8s\0";
