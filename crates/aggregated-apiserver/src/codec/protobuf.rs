//! Objects in protobuf, both directions: what typed clients written in Go send, and ask
//! for first.
//!
//! The envelope is `k8s`, a zero, and a message of version and kind, and of the bytes of
//! the object.

mod decode;
mod encode;

pub use decode::read;
pub use encode::{event, item, list_frame, to_protobuf};

/// What every object begins with.
const MAGIC: &[u8] = b"k8s\0";
