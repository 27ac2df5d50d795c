//! The format in which durable stores store objects: with a checksum, and encrypted if encryption is configured.

use std::fmt;
use std::sync::Arc;

use super::Encryption;
use super::encryption::{Opened, Unknown};
use crate::object::{Key, Object};

/// The encoder and decoder of stored values.
#[derive(Clone, Default)]
pub(super) struct Sealing {
    encryption: Arc<Encryption>,
    /// The prefix of all locations in this store. An encrypted value is bound to its location.
    prefix: String,
}

/// A decoded value.
pub(super) struct Read {
    /// The object, if the value has one.
    pub object: Option<Object>,
    /// Whether the value would be encoded differently now.
    pub is_stale: bool,
}

/// The reason why a stored value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The value differs from the one that was written.
    Damaged(String),
    /// The value is intact, but its encryption key is missing.
    Locked(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(why) => write!(f, "is damaged: {why}"),
            Self::Locked(why) => {
                write!(f, "cannot be decrypted (--encryption-provider-config): {why}")
            }
        }
    }
}

impl Sealing {
    /// Creates an encoder for locations that begin with `prefix`.
    pub fn new(encryption: Arc<Encryption>, prefix: &str) -> Self {
        Self { encryption, prefix: prefix.to_owned() }
    }

    /// Encodes a value: its checksum, and the object, if there is one. The checksum also covers the number of the
    /// write, if the store knows this number before it writes. Other stores pass 0.
    ///
    /// # Errors
    /// If the object cannot be encrypted.
    pub fn seal(
        &self,
        number: u64,
        collection: &str,
        name: &str,
        object: Option<&Object>,
    ) -> Result<Vec<u8>, String> {
        let kept = match object {
            None => Vec::new(),
            Some(object) => {
                self.encryption.seal(collection, &self.place(collection, name), object.to_kept())?
            }
        };
        let sum = sum(number, collection, name, &kept);
        Ok([&sum.to_le_bytes()[..], &kept].concat())
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// If the value differs from the one that was written, has an unknown format, or is encrypted with an unknown key.
    pub fn open(
        &self,
        number: u64,
        collection: &str,
        key: &Key,
        value: &[u8],
    ) -> Result<Read, Unreadable> {
        let name = key.text();
        let damaged = |why: &str| Unreadable::Damaged(why.to_owned());
        let (found, kept) = value.split_first_chunk().ok_or_else(|| damaged("it is cut off"))?;
        if u32::from_le_bytes(*found) != sum(number, collection, name, kept) {
            return Err(damaged("it is not what was written"));
        }
        if kept.is_empty() {
            return Ok(Read { object: None, is_stale: false });
        }
        // Usually nothing is encrypted, and the location is not needed.
        let place =
            if self.encryption.is_none() { String::new() } else { self.place(collection, name) };
        let opened = self.encryption.open(collection, &place, kept);
        let Opened { plain, is_stale } = opened.map_err(Unreadable::Locked)?;
        let read = Object::from_kept(key.clone(), &plain);
        let object = read.map_err(|error| Unreadable::Damaged(error.to_string()))?;
        Ok(Read { object: Some(object), is_stale })
    }

    /// Returns the seed that a KMS plugin must decrypt before the value can be decoded, if this seed is not known yet.
    /// Returns `None` if the value is damaged.
    pub fn unknown(
        &self,
        number: u64,
        collection: &str,
        name: &str,
        value: &[u8],
    ) -> Option<Unknown> {
        let (found, kept) = value.split_first_chunk()?;
        let unknown = self.encryption.unknown(collection, kept)?;
        let is_whole = u32::from_le_bytes(*found) == sum(number, collection, name, kept);
        is_whole.then_some(unknown)
    }

    /// Checks that objects of a collection can be encrypted at the moment.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn ensure_writes(&self, collection: &str) -> Result<(), String> {
        self.encryption.ensure_writes(collection)
    }

    /// The reason why stored values can no longer be encrypted or decrypted, if such a problem is known.
    pub fn trouble(&self) -> Option<String> {
        self.encryption.trouble()
    }

    fn place(&self, collection: &str, name: &str) -> String {
        format!("{}{collection}/{name}", self.prefix)
    }
}

fn sum(number: u64, collection: &str, name: &str, kept: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&number.to_le_bytes());
    for text in [collection, name] {
        sum.update(text.as_bytes());
        sum.update(&[0]);
    }
    sum.update(kept);
    sum.finalize()
}
