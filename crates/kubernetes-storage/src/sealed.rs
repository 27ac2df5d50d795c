//! Objects as stores that outlive the process keep them: encrypted, if that is configured, and guarded
//! against damage.

use std::fmt;
use std::sync::Arc;

use super::Encryption;
use super::encryption::{Opened, Unknown};
use crate::object::{Key, Object};

/// How a store writes objects down.
#[derive(Clone, Default)]
pub(super) struct Sealing {
    encryption: Arc<Encryption>,
    /// What the places in this store begin with: a value that is encrypted is of one place.
    prefix: String,
}

/// What is under a key.
pub(super) struct Read {
    /// The object, if there is one.
    pub object: Option<Object>,
    /// Whether it would be written in another way now.
    pub is_stale: bool,
}

/// Why what is kept cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is not what was written.
    Damaged(String),
    /// It is, but its key is missing.
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
    /// One whose places begin with `prefix`.
    pub fn new(encryption: Arc<Encryption>, prefix: &str) -> Self {
        Self { encryption, prefix: prefix.to_owned() }
    }

    /// A value as it is written: what guards it, and the object, if there is one. A store that knows
    /// the number of a write before it is written has it guarded, too; others say 0.
    ///
    /// # Errors
    /// When it cannot be encrypted.
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

    /// What a value holds.
    ///
    /// # Errors
    /// When it is not what was written, in a form that is not known here, or no key fits it.
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
        // Nearly always nothing is encrypted, and nothing asks for its place.
        let place =
            if self.encryption.is_none() { String::new() } else { self.place(collection, name) };
        let opened = self.encryption.open(collection, &place, kept);
        let Opened { plain, is_stale } = opened.map_err(Unreadable::Locked)?;
        let read = Object::from_kept(key.clone(), &plain);
        let object = read.map_err(|error| Unreadable::Damaged(error.to_string()))?;
        Ok(Read { object: Some(object), is_stale })
    }

    /// What has to be learned before a value can be opened; nothing, if it is damaged.
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

    /// Refuses if objects of a collection cannot be encrypted at the moment.
    ///
    /// # Errors
    /// Why not.
    pub fn ensure_writes(&self, collection: &str) -> Result<(), String> {
        self.encryption.ensure_writes(collection)
    }

    /// Why what is kept can be encrypted or decrypted no more, if that is known.
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
