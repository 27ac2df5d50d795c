//! [`Object`] and [`Key`]: a stored object and its key in a collection.
//!
//! An [`Object`] is its JSON, encoded once, with a small index for selectors. Its bytes never hold the resourceVersion,
//! which is inserted on output. So the same bytes serve every revision that a store assigns. A DELETED event shows the
//! last content with a new revision without another encoding. Partial metadata is a slice of the bytes.

pub mod extent;
mod field_positions;
pub mod json_patch;
mod kept;
mod labels;
pub mod metadata;
pub mod names;
mod patch;
mod rewritten;
pub mod selector;
mod shape;

pub use labels::Labels;
pub use shape::Shape;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::hash::RandomState;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arcstr::ArcStr;
use bytes::{BufMut, Bytes};
use serde::Deserialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::quota;
use field_positions::{FieldPositions, Uid};
use patch::Pieces;
use shape::Shown;

/// A JSON object as a tree.
pub type Tree = Map<String, Value>;

/// The key of an object in its collection: `namespace/name`, or `name` for a cluster-scoped kind. The byte order of
/// keys is the order of lists. A copy is one pointer, because indexes and caches hold many copies of the key of an
/// object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(ArcStr);

impl Key {
    /// The key of an object; `namespace` is `None` for cluster-scoped kinds.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// The key with this string form.
    pub fn of_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The string form of the key.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// A key that sorts before every key of the namespace.
    pub fn first_of_namespace(namespace: &str) -> Self {
        Self(format!("{namespace}/").into())
    }

    /// The first key that sorts after this one.
    pub fn following(&self) -> Self {
        Self(format!("{self}\0").into())
    }

    /// The namespace, if the kind is namespaced.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

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

    /// A hash that is equal for objects that can share their JSON.
    pub fn form(&self, hasher: &RandomState) -> u64 {
        patch::form(&self.json(), hasher)
    }

    /// Stores only the difference to the JSON of one of the others, if this object is like one of them. If several of
    /// them are alike, the one with the smallest difference is used. Labels that are equal share their memory.
    #[must_use]
    pub fn sharing_with(mut self, others: &[&Self]) -> Self {
        if let Some(other) = others.iter().find(|other| other.labels == self.labels) {
            self.labels = other.labels.clone();
        }
        if self.is_sharing() || !self.places.managed_fields().is_empty() {
            return self;
        }
        // Nothing before the metadata may differ, because that part is read without a patch.
        let (from, uid) = (self.places.metadata().start, self.uid.place());
        // The others often share their JSON, which is compared once.
        let is_first = |at: usize, other: &Self| {
            others[..at].iter().all(|before| before.json.as_ptr() != other.json.as_ptr())
        };
        let others = others.iter().enumerate().filter(|(at, other)| is_first(*at, other));
        let patches = others.filter_map(|(_, other)| {
            Some((other, patch::between(&other.json, &self.json, from, uid)?))
        });
        let Some((other, patch)) = patches.min_by_key(|(_, patch)| patch.len()) else {
            return self;
        };
        let uid = Uid::in_patch(&patch, self.uid());
        Self { uid, json: other.json.clone(), patch: Some(patch), ..self }
    }

    /// Whether the object shares its JSON with another object.
    pub fn is_sharing(&self) -> bool {
        self.patch.is_some()
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

    /// Appends the JSON of the object with this resourceVersion, or without one if it is `0`.
    pub fn write(&self, revision: impl fmt::Display, out: &mut impl BufMut) {
        self.write_range(0..usize::MAX, revision, out);
    }

    /// Appends the JSON with this resourceVersion but without `apiVersion` and `kind`, for an item of a list that has
    /// both.
    pub fn write_without_types(&self, revision: impl fmt::Display, out: &mut impl BufMut) {
        // Fields are in the order of their names, so `apiVersion` and `kind` are in front of `metadata`. No kind of
        // Kubernetes has a field with fields of its own before `apiVersion`, or between `kind` and `metadata`.
        let mut start = 0;
        let head = &self.json[..self.places.metadata().start];
        let api_version = find(head, b"\"apiVersion\":\"");
        let kind = find_last(head, b"\"kind\":\"");
        for member in [api_version, kind].into_iter().flatten() {
            let end = find(&head[member..], b"\",").map_or(member, |length| member + length + 2);
            if member >= start {
                out.put_slice(&head[start..member]);
                start = end;
            }
        }
        self.write_range(start..usize::MAX, revision, out);
    }

    /// Appends the JSON of the metadata, with this resourceVersion.
    pub fn write_metadata(&self, revision: impl fmt::Display, out: &mut impl BufMut) {
        self.write_range(self.places.metadata(), revision, out);
    }

    fn write_range(&self, range: Range<usize>, revision: impl fmt::Display, out: &mut impl BufMut) {
        let splice = self.places.splice();
        self.put(range.start..splice, out);
        let mut version = String::with_capacity(48);
        let _ = write!(version, ",\"resourceVersion\":\"{revision}\"");
        // Objects that are not stored have no resourceVersion.
        if version != ",\"resourceVersion\":\"0\"" {
            out.put_slice(version.as_bytes());
        }
        self.put(splice..range.end, out);
    }

    /// Appends this range of the JSON.
    fn put(&self, range: Range<usize>, out: &mut impl BufMut) {
        let mut at = 0;
        for piece in self.pieces() {
            let within = |place: usize| place.saturating_sub(at).min(piece.len());
            out.put_slice(&piece[within(range.start)..within(range.end)]);
            at += piece.len();
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

struct Encoded {
    json: Vec<u8>,
    places: FieldPositions,
}

const VERSION: &str = "resourceVersion";
const MANAGED_FIELDS: &str = "managedFields";

/// Writes the tree in byte order of its keys, and records the position of a resourceVersion in the metadata. The
/// position is after every key that sorts before `resourceVersion`; `name` is always one of these keys.
fn encode(tree: &Tree, metadata: &Tree, managed_fields: Option<&[u8]>) -> Encoded {
    let mut encoded = Vec::with_capacity(512 + managed_fields.map_or(0, <[u8]>::len));
    let (mut splice, mut whole, mut of_managers) = (0, 0..0, 0..0);
    let json = &mut encoded;
    for (position, key) in sorted_keys(tree).into_iter().enumerate() {
        json.push(if position == 0 { b'{' } else { b',' });
        write_json(json, key);
        json.push(b':');
        if key != "metadata" {
            write_json(json, &tree[key]);
            continue;
        }
        let start = json.len();
        let mut keys = sorted_keys(metadata);
        let beside = MANAGED_FIELDS.to_owned();
        match (managed_fields, keys.binary_search(&&beside)) {
            (Some([]), Ok(place)) => drop(keys.remove(place)),
            (Some([_, ..]), Err(place)) => keys.insert(place, &beside),
            _ => {}
        }
        let mut first = true;
        for key in keys {
            if key == VERSION {
                continue;
            }
            if key.as_str() > VERSION && splice == 0 {
                splice = json.len();
            }
            json.push(if first { b'{' } else { b',' });
            first = false;
            write_json(json, key);
            json.push(b':');
            let start_of_value = json.len();
            match managed_fields.filter(|_| key == MANAGED_FIELDS) {
                Some(managed_fields) => json.extend_from_slice(managed_fields),
                None => write_json(json, &metadata[key]),
            }
            if key == MANAGED_FIELDS {
                of_managers = start_of_value..json.len();
            }
        }
        if splice == 0 {
            splice = json.len();
        }
        json.push(b'}');
        whole = start..json.len();
    }
    json.push(b'}');
    Encoded { places: FieldPositions::new(splice, whole, of_managers), json: encoded }
}

/// The keys of a tree in byte order. Trees are sorted already, unless a crate in the build enables insertion order in
/// serde_json.
fn sorted_keys(tree: &Tree) -> Vec<&String> {
    let mut keys: Vec<&String> = tree.keys().collect();
    keys.sort_unstable();
    keys
}

/// A value as JSON, with numbers in Go's format.
pub fn to_json(value: &Value) -> String {
    let mut json = Vec::new();
    write_json(&mut json, value);
    String::from_utf8(json).unwrap_or_default()
}

/// A value as JSON, with the characters escaped that HTML and JavaScript interpret, same as Go's encoder.
pub fn to_html_json(value: &Value) -> String {
    to_json(value)
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Appends a value as JSON, with its fields in their order and numbers in Go's format.
pub fn write_json<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, value: &T) {
    // Strings, numbers and trees with string keys always encode.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(json, GoNumbers));
}

/// Writes numbers in Go's format: `1` without a fraction, and an exponent only below 1e-6 and from 1e21 on.
struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_u64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        #[allow(clippy::cast_precision_loss)] // Go decodes an integer outside i64 as a float
        match i64::try_from(value) {
            Ok(value) => write!(writer, "{value}"),
            Err(_) => self.write_f64(writer, value as f64),
        }
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 {
            return writer.write_all(b"0");
        }
        if (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                write!(writer, "{digits}e+{exponent}")
            }
            _ => writer.write_all(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(tree: Value) -> Object {
        Object::from_tree(tree.as_object().unwrap()).unwrap()
    }

    fn written(object: &Object) -> String {
        let mut out = Vec::new();
        object.write(42, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn resource_version_is_written_in_sorted_field_order() {
        let dolly = object(json!({
            "spec": {"weight": 31.4},
            "metadata": {"uid": "u", "namespace": "default", "name": "dolly", "resourceVersion": "7"},
            "kind": "Llama",
        }));
        assert_eq!(
            written(&dolly),
            r#"{"kind":"Llama","metadata":{"name":"dolly","namespace":"default","resourceVersion":"42","uid":"u"},"spec":{"weight":31.4}}"#
        );
        let mut metadata = Vec::new();
        dolly.write_metadata(7, &mut metadata);
        assert_eq!(
            String::from_utf8(metadata).unwrap(),
            r#"{"name":"dolly","namespace":"default","resourceVersion":"7","uid":"u"}"#
        );
    }

    /// An object that shares its JSON is read in every form with its own content, regardless of the object it shares
    /// with.
    #[test]
    fn objects_with_a_common_base_read_like_whole_objects() {
        let of = |name: &str, uid: &str, phase: &str| {
            object(json!({
                "apiVersion": "example.com/v1", "kind": "Foo",
                "metadata": {
                    "creationTimestamp": "2026-01-01T00:00:00Z", "name": name, "namespace": "n", "uid": uid,
                    "labels": {"app": "a"},
                },
                "status": {"phase": phase, "text": "of which all of them have the same, and which is long"},
            }))
        };
        let hasher = RandomState::new();
        let first = of("first", "u-1", "Running");
        let whole = of("second", "u-22", "Pending");
        assert_eq!(first.form(&hasher), whole.form(&hasher));
        let shared = whole.clone().sharing_with(&[&first]);
        // The third object has the same content, whether it shares with a whole object or with one that shares itself.
        let third = of("third", "u-333", "").sharing_with(&[&shared]);
        assert!(shared.is_sharing() && third.is_sharing() && !first.is_sharing());
        assert!(third.same_content(&of("third", "u-333", "")) && !third.same_content(&shared));
        assert!(third.same_content(&of("third", "u-333", "").sharing_with(&[&first])));
        for (shared, whole) in [(&shared, &whole), (&third, &of("third", "u-333", ""))] {
            assert!(shared.same_content(whole) && whole.same_content(shared));
            assert_eq!(shared.json(), whole.json());
            assert_eq!((shared.uid(), shared.key()), (whole.uid(), whole.key()));
            assert_eq!((shared.size(), shared.json_size()), (whole.size(), whole.json_size()));
            assert_eq!(shared.api_version(), "example.com/v1");
            assert_eq!(shared.to_parts(), whole.to_parts());
            assert_eq!(shared.to_kept(), whole.to_kept());
            let forms: [fn(&Object, &mut Vec<u8>); 3] = [
                |object, out| object.write(5, out),
                |object, out| object.write_metadata(5, out),
                |object, out| object.write_without_types(5, out),
            ];
            for form in forms {
                let (mut one, mut other) = (Vec::new(), Vec::new());
                form(shared, &mut one);
                form(whole, &mut other);
                assert_eq!(String::from_utf8(one).unwrap(), String::from_utf8(other).unwrap());
            }
        }
        // The most similar of several objects is used, and the labels of an object with equal labels.
        let far = object(json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z", "name": "far", "namespace": "n", "uid": "u-4",
                "labels": {"app": "another"},
            },
            "status": {"phase": "Pending", "text": "of which all of them have the same, as long as another"},
        }));
        assert_eq!(far.form(&hasher), first.form(&hasher));
        let size = |object: &Object| object.patch.as_ref().map(|patch| patch.len());
        let of_all = of("fifth", "u-5", "").sharing_with(&[&far, &first, &far]);
        assert_eq!(size(&of_all), size(&of("fifth", "u-5", "").sharing_with(&[&first])));
        assert!(size(&of_all) < size(&of("fifth", "u-5", "").sharing_with(&[&far])));
        let text = |labels: &Labels| labels.iter().next().map(|(key, _)| key.as_ptr());
        assert_eq!(text(&of_all.labels), text(&first.labels));
        let of_far = far.clone().sharing_with(&[&first]);
        assert!(of_far.is_sharing() && of_far.same_content(&far));
        assert_eq!(of_far.labels().get("app"), Some("another"));
        // Objects of another form, with managed fields, or of another kind stay whole.
        for other in [
            json!({"metadata": {"name": "a", "uid": "u"}}),
            json!({"metadata": {"name": "a", "uid": "u", "managedFields": [{"manager": "m"}]}}),
        ] {
            let other = object(other);
            assert!(!other.clone().sharing_with(&[&first]).is_sharing());
            let is_managed = !other.places.managed_fields().is_empty();
            assert!(!is_managed || !other.clone().sharing_with(&[&other]).is_sharing());
        }
        let kind = |kind: &str| {
            object(json!({
                "kind": kind, "metadata": {"name": "a", "uid": "u"},
                "text": "of which both have the same, and which is as long as that",
            }))
        };
        assert!(kind("Foo").sharing_with(&[&kind("Foo")]).is_sharing());
        assert!(!kind("Foo").sharing_with(&[&kind("Bar")]).is_sharing());
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
    fn numbers_are_written_as_in_go() {
        let rows = [
            ("1.0", "1"),
            ("1.50", "1.5"),
            ("-0.0", "0"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1.5e-6", "0.0000015"),
            ("1.5e-7", "1.5e-7"),
            ("9223372036854775808", "9223372036854776000"),
            ("18446744073709551615", "18446744073709552000"),
            ("123456789012345678901234567890", "1.2345678901234568e+29"),
            ("0.1", "0.1"),
        ];
        for (given, expected) in rows {
            let value: Value = serde_json::from_str(given).unwrap();
            let mut json = Vec::new();
            write_json(&mut json, &value);
            assert_eq!(String::from_utf8(json).unwrap(), expected);
        }
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

    #[test]
    fn object_keys_sort_like_their_string_form() {
        let mut keys = [Key::new(Some("m"), "x"), Key::new(Some("m-1"), "x"), Key::new(None, "m")];
        keys.sort();
        assert_eq!(keys.map(|key| key.to_string()), ["m", "m-1/x", "m/x"]);
        assert_eq!(Key::new(Some("m"), "x").namespace(), Some("m"));
        assert_eq!(Key::new(None, "m").name(), "m");
    }
}
