//! A cache of converted objects: an object that many requests and watchers read in a version other than the storage
//! version is converted once.
//!
//! All kinds of a server share one limit. When the cache is full, objects that have changed since are evicted first,
//! and then random ones. So repeated reads of a list that is larger than the cache find a part of it, whereas evicting
//! the oldest entries would evict each object before it is read again.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::conversion::UnconvertibleError;
use super::{Kind, Version};
use crate::object::Object;
use crate::quota::MemoryScale;

/// The memory limit of the cache in bytes: 10,000 objects of 1.6 kB with their overhead, which is a quarter of that.
const LIMIT: usize = 32 << 20;
/// The memory limit of the cache in a small container, in bytes: one of the largest objects.
const LEAST: usize = 2 << 20;
/// The number of random entries among which an outdated one is searched before a current one is evicted.
const LOOKED_AT: usize = 8;
/// The memory of an entry besides the size of its object, in bytes: the entry itself, and the allocation of a dropped
/// stored object that its `Weak` keeps.
const ENTRY: usize = size_of::<Object>() + 256;

/// The memory limit for objects in other versions, in bytes.
pub fn converted_limit(portion: MemoryScale) -> usize {
    portion.between(LEAST, LIMIT)
}

impl Kind {
    /// Same as [`in_version`](Self::in_version), with a cache of the results. Two simultaneous callers may both convert
    /// the object.
    ///
    /// # Errors
    /// If the result of the conversion is not a valid object.
    pub fn in_version_shared(
        &self,
        object: &Arc<Object>,
        version: &Arc<Version>,
    ) -> Result<Arc<Object>, UnconvertibleError> {
        // Responses of a webhook are cached together with the questions, and only for a second.
        if self.is_converted_by_webhook()
            || (version.name == self.storage.name && self.view.is_none())
        {
            return self.in_version(object, version);
        }
        self.shown().converted.in_version(self, object, version)
    }
}

/// The addresses of an object and a version.
type Key = (usize, usize);

/// An object in a version other than the storage version.
struct Converted {
    /// The stored object and the version. These references keep their allocations, so that the addresses in the key are
    /// not reused.
    kept: Weak<Object>,
    version: Weak<Version>,
    shown: Arc<Object>,
}

impl Converted {
    fn key(&self) -> Key {
        (self.kept.as_ptr().addr(), self.version.as_ptr().addr())
    }

    /// The memory of the entry, in bytes.
    fn size(&self) -> usize {
        self.shown.size() + ENTRY
    }

    /// Whether the entry is outdated: its object or version does not exist any more, so no lookup can find it.
    fn is_over(&self) -> bool {
        self.kept.strong_count() == 0 || self.version.strong_count() == 0
    }
}

/// The entries of the cache, within its memory limit.
struct Room {
    limit: usize,
    bytes: usize,
    all: Vec<Converted>,
    indices: HashMap<Key, usize>,
    /// The number of entries that were examined for evictions.
    looks: u64,
}

/// A cache of converted objects.
pub struct ConvertedObjects(Mutex<Room>);

impl Default for ConvertedObjects {
    fn default() -> Self {
        Self::of(LIMIT)
    }
}

impl fmt::Debug for ConvertedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvertedObjects").finish_non_exhaustive()
    }
}

impl ConvertedObjects {
    /// An empty cache with this memory limit, in bytes.
    pub(super) fn of(limit: usize) -> Self {
        Self(Mutex::new(Room {
            limit,
            bytes: 0,
            all: Vec::new(),
            indices: HashMap::new(),
            looks: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn limit(&self) -> usize {
        self.lock().limit
    }

    fn in_version(
        &self,
        kind: &Kind,
        object: &Arc<Object>,
        version: &Arc<Version>,
    ) -> Result<Arc<Object>, UnconvertibleError> {
        let key = (Arc::as_ptr(object).addr(), Arc::as_ptr(version).addr());
        if let Some(shown) = self.lock().find(key) {
            return Ok(shown);
        }
        let shown = kind.in_version(object, version)?;
        let (kept, version) = (Arc::downgrade(object), Arc::downgrade(version));
        let converted = Converted { kept, version, shown: Arc::clone(&shown) };
        // Evicted objects can be large, so they are freed after the lock has been released.
        let evicted = self.lock().add(converted);
        drop(evicted);
        Ok(shown)
    }
}

impl Room {
    fn find(&self, key: Key) -> Option<Arc<Object>> {
        let index = self.indices.get(&key)?;
        self.all.get(*index).map(|one| Arc::clone(&one.shown))
    }

    /// Adds an entry. Returns the evicted entries, which must be dropped without the lock.
    #[must_use]
    fn add(&mut self, converted: Converted) -> Vec<Converted> {
        let (key, size) = (converted.key(), converted.size());
        if size > self.limit || self.indices.contains_key(&key) {
            return vec![converted];
        }
        let evicted = self.make_room(size);
        self.indices.insert(key, self.all.len());
        self.all.push(converted);
        self.bytes += size;
        evicted
    }

    /// Evicts entries until an entry of `size` bytes fits.
    #[must_use]
    fn make_room(&mut self, size: usize) -> Vec<Converted> {
        let mut evicted = Vec::new();
        while self.bytes + size > self.limit
            && let Some(index) = self.index_to_evict()
        {
            let converted = self.all.swap_remove(index);
            self.indices.remove(&converted.key());
            // The last entry has moved to that index.
            if let Some(moved) = self.all.get(index) {
                self.indices.insert(moved.key(), index);
            }
            self.bytes -= converted.size();
            evicted.push(converted);
        }
        evicted
    }

    /// The index of an outdated entry, if there is one among a few random ones, or else of one of these. `None` if the
    /// cache is empty.
    fn index_to_evict(&mut self) -> Option<usize> {
        let mut index = None;
        for _ in 0..LOOKED_AT {
            self.looks += 1;
            // The hasher's key is secret, so its hashes serve as random numbers.
            let chance = u128::from(self.indices.hasher().hash_one(self.looks));
            index = usize::try_from((chance * self.all.len() as u128) >> u64::BITS).ok();
            if self.all.get(index?)?.is_over() {
                break;
            }
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A kind with two versions; the first one is the storage version.
    fn kind() -> Kind {
        let of_any = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": of_any},
                    {"name": "v1beta1", "served": true, "storage": false, "schema": of_any},
                ],
            },
        });
        Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap()
    }

    /// A stored object that contains a string of this length.
    fn object(kind: &Kind, name: &str, length: usize) -> Arc<Object> {
        let text = "x".repeat(length);
        let tree = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name, "uid": "u"}, "text": text});
        let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
        Arc::new(kind.to_storage(object, &kind.storage).unwrap())
    }

    #[test]
    fn an_object_is_converted_once_for_many_reads() {
        let kind = kind();
        let other = kind.version("v1beta1").unwrap();
        let kept = object(&kind, "a", 0);
        let shown = kind.in_version_shared(&kept, other).unwrap();
        assert_eq!(shown.to_tree()["apiVersion"], "example.com/v1beta1");
        assert!(Arc::ptr_eq(&shown, &kind.in_version_shared(&kept, other).unwrap()));
        let stored = kind.in_version_shared(&kept, &kind.storage).unwrap();
        assert!(Arc::ptr_eq(&stored, &kept));
    }

    /// Reads objects in a version. Returns the number of objects that were found in the cache.
    fn read(
        remembered: &ConvertedObjects,
        kind: &Kind,
        objects: &[Arc<Object>],
        before: &mut [Option<Arc<Object>>],
    ) -> usize {
        let other = kind.version("v1beta1").unwrap();
        let mut again = 0;
        for (object, before) in objects.iter().zip(before) {
            let shown = remembered.in_version(kind, object, other).unwrap();
            again += usize::from(before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &shown)));
            *before = Some(shown);
            let room = remembered.lock();
            assert!(room.bytes <= room.limit && room.indices.len() == room.all.len());
            assert_eq!(room.bytes, room.all.iter().map(Converted::size).sum::<usize>());
        }
        again
    }

    #[test]
    fn a_full_converted_cache_serves_part_of_a_list_and_stores_changes() {
        let (kind, remembered) = (kind(), ConvertedObjects::of(1 << 20));
        let objects: Vec<_> =
            (0..500).map(|number| object(&kind, &format!("a{number}"), 4 << 10)).collect();
        let mut before = vec![None; objects.len()];
        assert_eq!(read(&remembered, &kind, &objects, &mut before), 0);
        for _ in 0..3 {
            let again = read(&remembered, &kind, &objects, &mut before);
            assert!(again > 20, "{again} of 500, where some 200 fit");
        }
        for number in 0..500 {
            let changed = [object(&kind, &format!("b{number}"), 4 << 10)];
            let mut shown = [None];
            read(&remembered, &kind, &changed, &mut shown);
            assert_eq!(read(&remembered, &kind, &changed, &mut shown), 1, "for other watchers");
        }
    }

    #[test]
    fn outdated_converted_objects_are_evicted_first() {
        let (kind, remembered) = (kind(), ConvertedObjects::of(1 << 20));
        let list = |count: usize| -> Vec<_> {
            (0..count).map(|number| object(&kind, &format!("a{number}"), 4 << 10)).collect()
        };
        // All objects of a list that nearly fills the cache are rewritten several times.
        for _ in 0..5 {
            let objects = list(150);
            let mut before = vec![None; objects.len()];
            read(&remembered, &kind, &objects, &mut before);
            read(&remembered, &kind, &objects, &mut before);
            let again = read(&remembered, &kind, &objects, &mut before);
            assert!(again > 140, "{again} of 150");
        }
    }

    #[test]
    fn a_reused_memory_address_does_not_return_another_converted_object() {
        let (kind, remembered) = (kind(), ConvertedObjects::of(1 << 20));
        let other = kind.version("v1beta1").unwrap();
        for number in 0..1_000 {
            let name = format!("a{number}");
            let shown = remembered.in_version(&kind, &object(&kind, &name, 10), other).unwrap();
            assert_eq!(shown.key().name(), name);
        }
        // An object that does not fit into the cache is converted for each read.
        let large = object(&kind, "large", 2 << 20);
        let shown = remembered.in_version(&kind, &large, other).unwrap();
        assert!(!Arc::ptr_eq(&shown, &remembered.in_version(&kind, &large, other).unwrap()));
        let mut room = remembered.lock();
        room.limit = 0;
        let evicted = room.make_room(0);
        assert!(!evicted.is_empty() && room.all.is_empty() && room.indices.is_empty());
    }
}
