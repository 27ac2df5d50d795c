//! Conversion by code without a JSON tree: the type is deserialized from the stored JSON, and the result is serialized
//! to JSON. Lists convert many objects, and a tree costs more than the types.
//!
//! This module returns no errors. If an object cannot be converted directly, for any reason, it is converted with a
//! tree, which reports the error. Both ways must create the same object, which is tested with random objects.

use serde_json::Value;

use super::conversion::Converter;
use super::erased_conversion::give_back_metadata;
use super::{Kind, Version};
use crate::object::{Object, Tree};
use crate::quota;

impl Kind {
    /// Converts a stored object to another version, if that is possible without a tree.
    pub(crate) fn converted_directly(&self, object: &Object, version: &Version) -> Option<Object> {
        let Some(Converter::Code(code)) = &self.conversion else { return None };
        let of = version.schema.root();
        // The direct conversion does not support objects that were written under another definition or in an unknown
        // version. It does not support schemas with embedded resources, which have pruning rules of their own, or with
        // rules for metadata, which need a tree.
        if !self.is_current(object)
            || of.go.is_some()
            || of.subtree.embedded
            || of.knows("metadata")
        {
            return None;
        }
        let kept_in = object.api_version();
        let mut known = self.all_versions().chain([&self.storage]);
        let from = known.find(|known| self.is_api_version(&kept_in, &known.name))?;
        if from.name == version.name || !object.is_of(&kept_in, &self.names.kind) {
            return None;
        }
        let json = object.json_without_managers();
        // UTF-8 is validated once here, not for each string in the JSON.
        let json = str::from_utf8(&json).ok()?;
        let written = code.convert_json(json, (&from.name, &version.name), of)?;
        let kind = written.member(b"kind")?.strip_prefix(b"\"")?.strip_suffix(b"\"");
        if kind != Some(self.names.kind.as_bytes()) {
            return None;
        }
        let api_version = self.api_version(&version.name);
        let made = written.member(b"metadata")?;
        if object.has_metadata(made) {
            return object.with_members(written.members(), &api_version);
        }
        let (own, size) = self.with_metadata_made(object, made)?;
        let members = written.members().map(|(name, value, of_value)| match name {
            b"metadata" => (name, value, size),
            _ => (name, value, of_value),
        });
        own.with_members(members, &api_version)
    }

    /// The metadata of an object with the changes that a conversion may make, as an object without other fields, and
    /// its memory as a tree.
    fn with_metadata_made(&self, object: &Object, made: &[u8]) -> Option<(Object, usize)> {
        let (before, managed_fields) = object.metadata_parts();
        let tree = |metadata: &[u8]| {
            let metadata = serde_json::from_slice(metadata).ok()?;
            let kind = Value::from(self.names.kind.as_str());
            Some(Tree::from_iter([("kind".to_owned(), kind), ("metadata".to_owned(), metadata)]))
        };
        let (before, mut made) = (tree(&before)?, tree(made)?);
        give_back_metadata(before, &mut made).ok()?;
        let size = quota::of_value(made.get("metadata")?);
        Some((Object::from_parts(&made, managed_fields).ok()?, size))
    }
}
