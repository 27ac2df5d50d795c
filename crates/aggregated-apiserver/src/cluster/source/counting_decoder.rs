//! Decodes an object of the cluster, and counts the memory of the decoded object during decoding.
//!
//! The length of the JSON is not a measure of the memory: a Pod of 10 kB may become a view of 500 bytes, and
//! `{"":{"":{}}}` uses a hundred times its length. The count therefore covers the decoded type: its strings, the
//! elements of its lists and the nodes of its maps. Ignored fields cost nothing. The content of a `Box` is counted
//! without its outermost size, because it is not visible to the counter. Values that are decoded and then discarded are
//! counted.
//!
//! The decoded values are hashed, too. Two documents that differ only in ignored fields become equal objects, and
//! nothing has to be computed again.

mod deserializer;

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

use serde::de::{DeserializeOwned, Error};

use deserializer::Counting;

/// The memory that the allocator uses for a block in addition to its content, in bytes.
const BLOCK: usize = 16;
/// The number of entries in a node of a `BTreeMap`, and the smallest number of used entries.
const NODE: usize = 11;
const NODE_IN_USE: usize = 6;
/// The smallest capacity of a `Vec` that is not empty.
const SMALLEST_LIST: usize = 4;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The reason why an object was not decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The object exceeds the memory limit.
    TooLarge,
    /// The object does not match its type.
    Malformed(serde_json::Error),
}

/// A decoded object.
pub(super) struct Decoded<K> {
    pub object: K,
    /// The memory that the object uses, in bytes.
    pub bytes: usize,
    /// The hash of the decoded values. Equal values have equal hashes, and collisions are very unlikely.
    pub content: u64,
}

/// Decodes an object that may use `free_bytes` bytes. The managed fields and the last-applied annotation of kubectl are
/// omitted: they are often the largest part of an object, and no computation needs them.
pub(super) fn decode<K: DeserializeOwned>(
    text: &str,
    free_bytes: usize,
    hasher: &RandomState,
) -> Result<Decoded<K>, DecodeError> {
    let counter = Counter {
        left: Cell::new(free_bytes),
        is_exceeded: Cell::new(false),
        content: RefCell::new(hasher.build_hasher()),
        is_ignored: Cell::new(false),
        is_name: Cell::new(false),
    };
    let decode_error = |error| match counter.is_exceeded.get() {
        true => DecodeError::TooLarge,
        false => DecodeError::Malformed(error),
    };
    let mut json = serde_json::Deserializer::from_str(text);
    counter.take::<serde_json::Error>(size_of::<K>() + BLOCK).map_err(decode_error)?;
    let object = K::deserialize(Counting::of_object(&mut json, &counter));
    let object = object.map_err(decode_error)?;
    json.end().map_err(DecodeError::Malformed)?;
    let (bytes, content) = (free_bytes - counter.left.get(), counter.content.borrow().finish());
    Ok(Decoded { object, bytes, content })
}

struct Counter {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
    /// The hasher of the decoded values.
    content: RefCell<DefaultHasher>,
    /// Whether the type ignores the value that was read last.
    is_ignored: Cell<bool>,
    /// Whether the key that was read last is the name of a field. An unknown field leaves nothing in the decoded
    /// object. A map stores its keys, even if it ignores their values.
    is_name: Cell<bool>,
}

/// The form of a decoded value, which is part of the hash, so that different forms have different hashes: `[1]` and
/// `1`, `"true"` and `true`.
#[derive(Clone, Copy, Hash)]
enum Token {
    Scalar,
    Text,
    Nothing,
    Element,
    Member,
    End,
}

impl Counter {
    /// Adds a value to the hash.
    fn mix(&self, token: Token, value: impl Hash) {
        (token, value).hash(&mut *self.content.borrow_mut());
    }

    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => self.left.set(left),
            None => {
                self.is_exceeded.set(true);
                return Err(E::custom("too large"));
            }
        }
        Ok(())
    }
}

/// The position of a value in the object.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Object,
    Metadata,
    Annotations,
    Elsewhere,
}

impl Position {
    /// The position of a field.
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Metadata, "annotations") => Self::Annotations,
            _ => Self::Elsewhere,
        }
    }

    /// Whether a field is omitted.
    fn leaves_out(self, name: &str) -> bool {
        matches!(
            (self, name),
            (Self::Metadata, "managedFields") | (Self::Annotations, LAST_APPLIED)
        )
    }
}

/// Whether a list or map has its own allocation, or is part of the value that contains it.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Inline,
    Allocated,
    /// A string that is not stored, for example the name of a field.
    Identifier,
}

#[cfg(test)]
mod tests;
