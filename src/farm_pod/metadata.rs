//! What is read of metadata: of annotations only those that something is made of, of owners the
//! controller.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::ObjectMeta;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::compact::{List, Pairs, time};
use super::{events, release};

/// Metadata in little room.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Compact {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    #[serde(deserialize_with = "time")]
    creation_timestamp: Option<Time>,
    #[serde(deserialize_with = "time")]
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    /// Its labels.
    pub labels: Pairs,
    annotations: KnownAnnotations,
    /// What it belongs to.
    pub owner_references: List<OwnerReference>,
    finalizers: Option<Vec<String>>,
}

impl Compact {
    /// The same as others know it, without labels and owners.
    pub fn object(self) -> ObjectMeta {
        let KnownAnnotations(annotations) = self.annotations;
        ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            creation_timestamp: self.creation_timestamp,
            deletion_timestamp: self.deletion_timestamp,
            deletion_grace_period_seconds: self.deletion_grace_period_seconds,
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            finalizers: self.finalizers,
            ..ObjectMeta::default()
        }
    }
}

/// Reads metadata without labels and owners.
pub fn read_plain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Compact::deserialize(deserializer).map(Compact::object)
}

/// Reads metadata with labels.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let read = Compact::deserialize(deserializer)?;
    let labels = map(&read.labels);
    Ok(ObjectMeta { labels, ..read.object() })
}

/// Reads metadata with labels and owners.
pub fn read_owned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let read = Compact::deserialize(deserializer)?;
    let (labels, owners) = (map(&read.labels), read.owner_references.to_vec());
    let owner_references = Some(owners).filter(|owners| !owners.is_empty());
    Ok(ObjectMeta { labels, owner_references, ..read.object() })
}

/// Labels as others know them.
pub fn map(labels: &Pairs) -> Option<BTreeMap<String, String>> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    (!labels.is_empty()).then(|| labels.iter().map(owned).collect())
}

#[derive(Clone, Debug, Default)]
struct KnownAnnotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for KnownAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = KnownAnnotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut known = BTreeMap::new();
                while let Some(key) = map.next_key::<Key>()? {
                    match key.0 {
                        Some(key) => {
                            known.insert(key.to_owned(), map.next_value()?);
                        }
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(KnownAnnotations(known))
            }
        }

        // Most of them are not kept: as a struct they are not taken for a map that is.
        deserializer.deserialize_struct("Annotations", &[], Reader)
    }
}

/// The key of an annotation, if it is a known one.
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
