//! Objects that share their JSON: an object stores only the difference to a similar one.

use std::hash::RandomState;

use super::Object;
use super::field_positions::Uid;
use super::patch;

impl Object {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Labels;
    use serde_json::{Value, json};

    fn object(tree: Value) -> Object {
        Object::from_tree(tree.as_object().unwrap()).unwrap()
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
}
