//! The format of an object in stores that outlive the process: its JSON, with a header that contains the index of the
//! object, so that reading the object does not parse the JSON.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::field_positions::{FieldPositions, Uid};
use super::{Key, Labels, Object, ObjectError, Shape};

/// The version of the format that is written. Reading any other version is an error.
const FORM: u8 = 1;

#[derive(Deserialize, Serialize)]
struct Header {
    uid: Box<str>,
    labels: Labels,
    shape: u64,
    tree_size: u32,
    splice: usize,
    metadata: (usize, usize),
    managed_fields: (usize, usize),
}

impl Object {
    /// The bytes of the object in a store.
    pub fn to_kept(&self) -> Vec<u8> {
        let (metadata, managed_fields) = (self.places.metadata(), self.places.managed_fields());
        let header = Header {
            uid: self.uid().into(),
            labels: self.labels.clone(),
            shape: self.shape.number(),
            tree_size: self.tree_size,
            splice: self.places.splice(),
            metadata: (metadata.start, metadata.end),
            managed_fields: (managed_fields.start, managed_fields.end),
        };
        // Strings and numbers always encode.
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let length = u32::try_from(header.len()).unwrap_or_default();
        let mut kept = Vec::with_capacity(5 + header.len() + self.json_size());
        kept.push(FORM);
        kept.extend_from_slice(&length.to_le_bytes());
        kept.extend_from_slice(&header);
        kept.extend_from_slice(&self.json());
        kept
    }

    /// Reads the object under a key from its bytes in a store.
    ///
    /// # Errors
    /// If the version of the format is unknown, or if the header does not fit the JSON.
    pub fn from_kept(key: Key, kept: &[u8]) -> Result<Self, ObjectError> {
        let unfit = |why: &str| ObjectError(why.to_owned());
        let (form, rest) = kept.split_first().ok_or_else(|| unfit("it is empty"))?;
        if *form != FORM {
            return Err(ObjectError(format!("its form is {form}, and only {FORM} is known")));
        }
        let (length, rest) = rest.split_first_chunk().ok_or_else(|| unfit("it is cut off"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (header, json) =
            rest.split_at_checked(length).ok_or_else(|| unfit("its header is cut off"))?;
        let Header { uid, labels, shape, tree_size, splice, metadata, managed_fields } =
            serde_json::from_slice(header)
                .map_err(|error| ObjectError(format!("its header cannot be read: {error}")))?;
        let (metadata, managed_fields) =
            (metadata.0..metadata.1, managed_fields.0..managed_fields.1);
        let is_whole = metadata.start < metadata.end
            && metadata.end <= json.len()
            && metadata.contains(&splice)
            && managed_fields.start <= managed_fields.end
            && (managed_fields.end == 0
                || (managed_fields.start > metadata.start + super::MANAGED_FIELDS.len() + 3
                    && managed_fields.end < metadata.end));
        if !is_whole {
            return Err(unfit("its header is not of its content"));
        }
        let places = FieldPositions::new(splice, metadata, managed_fields);
        Ok(Self {
            key,
            uid: Uid::within(json, &places, &uid),
            labels,
            json: Bytes::copy_from_slice(json),
            patch: None,
            tree_size,
            places,
            selected: std::sync::OnceLock::new(),
            shape: Shape::new(shape),
            shown: super::Shown::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Object {
        let tree = json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {
                "name": "a", "namespace": "b", "uid": "u", "labels": {"x": "y", "a": "ü"},
                "managedFields": [{"manager": "m"}],
            },
            "spec": {"text": "z"},
        });
        Object::from_tree(tree.as_object().unwrap()).unwrap().of_shape(Shape::new(7))
    }

    #[test]
    fn stored_objects_decode_to_the_same_object() {
        let object = object();
        let read = Object::from_kept(object.key().clone(), &object.to_kept()).unwrap();
        assert_eq!(format!("{object:?}"), format!("{read:?}"));
        assert_eq!(object.to_parts(), read.to_parts());
        let (mut one, mut other) = (Vec::new(), Vec::new());
        object.write_metadata(5, &mut one);
        read.write_metadata(5, &mut other);
        assert_eq!(one, other);
    }

    /// Damaged bytes are either an error or an object that can be written and stored again.
    #[test]
    fn damaged_stored_objects_are_rejected_or_can_be_written() {
        let object = object();
        let kept = object.to_kept();
        let (mut rejected, mut written) = (0, 0);
        let mut check = |damaged: &[u8]| match Object::from_kept(object.key().clone(), damaged) {
            Err(_) => rejected += 1,
            Ok(read) => {
                let mut text = Vec::new();
                read.write(5, &mut text);
                read.write_metadata(5, &mut text);
                read.write_without_types(5, &mut text);
                assert!(!text.is_empty());
                let _ = read.to_parts();
                let again = Object::from_kept(object.key().clone(), &read.to_kept()).unwrap();
                assert_eq!(again.to_kept(), read.to_kept());
                written += 1;
            }
        };
        for length in 0..kept.len() {
            check(&kept[..length]);
        }
        for place in 0..kept.len() {
            for change in [1, 2, 4, 8, 0x80] {
                let mut damaged = kept.clone();
                damaged[place] ^= change;
                check(&damaged);
            }
        }
        assert!(rejected > kept.len() / 2 && written > kept.len() / 2, "{rejected} {written}");
    }
}
