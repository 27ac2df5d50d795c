//! Objects as stores that outlive the process keep them, guarded against damage.

use crate::object::{Key, Object};

/// A value as it is written: what guards it, and the object, if there is one. A store that knows the
/// number of a write before it is written has it guarded, too; others say 0.
pub(super) fn seal(number: u64, collection: &str, name: &str, object: Option<&Object>) -> Vec<u8> {
    let mut value = vec![0; 4];
    if let Some(object) = object {
        value.extend_from_slice(&object.to_kept());
    }
    let sum = sum(number, collection, name, &value[4..]);
    value[..4].copy_from_slice(&sum.to_le_bytes());
    value
}

/// The object in a value, if there is one.
///
/// # Errors
/// When it is not what was written, or in a form that is not known here; why.
pub(super) fn open(
    number: u64,
    collection: &str,
    name: &str,
    value: &[u8],
) -> Result<Option<Object>, String> {
    let (found, kept) = value.split_first_chunk().ok_or("it is cut off")?;
    if u32::from_le_bytes(*found) != sum(number, collection, name, kept) {
        return Err("it is not what was written".to_owned());
    }
    if kept.is_empty() {
        return Ok(None);
    }
    let read = Object::from_kept(Key::of_text(name), kept);
    read.map(Some).map_err(|error| error.to_string())
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
