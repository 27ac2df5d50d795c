//! A store in memory: gone with the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::shares::Shares;
use super::{
    Collection, Commit, Expected, LogEntry, LogReader, NamespaceShare, Revision, RevisionSequence,
    Store, StoreError, Versioned,
};
use crate::object::{Key, Object};

/// Bytes of objects that a store in memory holds at most: what a pod of half a
/// gigabyte bears, with the recent past beside it.
pub const BYTES_LIMIT: usize = 128 << 20;
/// The same in a small container: the share of a namespace still holds the largest object.
pub const LEAST_BYTES_LIMIT: usize = BYTES_LIMIT / 8;

/// Everything that is kept.
struct Shelves {
    by_collection: HashMap<Collection, Shelf>,
    shares: Shares,
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
    /// An empty store of so many bytes that takes its revisions from this sequence, and of which a
    /// namespace takes no more than this share.
    pub fn new(limit: usize, sequence: Arc<RevisionSequence>, share: NamespaceShare) -> Self {
        let shares = Shares::new(limit, share);
        Self { sequence, shelves: Mutex::new(Shelves { by_collection: HashMap::new(), shares }) }
    }

    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.sequence.publish(|revision| {
            let mut guard = self.lock();
            let Shelves { by_collection, shares } = &mut *guard;
            let shelf = by_collection.entry(commit.collection).or_default();
            match (commit.expected, shelf.objects.get(&commit.key)) {
                (Expected::Absent, Some(_)) => return Err(StoreError::Exists),
                (Expected::At(_), None) => return Err(StoreError::Absent),
                (Expected::At(expected), Some(kept)) if kept.revision != expected => {
                    return Err(StoreError::Changed { current: kept.revision });
                }
                _ => {}
            }
            let before = shelf.objects.get(&commit.key).map(|kept| Arc::clone(&kept.object));
            let size = |object: &Option<Arc<Object>>| object.as_ref().map_or(0, |one| one.size());
            let (old, new) = (size(&before), size(&commit.object));
            let namespace = commit.key.namespace();
            if !commit.marks {
                shares.check(namespace, old, new)?;
            }
            shares.replace(namespace, old, new);
            match &commit.object {
                Some(object) => {
                    let versioned = Versioned { revision, object: Arc::clone(object) };
                    shelf.objects.insert(commit.key.clone(), versioned);
                }
                None => {
                    shelf.objects.remove(&commit.key);
                }
            }
            let Commit { key, object, .. } = commit;
            let entry = LogEntry { revision, key, before, object };
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
                before: None,
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
        let store = MemoryStore::new(BYTES_LIMIT, sequence, NamespaceShare::WHOLE);
        let commit = |name: &str, size: Option<usize>, expected| {
            let object = size.map(|size| {
                let metadata = serde_json::json!({"name": name, "uid": "u"});
                let tree = serde_json::json!({"metadata": metadata, "x": "x".repeat(size)});
                Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
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
    async fn a_full_share_leaves_room_for_others() {
        const SIZE: usize = 1 << 20;
        let sequence = Arc::new(RevisionSequence::starting(Timestamp::now(), 7));
        let store = MemoryStore::new(BYTES_LIMIT, sequence, NamespaceShare::default());
        let commit = |namespace, name: &str, size: Option<usize>, expected| {
            let object = size.map(|size| {
                let metadata = serde_json::json!({"name": name, "uid": "u"});
                let tree = serde_json::json!({"metadata": metadata, "x": "x".repeat(size)});
                Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
            });
            let (collection, key) = (Collection::new("c"), Key::new(namespace, name));
            Commit { collection, key, expected, object, marks: false }
        };
        let is_exceeded = |error: &StoreError| matches!(error, StoreError::ShareExceeded { limit, .. } if *limit == BYTES_LIMIT / 4);
        let mut revisions = Vec::new();
        for number in 0..31 {
            let created = commit(Some("a"), &number.to_string(), Some(SIZE), Expected::Absent);
            revisions.push(store.commit(created).await.unwrap());
        }
        let one_more = |namespace| commit(namespace, "more", Some(SIZE), Expected::Absent);
        let refused = store.commit(one_more(Some("a"))).await.unwrap_err();
        assert!(is_exceeded(&refused), "{refused}");
        // Other collections of the namespace share its room.
        let other = Commit { collection: Collection::new("d"), ..one_more(Some("a")) };
        assert!(is_exceeded(&store.commit(other).await.unwrap_err()));
        for namespace in [Some("b"), None] {
            store.commit(one_more(namespace)).await.unwrap();
        }
        // What is there may become smaller, and be marked, and go.
        let at = Expected::At(revisions[0]);
        let larger = commit(Some("a"), "0", Some(2 * SIZE), at);
        assert!(is_exceeded(&store.commit(larger.clone()).await.unwrap_err()));
        let marked = store.commit(Commit { marks: true, ..larger }).await.unwrap();
        let smaller = commit(Some("a"), "0", Some(1), Expected::At(marked));
        store.commit(smaller).await.unwrap();
        store.commit(commit(Some("a"), "1", None, Expected::At(revisions[1]))).await.unwrap();
        store.commit(one_more(Some("a"))).await.unwrap();
    }

    #[tokio::test]
    async fn passes_the_suite() {
        suite::run(|| {
            let sequence = Arc::new(RevisionSequence::starting(Timestamp::now(), 7));
            Arc::new(MemoryStore::new(BYTES_LIMIT, sequence, NamespaceShare::default()))
        })
        .await;
    }
}
