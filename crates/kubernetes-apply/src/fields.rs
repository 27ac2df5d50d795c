//! Fields: the fields that a manager owns, stored as the text of `fieldsV1` and parsed only where a write needs them.

use bytes::Bytes;

use super::field_set::FieldSet;
use super::fields_v1;
use super::path_element::PathElement;

/// The fields that a manager owns, as the text of `fieldsV1`. A parsed set uses ten times as much memory.
#[derive(Clone, Debug, Default)]
pub struct Fields(Bytes);

impl From<FieldSet> for Fields {
    fn from(set: FieldSet) -> Self {
        Self::from(&set)
    }
}

impl From<&FieldSet> for Fields {
    fn from(set: &FieldSet) -> Self {
        let mut text = String::new();
        fields_v1::write(set, &mut text);
        // A boxed string has no spare capacity.
        Self(text.into_boxed_str().into_boxed_bytes().into())
    }
}

/// Fields are equal if they are the same set, because a set can be encoded in several ways.
impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.is_same_text(other) || self.set() == other.set()
    }
}

impl Eq for Fields {}

impl Fields {
    /// Wraps the text of `fieldsV1`.
    pub fn of_text(text: Bytes) -> Self {
        Self(text)
    }

    /// Whether both texts are equal. Different texts can still encode the same set.
    pub fn is_same_text(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Whether the text equals this one.
    pub fn is_text(&self, text: &str) -> bool {
        self.0 == text
    }

    /// The size of the text in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0[..], b"" | b"{}" | b"null")
    }

    /// Whether the set contains this path.
    pub fn has(&self, path: Vec<PathElement>) -> bool {
        !self.intersection(&FieldSet::of_path(path.into_iter())).is_empty()
    }

    /// Parses the set; empty if the text cannot be parsed.
    pub fn set(&self) -> FieldSet {
        self.read(fields_v1::read)
    }

    /// Returns the paths that are in the other set too.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.read(|text| fields_v1::intersection(text, other))
    }

    /// Returns the paths that are only in this set. Paths below a path of the other set are retained.
    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        let text = std::str::from_utf8(&self.0).map_err(|error| error.to_string());
        match text.and_then(|text| fields_v1::difference(text, other)) {
            Ok(left) => Self(left.into_boxed_str().into_boxed_bytes().into()),
            Err(_) => self.set().difference(other).into(),
        }
    }

    /// Appends the text of `fieldsV1`.
    pub fn write(&self, out: &mut String) {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.is_empty() => out.push_str(text),
            _ => out.push_str("{}"),
        }
    }

    fn read(&self, read: impl FnOnce(&str) -> Result<FieldSet, String>) -> FieldSet {
        if self.is_empty() {
            return FieldSet::default();
        }
        let text = std::str::from_utf8(&self.0).map_err(|error| error.to_string());
        text.and_then(read).unwrap_or_else(|why| {
            tracing::debug!(error = %why, "ignored managed fields that cannot be decoded");
            FieldSet::default()
        })
    }
}
