//! A snapshot of the objects of one type. The informer and the lookups share one persistent map, so a lookup needs no
//! map of its own.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::OrdMap;

use crate::object::Key;

/// The objects of one type by their keys. A clone is cheap, and shares all nodes of the map that neither copy changes.
#[derive(Debug)]
pub struct SourceObjects<K>(OrdMap<Key, StoredObject<K>>);

/// A stored object with its size and hashes.
#[derive(Debug)]
pub(super) struct StoredObject<K> {
    pub object: Arc<K>,
    /// The memory that the object uses, in bytes.
    pub bytes: usize,
    /// The hash of the JSON of the object. It is changed in place, so a change of fields that the type does not have
    /// copies no node of the shared map.
    pub hash: AtomicU64,
    /// The hash of the decoded values.
    pub content: u64,
}

/// Creates the objects of a test.
impl<K> FromIterator<(Key, Arc<K>)> for SourceObjects<K> {
    fn from_iter<T: IntoIterator<Item = (Key, Arc<K>)>>(objects: T) -> Self {
        let stored = |(key, object)| {
            (key, StoredObject { object, bytes: 0, hash: AtomicU64::new(0), content: 0 })
        };
        Self(objects.into_iter().map(stored).collect())
    }
}

impl<K> Clone for SourceObjects<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for SourceObjects<K> {
    fn default() -> Self {
        Self(OrdMap::new())
    }
}

impl<K> Clone for StoredObject<K> {
    fn clone(&self) -> Self {
        let hash = AtomicU64::new(self.hash.load(Ordering::Relaxed));
        Self { object: Arc::clone(&self.object), bytes: self.bytes, hash, content: self.content }
    }
}

impl<K> SourceObjects<K> {
    /// The object with this key.
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.0.get(key).map(|stored| &stored.object)
    }

    /// The object with this key, and the stored key, which shares its memory with other copies.
    pub fn get_keyed(&self, key: &Key) -> Option<(&Key, &Arc<K>)> {
        self.0.get_key_value(key).map(|(key, stored)| (key, &stored.object))
    }

    /// All objects, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<K>)> {
        self.0.iter().map(|(key, stored)| (key, &stored.object))
    }

    /// The keys of all objects, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }

    /// The objects in a range of keys, sorted by key.
    pub fn range(&self, range: impl RangeBounds<Key>) -> impl Iterator<Item = &Arc<K>> {
        self.0.range(range).map(|(_, stored)| &stored.object)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Copies the object with this key from `others`, or removes it if `others` has none. Returns the previous object.
    pub fn copy_from(&mut self, key: &Key, others: &Self) -> Option<Arc<K>> {
        let before = match others.0.get_key_value(key) {
            Some((key, stored)) => self.0.insert(key.clone(), stored.clone()),
            None => self.0.remove(key),
        };
        before.map(|before| before.object)
    }

    /// Returns a copy that uses less memory. Lists are sorted by key, and a full node of the map is split into two
    /// halves, so a map that is filled in order consists of half-full nodes. Here every other object is inserted first,
    /// and the remaining objects fill the halves.
    #[must_use]
    pub(super) fn packed(&self) -> Self {
        let first = self.0.iter().step_by(2);
        let rest = self.0.iter().skip(1).step_by(2);
        let objects = first.chain(rest).map(|(key, stored)| (key.clone(), stored.clone()));
        Self(objects.collect())
    }

    pub(super) fn stored(&self, key: &Key) -> Option<&StoredObject<K>> {
        self.0.get(key)
    }

    /// Stores an object. Returns the previous one.
    pub(super) fn insert(&mut self, key: Key, stored: StoredObject<K>) -> Option<StoredObject<K>> {
        self.0.insert(key, stored)
    }

    /// Removes an object. Returns it.
    pub(super) fn remove(&mut self, key: &Key) -> Option<StoredObject<K>> {
        self.0.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_objects_are_the_same() {
        for count in [0, 1, 2, 15, 16, 17, 1_000] {
            let keyed = |number: u32| (Key::of_text(&format!("{number:04}")), Arc::new(number));
            let objects: SourceObjects<u32> = (0..count).map(keyed).collect();
            let packed = objects.packed();
            assert!(packed.iter().eq(objects.iter()));
            assert_eq!(packed.len(), objects.len());
        }
    }

    /// The copied object is the one of the other map, and no other object changes.
    #[test]
    fn objects_are_taken_over_from_a_newer_set_one_key_at_a_time() {
        let keyed = |text: &str| (Key::of_text(text), Arc::new(text.to_owned()));
        let before: SourceObjects<String> = ["a", "b"].map(keyed).into_iter().collect();
        let after: SourceObjects<String> = ["b", "c"].map(keyed).into_iter().collect();
        let mut objects = before.clone();
        for (key, expected, names) in
            [("a", Some("a"), "b"), ("c", None, "bc"), ("d", None, "bc"), ("b", Some("b"), "bc")]
        {
            let was = objects.copy_from(&Key::of_text(key), &after);
            assert_eq!(was.as_ref().map(|was| was.as_str()), expected);
            assert_eq!(objects.keys().map(Key::text).collect::<String>(), names);
        }
        assert!(objects.iter().eq(after.iter()) && before.len() == 2);
        assert!(Arc::ptr_eq(
            objects.get(&Key::of_text("b")).unwrap(),
            after.get(&Key::of_text("b")).unwrap()
        ));
    }
}
