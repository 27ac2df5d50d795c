//! The keys of objects in etcd, `<prefix>/<plural>.<group>/[<namespace>/]<name>`, and the values under them.

use std::sync::Arc;

use bytes::Bytes;

use super::messages::KeyValue;
use crate::encryption::Unknown;
use crate::object::{Key, Object};
use crate::stored_value::{Read, Sealing, Unreadable};
use crate::{Collection, Encryption, Revision};

/// The name of the record of the store as a whole. No collection has this name.
const STORE: &str = "store";

/// The prefix of all keys, and the encoding of their values.
#[derive(Clone)]
pub(super) struct Prefix {
    text: String,
    sealing: Sealing,
}

/// The value of a key since a revision.
pub(super) struct Row {
    pub collection: Collection,
    pub key: Key,
    pub revision: Revision,
    /// The object, `None` if it was removed, or the reason why it cannot be read.
    pub value: Result<Option<Arc<Object>>, Unreadable>,
    /// Whether the object would be encoded differently now.
    pub is_stale: bool,
}

impl Prefix {
    /// Parses a prefix.
    ///
    /// # Errors
    /// If the prefix is empty, and would include everything in etcd.
    pub fn new(text: &str, encryption: Arc<Encryption>) -> Result<Self, String> {
        match text.trim_matches('/') {
            "" => Err("--etcd-prefix must not be empty".to_owned()),
            text => {
                let text = format!("/{text}/");
                let sealing = Sealing::new(encryption, &text);
                Ok(Self { text, sealing })
            }
        }
    }

    /// The first key of the range.
    pub fn first(&self) -> Bytes {
        self.text.clone().into()
    }

    /// The first key after the range.
    pub fn end(&self) -> Bytes {
        let mut end = self.text.clone().into_bytes();
        // The prefix ends with `/`. The byte after `/` is `0`.
        end.pop();
        end.push(b'0');
        end.into()
    }

    /// The key of the record that the store was used.
    pub fn store(&self) -> Bytes {
        format!("{}{STORE}", self.text).into()
    }

    /// The key of an object.
    pub fn place(&self, collection: &Collection, key: &Key) -> Bytes {
        format!("{}{collection}/{key}", self.text).into()
    }

    /// The encoded value of an object.
    ///
    /// # Errors
    /// If the object cannot be encrypted.
    pub fn value(
        &self,
        collection: &Collection,
        key: &Key,
        object: &Object,
    ) -> Result<Bytes, String> {
        let (collection, name) = (collection.to_string(), key.to_string());
        self.sealing.seal(0, &collection, &name, Some(object)).map(Bytes::from)
    }

    /// Has KMS plugins decrypt the seeds that are needed to read these values and are not known yet.
    ///
    /// # Errors
    /// If a plugin does not respond.
    pub async fn learn(&self, values: impl Iterator<Item = &KeyValue>) -> Result<(), String> {
        let unknown = values.filter_map(|kept| {
            let place = std::str::from_utf8(&kept.key).ok()?.strip_prefix(&self.text)?;
            let (collection, name) = place.split_once('/')?;
            self.sealing.unknown(0, collection, name, &kept.value)
        });
        let unknown: Vec<_> = unknown.collect();
        if unknown.is_empty() {
            return Ok(());
        }
        // A seed is decrypted only once, even if several values need it.
        let learned = move || unknown.into_iter().try_for_each(Unknown::learn);
        let learned = tokio::task::spawn_blocking(learned).await;
        learned.map_err(|error| error.to_string())?
    }

    /// The reason why stored values can no longer be encrypted or decrypted, if such a problem is known.
    pub fn trouble(&self) -> Option<String> {
        self.sealing.trouble()
    }

    /// Decodes the value under a key, unless the object is already in memory. Returns `None` if the key is not that of
    /// an object.
    pub fn row_or_known(
        &self,
        kept: &KeyValue,
        known: impl Fn(&Collection, &Key, Revision) -> Option<Arc<Object>>,
    ) -> Option<Row> {
        let place = std::str::from_utf8(&kept.key).ok()?.strip_prefix(&self.text)?;
        let (collection, name) = place.split_once('/')?;
        let (collection, key) = (Collection::new(collection), Key::of_text(name));
        let revision = revision(kept.mod_revision);
        match known(&collection, &key, revision) {
            Some(object) => {
                let value = Ok(Some(object));
                Some(Row { collection, key, revision, value, is_stale: false })
            }
            None => self.row(kept, false),
        }
    }

    /// Decodes the value under a key. Returns `None` if the key is not that of an object.
    pub fn row(&self, kept: &KeyValue, is_removed: bool) -> Option<Row> {
        let place = std::str::from_utf8(&kept.key).ok()?.strip_prefix(&self.text)?;
        let (collection, name) = place.split_once('/')?;
        let key = Key::of_text(name);
        let (value, is_stale) = match is_removed {
            true => (Ok(None), false),
            false => match self.sealing.open(0, collection, &key, &kept.value) {
                Ok(Read { object: Some(object), is_stale }) => {
                    (Ok(Some(Arc::new(object))), is_stale)
                }
                Ok(Read { object: None, .. }) => {
                    (Err(Unreadable::Damaged("it is empty".to_owned())), false)
                }
                Err(why) => (Err(why), false),
            },
        };
        let revision = revision(kept.mod_revision);
        Some(Row { collection: Collection::new(collection), key, revision, value, is_stale })
    }
}

/// A revision from a number of etcd, which is never negative.
pub(super) fn revision(number: i64) -> Revision {
    Revision::new(u64::try_from(number).unwrap_or_default())
}

/// The number of a revision in etcd's format.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.number()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn etcd_keys_and_values_map_back_to_their_objects() {
        let prefix = Prefix::new("registry/farm/", Arc::default()).unwrap();
        assert_eq!(
            (&prefix.first()[..], &prefix.end()[..]),
            (&b"/registry/farm/"[..], &b"/registry/farm0"[..])
        );
        let collection = Collection::new("llamas.farm.example.com");
        for key in [Key::new(Some("default"), "dolly"), Key::new(None, "dolly")] {
            let tree =
                json!({"metadata": {"name": "dolly", "namespace": key.namespace(), "uid": "u"}});
            let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
            let kept = |value: Bytes| KeyValue {
                key: prefix.place(&collection, &key),
                mod_revision: 7,
                version: 1,
                value,
            };
            let value = prefix.value(&collection, &key, &object).unwrap();
            let row = prefix.row(&kept(value.clone()), false).unwrap();
            assert_eq!(
                (row.collection, row.key, row.revision.number()),
                (collection.clone(), key.clone(), 7)
            );
            assert!(row.value.unwrap().unwrap().same_content(&object));
            assert!(prefix.row(&kept(Bytes::new()), true).unwrap().value.unwrap().is_none());
            for damaged in [Bytes::new(), value.slice(1..), value.slice(..value.len() - 1)] {
                assert!(prefix.row(&kept(damaged), false).unwrap().value.is_err());
            }
        }
        let of_store = KeyValue { key: prefix.store(), ..KeyValue::default() };
        assert!(prefix.row(&of_store, false).is_none());
        assert!(Prefix::new("//", Arc::default()).is_err());
    }
}
