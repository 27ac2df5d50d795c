//! Lent: metadata that is added to a part of an object while the part is converted.

use serde_json::{Map, Value};

/// Annotations are not added, because conversions read and write them. An annotation that the part no longer has must
/// not become a field of another version.
const ANNOTATIONS: &str = "annotations";

/// The metadata fields that were added to a part.
pub struct AddedMetadata {
    members: Vec<String>,
    has_metadata: bool,
}

impl AddedMetadata {
    /// Adds the type of the whole object to a part, and the metadata fields that the part does not have, except
    /// annotations.
    pub fn to(part: &mut Map<String, Value>, whole: &Map<String, Value>) -> Self {
        for name in ["apiVersion", "kind"] {
            if let Some(value) = whole.get(name) {
                part.insert(name.to_owned(), value.clone());
            }
        }
        let mut lent = Self { members: Vec::new(), has_metadata: true };
        let Some(Value::Object(whole)) = whole.get("metadata") else { return lent };
        let metadata = match part.get_mut("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => {
                lent.has_metadata = false;
                part.insert("metadata".to_owned(), Value::Object(Map::new()));
                let Some(Value::Object(metadata)) = part.get_mut("metadata") else { return lent };
                metadata
            }
        };
        for (name, value) in whole.iter().filter(|(name, _)| *name != ANNOTATIONS) {
            if metadata.get(name).is_none_or(Value::is_null) {
                metadata.insert(name.clone(), value.clone());
                lent.members.push(name.clone());
            }
        }
        lent
    }

    /// Removes the added metadata from the converted part.
    pub fn taken_from(self, mut part: Map<String, Value>) -> Map<String, Value> {
        let Some(Value::Object(metadata)) = part.get_mut("metadata") else { return part };
        metadata.retain(|name, _| !self.members.contains(name));
        if metadata.is_empty() && !self.has_metadata {
            part.remove("metadata");
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_added_for_conversion_is_removed_afterwards() {
        let whole = json!({
            "apiVersion": "v1", "kind": "Foo", "a": 1,
            "metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"x": "y"}},
        });
        for (part, lent) in [
            (json!({}), json!({"name": "a", "labels": {"x": "y"}})),
            (json!({"metadata": {"labels": {}}}), json!({"name": "a", "labels": {}})),
            (
                json!({"metadata": {"annotations": {}}}),
                json!({"name": "a", "labels": {"x": "y"}, "annotations": {}}),
            ),
        ] {
            let mut converted = part.as_object().cloned().unwrap();
            let was_lent = AddedMetadata::to(&mut converted, whole.as_object().unwrap());
            assert_eq!(converted["metadata"], lent);
            assert_eq!(converted["kind"], "Foo");
            let left = was_lent.taken_from(converted);
            assert_eq!(left.get("metadata"), part.get("metadata"));
        }
    }
}
