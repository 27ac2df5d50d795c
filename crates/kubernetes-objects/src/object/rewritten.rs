//! An object with other fields and the same metadata.

use std::ops::Range;

use super::field_positions::FieldPositions;
use super::{MANAGED_FIELDS, Object, Shown};
use crate::quota;

/// A top-level field of an object: its name, its value as JSON, and the memory of that value as a tree in bytes.
pub type MemberJson<'a> = (&'a [u8], &'a [u8], usize);

impl Object {
    /// Whether the JSON begins with this `apiVersion` and this `kind`, followed by `metadata`, as in most kinds. False
    /// for an object that shares its JSON, which cannot be rewritten.
    pub fn is_of(&self, api_version: &str, kind: &str) -> bool {
        if self.is_sharing() {
            return false;
        }
        let head = &self.json[..self.places.metadata().start];
        let said = head.strip_prefix(b"{\"apiVersion\":\"").and_then(|rest| {
            let rest = rest.strip_prefix(api_version.as_bytes())?;
            rest.strip_prefix(b"\",\"kind\":\"")?.strip_suffix(b"\",\"metadata\":")
        });
        said == Some(kind.as_bytes())
    }

    /// The JSON of the metadata without the managed fields, as two parts: before and behind the managed fields.
    fn metadata_without_managers(&self) -> (&[u8], &[u8]) {
        let Range { start, end } = self.places.metadata();
        let managed_fields = self.places.managed_fields();
        match managed_fields.end {
            0 => (&self.json[start..end], &[]),
            end_of_managers => {
                let of_managers = managed_fields.start - "\"\":".len() - MANAGED_FIELDS.len();
                // The comma behind the managed fields is removed too: the name of the object always follows.
                (&self.json[start..of_managers], &self.json[end_of_managers + 1..end])
            }
        }
    }

    /// The JSON of the metadata without the managed fields, and the JSON of the managed fields, which may be empty.
    pub fn metadata_parts(&self) -> (Vec<u8>, &[u8]) {
        let (before, behind) = self.metadata_without_managers();
        ([before, behind].concat(), &self.json[self.places.managed_fields()])
    }

    /// Whether `json` is the metadata of the object without the managed fields.
    pub fn has_metadata(&self, json: &[u8]) -> bool {
        let (before, behind) = self.metadata_without_managers();
        json.strip_prefix(before) == Some(behind)
    }

    /// The object with these fields, which must be in the order of their names, and with its own metadata. The
    /// `apiVersion` among the fields is replaced. Returns `None` if the fields lack `apiVersion` or `metadata`.
    pub fn with_members<'a>(
        &self,
        members: impl Iterator<Item = MemberJson<'a>>,
        api_version: &str,
    ) -> Option<Self> {
        let mut json = Vec::with_capacity(self.json.len() + 256);
        let (mut tree_size, mut start, mut has_version) = (0, None, false);
        let metadata = self.places.metadata();
        for (index, (name, value, size)) in members.enumerate() {
            json.push(if index == 0 { b'{' } else { b',' });
            json.push(b'"');
            json.extend_from_slice(name);
            json.extend_from_slice(b"\":");
            tree_size += quota::of_member(index) + quota::of_text(std::str::from_utf8(name).ok()?);
            match name {
                b"apiVersion" => {
                    super::write_json(&mut json, api_version);
                    tree_size += quota::of_text(api_version);
                    has_version = true;
                    continue;
                }
                b"metadata" => {
                    start = Some(json.len());
                    json.extend_from_slice(&self.json[metadata.clone()]);
                }
                _ => json.extend_from_slice(value),
            }
            tree_size += size;
        }
        json.push(b'}');
        let start = start.filter(|_| has_version)?;
        let moved = |place: usize| place - metadata.start + start;
        let moved_range = |range: Range<usize>| moved(range.start)..moved(range.end);
        let managed_fields = match self.places.managed_fields() {
            Range { end: 0, .. } => 0..0,
            range => moved_range(range),
        };
        let splice = moved(self.places.splice());
        let places = FieldPositions::new(splice, moved_range(metadata.clone()), managed_fields);
        Some(Self {
            key: self.key.clone(),
            uid: self.uid.moved(metadata.start, start),
            labels: self.labels.clone(),
            tree_size: u32::try_from(tree_size).unwrap_or(u32::MAX),
            places,
            patch: None,
            json: json.into(),
            selected: std::sync::OnceLock::new(),
            shape: super::Shape::default(),
            shown: Shown::default(),
        })
    }
}
