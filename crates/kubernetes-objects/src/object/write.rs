//! Output of an object with its resourceVersion.

use std::fmt::{self, Write as _};
use std::ops::Range;

use bytes::BufMut;

use super::{Object, find, find_last};

impl Object {
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
}

#[cfg(test)]
mod tests {
    use super::super::tests::{object, written};
    use serde_json::json;

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
}
