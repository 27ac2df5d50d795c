//! A store in memory: gone with the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::{
    Collection, Commit, Expected, LogEntry, LogReader, Revision, RevisionSequence, Store,
    StoreError, Versioned,
};
use crate::object::Key;

/// Bytes of objects that a store in memory holds at most: what a pod of half a
/// gigabyte bears, with the recent past beside it.
const BYTES_LIMIT: usize = 128 << 20;

/// Everything that is kept.
#[derive(Default)]
struct Shelves {
    by_collection: HashMap<Collection, Shelf>,
    bytes: usize,
}

#[derive(Default)]
struct Shelf {
    objects: HashMap<Key, Versioned>,
    readers: Vec<Arc<dyn LogReader>>,
}

/// A store in memory: gone with the process.
pub struct MemoryStore {
    sequence: Arc<RevisionSequence>,
    shelves: Mutex<Shelves>,
}

impl MemoryStore {
    /// An empty store that takes its revisions from this sequence.
    pub fn new(sequence: Arc<RevisionSequence>) -> Self {
        Self { sequence, shelves: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.sequence.publish(|revision| {
            let mut guard = self.lock();
            let Shelves { by_collection, bytes } = &mut *guard;
            let shelf = by_collection.entry(commit.collection).or_default();
            match (commit.expected, shelf.objects.get(&commit.key)) {
                (Expected::Absent, Some(_)) => return Err(StoreError::Exists),
                (Expected::At(_), None) => return Err(StoreError::Absent),
                (Expected::At(expected), Some(kept)) if kept.revision != expected => {
                    return Err(StoreError::Changed { current: kept.revision });
                }
                _ => {}
            }
            let before = shelf.objects.get(&commit.key).map_or(0, |kept| kept.object.size());
            let after = commit.object.as_ref().map_or(0, |object| object.size());
            let total = *bytes - before + after;
            if after > before && total > BYTES_LIMIT && !commit.marks {
                return Err(StoreError::Full { limit: BYTES_LIMIT });
            }
            *bytes = total;
            match &commit.object {
                Some(object) => {
                    let versioned = Versioned { revision, object: Arc::clone(object) };
                    shelf.objects.insert(commit.key.clone(), versioned);
                }
                None => {
                    shelf.objects.remove(&commit.key);
                }
            }
            let entry = LogEntry { revision, key: commit.key, object: commit.object };
            for reader in &shelf.readers {
                reader.append(entry.clone());
            }
            Ok(revision)
        })
    }
}

impl Store for MemoryStore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        let kept = self
            .lock()
            .by_collection
            .get(collection)
            .and_then(|shelf| shelf.objects.get(key))
            .cloned();
        ready(Ok(kept)).boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        ready(self.write(commit)).boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let mut shelves = self.lock();
        let shelf = shelves.by_collection.entry(collection.clone()).or_default();
        let mut kept: Vec<_> = shelf.objects.iter().collect();
        kept.sort_by_key(|(_, versioned)| versioned.revision);
        for (key, versioned) in kept {
            reader.append(LogEntry {
                revision: versioned.revision,
                key: key.clone(),
                object: Some(Arc::clone(&versioned.object)),
            });
        }
        shelf.readers.push(reader);
        ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;
    use jiff::Timestamp;

    #[tokio::test]
    async fn is_full_at_last_and_has_room_again() {
        let sequence = Arc::new(RevisionSequence::starting(Timestamp::now(), 7));
        let store = MemoryStore::new(sequence);
        let commit = |name: &str, size: Option<usize>, expected| {
            let object = size.map(|size| {
                let metadata = serde_json::json!({"name": name, "uid": "u"});
                let tree = serde_json::json!({"metadata": metadata, "x": "x".repeat(size)});
                Arc::new(crate::object::Object::from_tree(tree.as_object().unwrap()).unwrap())
            });
            let (collection, key) = (Collection::new("c"), Key::new(None, name));
            Commit { collection, key, expected, object, marks: false }
        };
        let full = StoreError::Full { limit: BYTES_LIMIT };
        const SIZE: usize = 1 << 20;
        let mut first = None;
        for size in [SIZE, 1_000] {
            let refused = loop {
                let name = format!("{size}-{}", store.sequence.current());
                match store.commit(commit(&name, Some(size), Expected::Absent)).await {
                    Ok(revision) => first = first.or(Some((name, revision))),
                    Err(error) => break error,
                }
            };
            assert_eq!(refused, full);
        }
        let (name, mut revision) = first.unwrap();
        // It can still be marked, and no more.
        let larger = commit(&name, Some(SIZE + 2_000), Expected::At(revision));
        assert_eq!(store.commit(larger.clone()).await.unwrap_err(), full);
        revision = store.commit(Commit { marks: true, ..larger }).await.unwrap();
        store.commit(commit(&name, None, Expected::At(revision))).await.unwrap();
        store.commit(commit("again", Some(SIZE), Expected::Absent)).await.unwrap();
    }

    #[tokio::test]
    async fn passes_the_suite() {
        suite::run(|| {
            let sequence = Arc::new(RevisionSequence::starting(Timestamp::now(), 7));
            Arc::new(MemoryStore::new(sequence))
        })
        .await;
    }
}
