//! A compact form of object metadata. Only the annotations that a farm kind uses are stored.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::compact::{List, Moment, Pairs, Shared, Text, Word, parsed, pooled};
use super::{events, release};

/// The metadata of an object. Fields that few objects have are boxed in [`Rare`].
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(from = "Read")]
pub struct Metadata {
    /// The name.
    pub name: Option<Text>,
    /// The namespace, if the object has one.
    pub namespace: Option<Word>,
    /// The time of the creation.
    pub creation_timestamp: Moment,
    /// The labels.
    pub labels: Shared<Pairs>,
    /// The owner references.
    pub owners: Shared<List<OwnerLink>>,
    /// The fields that few objects have, if one of them is set.
    pub rare: Option<Box<Rare>>,
    /// The uid, in the usual form of 36 characters. If the uid is missing or has another form, this one is nil.
    uid: Uuid,
}

/// Metadata fields that few objects have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rare {
    /// The time by which the object must be deleted, if it is being deleted.
    pub deletion_timestamp: Moment,
    /// The grace period of the deletion, in seconds.
    pub deletion_grace_period_seconds: Option<i64>,
    /// The annotations that a farm kind uses.
    pub annotations: List<(&'static str, Text)>,
    /// The finalizers that block the deletion.
    pub finalizers: List<Text>,
    /// The uid, if it does not have the usual form.
    uid: Option<Text>,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Read {
    name: Option<Text>,
    namespace: Option<Word>,
    #[serde(deserialize_with = "uid")]
    uid: Option<Uid>,
    creation_timestamp: Moment,
    deletion_timestamp: Moment,
    deletion_grace_period_seconds: Option<i64>,
    labels: Pairs,
    annotations: KnownAnnotations,
    owner_references: List<OwnerLink>,
    finalizers: Option<List<Text>>,
}

impl From<Read> for Metadata {
    fn from(read: Read) -> Self {
        let (uid, other_uid) = match read.uid {
            Some(Uid::Usual(uid)) => (uid, None),
            Some(Uid::Other(text)) => (Uuid::nil(), Some(text)),
            None => (Uuid::nil(), None),
        };
        let rare = Rare {
            deletion_timestamp: read.deletion_timestamp,
            deletion_grace_period_seconds: read.deletion_grace_period_seconds,
            annotations: read.annotations.0,
            finalizers: read.finalizers.unwrap_or_default(),
            uid: other_uid,
        };
        Self {
            name: read.name,
            namespace: read.namespace,
            creation_timestamp: read.creation_timestamp,
            labels: read.labels.into(),
            owners: read.owner_references.into(),
            rare: Some(rare).filter(|rare| *rare != Rare::default()).map(Box::new),
            uid,
        }
    }
}

impl Metadata {
    /// The uid of the object.
    pub fn uid(&self) -> Option<Cow<'_, str>> {
        if !self.uid.is_nil() {
            return Some(self.uid.hyphenated().to_string().into());
        }
        self.rare.as_ref()?.uid.as_deref().map(Cow::Borrowed)
    }

    /// The time by which the object must be deleted, if it is being deleted.
    pub fn deletion_timestamp(&self) -> Moment {
        self.rare.as_ref().map(|rare| rare.deletion_timestamp).unwrap_or_default()
    }

    /// Returns an annotation, if it is one of those that are stored.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let mut annotations = self.rare.iter().flat_map(|rare| &rare.annotations);
        annotations.find(|(known, _)| *known == key).map(|(_, value)| &**value)
    }

    /// The owner reference of the controller.
    pub fn controller(&self) -> Option<&OwnerLink> {
        self.owners.iter().find(|owner| owner.is_controller)
    }
}

/// The metadata of an object that is looked up only by its name or by an index.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Named {
    /// The name.
    pub name: Option<Text>,
    /// The namespace, if the object has one.
    pub namespace: Option<Word>,
}

/// A uid as it is read. Almost all have the usual form of 36 characters, which are stored as 16 bytes.
enum Uid {
    Usual(Uuid),
    Other(Text),
}

fn uid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uid>, D::Error> {
    parsed(deserializer, |text| Some(Uid::from(text)))
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let mut written = [0; Hyphenated::LENGTH];
        let usual = Uuid::try_parse(text).ok();
        // The same uid can have other notations; it is shown as in the document.
        let usual = usual
            .filter(|uid| !uid.is_nil() && *uid.hyphenated().encode_lower(&mut written) == *text);
        usual.map_or_else(|| Self::Other(text.into()), Self::Usual)
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerLink {
    /// For example `apps/v1`.
    pub api_version: Word,
    /// For example `ReplicaSet`.
    pub kind: Word,
    /// The name of the owner.
    pub name: Text,
    /// The uid of the owner.
    pub uid: Text,
    /// Whether the owner is the controller of the object.
    #[serde(rename = "controller", deserialize_with = "or_not")]
    pub is_controller: bool,
}

pooled!(List<OwnerLink>);

fn or_not<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)? == Some(true))
}

#[derive(Default)]
struct KnownAnnotations(List<(&'static str, Text)>);

impl<'de> Deserialize<'de> for KnownAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = KnownAnnotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut known = Vec::new();
                while let Some(key) = map.next_key::<Key>()? {
                    match key.0 {
                        Some(key) => known.push((key, map.next_value()?)),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(KnownAnnotations(known.into()))
            }
        }

        // Most annotations are not stored. Deserialized as a struct, so that memory accounting does not count the nodes
        // of a map.
        deserializer.deserialize_struct("Annotations", &[], Reader)
    }
}

/// The key of an annotation, if it is one of the stored ones.
struct Key(Option<&'static str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                let mut known = release::ANNOTATIONS.iter().chain([&events::MIRROR]);
                Ok(Key(known.find(|known| **known == key).copied()))
            }
        }

        deserializer.deserialize_identifier(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(metadata: Value) -> Metadata {
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn a_uid_preserves_the_string_it_was_parsed_from() {
        for uid in [
            "00000000-0000-4000-8000-00000000abcd",
            "00000000-0000-4000-8000-00000000ABCD",
            "0000000000004000800000000000abcd",
            "{00000000-0000-4000-8000-00000000abcd}",
            "00000000-0000-0000-0000-000000000000",
            "u",
            "",
        ] {
            assert_eq!(read(json!({"uid": uid})).uid().as_deref(), Some(uid));
        }
        assert_eq!(read(json!({"uid": null})).uid(), None);
        assert_eq!(read(json!({})).uid(), None);
    }

    #[test]
    fn only_rare_metadata_fields_are_boxed() {
        let usual = read(json!({
            "name": "a", "namespace": "n", "uid": "00000000-0000-4000-8000-00000000abcd",
            "labels": {"a": "b"}, "annotations": {"other": "c"}, "finalizers": [],
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": true}],
        }));
        assert_eq!(usual.rare, None);
        assert_eq!(usual.controller().map(|owner| &*owner.kind), Some("Job"));
        assert_eq!(size_of::<Metadata>(), 72);
        let rare = read(json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/a"],
            "annotations": {"other": "c", (events::MIRROR): "hash"},
            "ownerReferences": [{"uid": "u"}, {"uid": "v", "controller": false}],
        }));
        assert!(rare.deletion_timestamp().time().is_some());
        assert_eq!(rare.annotation(events::MIRROR), Some("hash"));
        assert_eq!((rare.annotation("other"), rare.controller()), (None, None));
    }
}
