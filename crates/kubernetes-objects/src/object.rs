//! [`Object`] and [`Key`]: a stored object and its key in a collection.
//!
//! An [`Object`] is its JSON, encoded once, with a small index for selectors. Its bytes never hold the resourceVersion,
//! which is inserted on output. So the same bytes serve every revision that a store assigns. A DELETED event shows the
//! last content with a new revision without another encoding. Partial metadata is a slice of the bytes.

mod encode;
pub mod extent;
mod field_positions;
mod go_json;
pub mod json_patch;
mod kept;
mod key;
mod labels;
pub mod metadata;
pub mod names;
mod patch;
mod rewritten;
pub mod selector;
mod shape;
mod sharing;
mod write;

pub use go_json::{to_html_json, to_json, write_json};
pub use key::Key;
pub use labels::Labels;
pub use shape::Shape;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::quota;
use encode::{Encoded, MANAGED_FIELDS, encode};
use field_positions::{FieldPositions, Uid};
use patch::Pieces;
use shape::Shown;

/// A JSON object as a tree.
pub type Tree = Map<String, Value>;

/// The offset of the first occurrence of `wanted`.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The offset of the last occurrence of `wanted`.
fn find_last(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).rposition(|window| window == wanted)
}

/// An object that was converted to another shape is cached, if it uses at most this many bytes more than the stored
/// object. The limit exists because a default may be a megabyte, and there may be many objects.
const SHOWN_MORE: usize = 4 << 10;

/// The memory of an object besides its strings, in bytes.
const OBJECT: usize = 600;

/// The reason why a tree cannot be stored as an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ObjectError(String);

impl ObjectError {
    /// An error that reports why a value is not an object or cannot become one.
    pub fn new(why: String) -> Self {
        Self(why)
    }
}

/// An object: its JSON without the resourceVersion, and a small index.
#[derive(Clone, Debug)]
pub struct Object {
    key: Key,
    uid: Uid,
    labels: Labels,
    /// The JSON of the object or, with a `patch`, the JSON of a similar object.
    json: Bytes,
    /// The patch that turns `json` into the JSON of this object.
    patch: Option<Box<[u8]>>,
    /// The memory of the tree without its managed fields, in bytes.
    tree_size: u32,
    /// The positions of the fields in the JSON that are read without parsing.
    places: FieldPositions,
    /// The values of the selectable fields, once a selector has read them.
    selected: OnceLock<Box<selector::Selection>>,
    /// The shape in which the object was written.
    shape: Shape,
    /// The object in another shape, once a reader has requested it.
    shown: Shown,
}

impl Object {
    /// The largest stored object, in bytes of JSON; same as etcd.
    pub const LIMIT: usize = 3 << 19;

    /// Encodes a tree with its keys in byte order, same as kube-apiserver. A resourceVersion in the tree is omitted.
    ///
    /// # Errors
    /// If `metadata`, its name or its uid is missing, or if a label is not a string.
    pub fn from_tree(tree: &Tree) -> Result<Self, ObjectError> {
        Self::encoded(tree, None)
    }

    /// Encodes a tree together with separate managed fields: the JSON of `metadata.managedFields`, or no bytes. Managed
    /// fields in the tree are omitted.
    ///
    /// # Errors
    /// Same as [`Object::from_tree`].
    pub fn from_parts(tree: &Tree, managed_fields: &[u8]) -> Result<Self, ObjectError> {
        Self::encoded(tree, Some(managed_fields))
    }

    fn encoded(tree: &Tree, managed_fields: Option<&[u8]>) -> Result<Self, ObjectError> {
        let metadata = tree
            .get("metadata")
            .and_then(Value::as_object)
            .ok_or_else(|| ObjectError("metadata: must be an object".to_owned()))?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        let name = text("name").filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| ObjectError("metadata.name: is missing".to_owned()))?;
        let uid = text("uid").filter(|uid| !uid.is_empty());
        let uid = uid.ok_or_else(|| ObjectError("metadata.uid: is missing".to_owned()))?;
        let labels = Labels::of(metadata)?;
        let of_managers = metadata.get(MANAGED_FIELDS).map_or(0, quota::of_value);
        let tree_size = quota::of_tree(tree) - of_managers;
        let encoded = encode(tree, metadata, managed_fields);
        let Encoded { json, places } = encoded;
        Ok(Self {
            key: Key::new(text("namespace"), name),
            uid: Uid::within(&json, &places, uid),
            labels,
            tree_size: u32::try_from(tree_size).unwrap_or(u32::MAX),
            // A boxed slice has no spare capacity.
            json: json.into_boxed_slice().into(),
            patch: None,
            places,
            selected: OnceLock::new(),
            shape: Shape::default(),
            shown: Shown::default(),
        })
    }

    /// The same object with this shape.
    #[must_use]
    pub fn of_shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// The shape in which the object was written.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the object in another shape. `make` converts it, once for all readers. If the result is much larger than
    /// the stored object, it is not cached and `make` is called for each reader.
    ///
    /// # Errors
    /// The errors of `make`, which are not cached.
    pub fn shown<E>(
        &self,
        shape: Shape,
        make: impl FnOnce() -> Result<Self, E>,
    ) -> Result<Arc<Self>, E> {
        self.shown.get_or_make(shape, self.size() + SHOWN_MORE, || {
            let made = make()?;
            // Equal content is stored once.
            let shown = if made.same_content(self) { self.clone() } else { made };
            Ok(shown.of_shape(shape))
        })
    }

    /// Returns this object if its name, namespace and uid are equal to those of `other`, which is another form of the
    /// object.
    ///
    /// # Errors
    /// If one of them differs.
    pub fn still_is(self, other: &Self) -> Result<Self, ObjectError> {
        if (&self.key, self.uid()) == (&other.key, other.uid()) {
            return Ok(self);
        }
        Err(ObjectError("metadata: name, namespace and uid may not change".to_owned()))
    }

    /// The key of the object in its collection.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The uid.
    pub fn uid(&self) -> &str {
        self.uid.text(self.patch.as_deref().unwrap_or(&self.json))
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The JSON of the object, without the resourceVersion.
    pub fn json(&self) -> Cow<'_, [u8]> {
        if !self.is_sharing() {
            return Cow::Borrowed(&self.json);
        }
        let mut json = Vec::with_capacity(self.json_size());
        self.pieces().for_each(|piece| json.extend_from_slice(piece));
        Cow::Owned(json)
    }

    /// The pieces of the JSON, in order.
    fn pieces(&self) -> Pieces<'_> {
        Pieces::of(&self.json, self.patch.as_deref().unwrap_or_default())
    }

    /// The version in which the object is stored, such as `example.com/v1`. Empty if the object does not contain it.
    pub fn api_version(&self) -> Cow<'_, str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Typed<'a> {
            #[serde(borrow, default)]
            api_version: Cow<'a, str>,
        }
        // `apiVersion` is nearly always the first field.
        let first = self.json.strip_prefix(b"{\"apiVersion\":\"").and_then(|rest| {
            let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
            let text = std::str::from_utf8(&rest[..end]).ok()?;
            (rest[end] == b'"').then_some(text)
        });
        first.map_or_else(
            || {
                serde_json::from_slice::<Typed<'_>>(&self.json())
                    .map(|typed| typed.api_version.into_owned())
                    .unwrap_or_default()
                    .into()
            },
            Cow::Borrowed,
        )
    }

    /// The size of the JSON, in bytes.
    pub fn json_size(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// The memory of the tree that [`Object::to_parts`] returns, in bytes.
    pub fn tree_size(&self) -> usize {
        self.tree_size as usize
    }

    /// The approximate memory of the object, including its entries in maps, in bytes.
    pub fn size(&self) -> usize {
        self.json_size() + self.labels.size() + OBJECT
    }

    /// Whether both objects have the same content, regardless of their revisions.
    pub fn same_content(&self, other: &Self) -> bool {
        match (&self.patch, &other.patch) {
            (None, None) => self.json == other.json,
            _ => self.json() == other.json(),
        }
    }

    /// The tree of the object, without the resourceVersion.
    pub fn to_tree(&self) -> Tree {
        tree_of(&self.json())
    }

    /// The tree without the resourceVersion and the managed fields, and the managed fields as JSON. Managed fields are
    /// often half of an object, and few callers read them.
    pub fn to_parts(&self) -> (Tree, Bytes) {
        let Range { start, end } = self.places.managed_fields();
        if end == 0 {
            return (self.to_tree(), Bytes::new());
        }
        (tree_of(&self.json_without_managers()), self.json.slice(start..end))
    }

    /// The JSON without the resourceVersion and the managed fields.
    pub fn json_without_managers(&self) -> Cow<'_, [u8]> {
        let Range { start, end } = self.places.managed_fields();
        if end == 0 {
            return self.json();
        }
        // The key is removed too, and so is the comma after the value: the name of the object always follows.
        let start_of_member = start - "\"\":".len() - MANAGED_FIELDS.len();
        Cow::Owned([&self.json[..start_of_member], &self.json[end + 1..]].concat())
    }
}

/// Parses JSON that `encode` has written. If the JSON is invalid, memory is corrupt and the tree is empty. UTF-8 is
/// validated once for all of the JSON and not again for each string in it.
fn tree_of(json: &[u8]) -> Tree {
    str::from_utf8(json).ok().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub(super) fn object(tree: Value) -> Object {
        Object::from_tree(tree.as_object().unwrap()).unwrap()
    }

    pub(super) fn written(object: &Object) -> String {
        let mut out = Vec::new();
        object.write(42, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn managed_fields_are_separate_from_the_object_tree() {
        let managers = json!([{"fieldsV1": {"f:a": {}}, "manager": "m"}]);
        let bare = json!({
            "metadata": {"labels": {"a": "b"}, "name": "a", "uid": "u"}, "spec": {"x": 1},
        });
        let mut whole = bare.clone();
        whole["metadata"]["managedFields"] = managers.clone();
        let object = object(whole.clone());
        let (tree, beside) = object.to_parts();
        assert_eq!(Value::Object(tree.clone()), bare);
        assert_eq!(serde_json::from_slice::<Value>(&beside).unwrap(), managers);
        let again = Object::from_parts(&tree, &beside).unwrap();
        assert!(again.same_content(&object));
        assert_eq!(Value::Object(again.to_tree()), whole);
        assert_eq!(again.tree_size(), quota::of_tree(&tree));
        let whole = quota::of_tree(whole.as_object().unwrap());
        assert!(again.tree_size() + quota::of_json(&beside) >= whole);
        // The same for an object without managed fields.
        let object = Object::from_parts(&tree, &[]).unwrap();
        let (same, nothing) = object.to_parts();
        assert_eq!((same, nothing.len()), (tree, 0));
    }

    #[test]
    fn encoded_objects_parse_to_the_same_tree() {
        let tree =
            json!({"metadata": {"name": "a\"b", "uid": "u", "zzz": [1, {"x": null}]}, "a": 1e300});
        let object = object(tree.clone());
        assert_eq!(Value::Object(object.to_tree()), tree);
        let with_revision: Value = serde_json::from_str(&written(&object)).unwrap();
        assert_eq!(with_revision["metadata"]["resourceVersion"], "42");
    }

    #[test]
    fn objects_without_name_uid_or_string_labels_are_rejected() {
        let rows = [
            (json!({}), "metadata: must be an object"),
            (json!({"metadata": {"uid": "u"}}), "metadata.name: is missing"),
            (json!({"metadata": {"name": "a"}}), "metadata.uid: is missing"),
            (
                json!({"metadata": {"name": "a", "uid": "u", "labels": {"x": 1}}}),
                "metadata.labels.x: must be a text",
            ),
        ];
        for (tree, expected) in rows {
            let error = Object::from_tree(tree.as_object().unwrap()).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
