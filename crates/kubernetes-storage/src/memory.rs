//! A store in memory. Its objects are lost when the process ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::object_index::ObjectIndex;
use super::{
    Collection, Commit, LogReader, NamespaceLimit, Revision, RevisionSequencer, Store, StoreError,
    Versioned,
};
use crate::object::Key;

/// The default limit of objects in a memory store, in bytes. A pod with half a gigabyte of memory can hold them,
/// together with the recent history.
pub const BYTES_LIMIT: usize = 128 << 20;
/// The limit of objects in a small container, in bytes. The default limit of a namespace still has capacity for the
/// largest object.
pub const LEAST_BYTES_LIMIT: usize = BYTES_LIMIT / 8;

/// A store in memory. Its objects are lost when the process ends.
pub struct MemoryStore {
    sequencer: Arc<RevisionSequencer>,
    object_index: Mutex<ObjectIndex>,
}

impl MemoryStore {
    /// Creates an empty store with a limit in bytes. Its revisions come from this timeline, and a namespace may use at
    /// most this part of the limit.
    pub fn new(limit: usize, sequencer: Arc<RevisionSequencer>, share: NamespaceLimit) -> Self {
        Self { sequencer, object_index: Mutex::new(ObjectIndex::new(limit, share)) }
    }

    fn lock(&self) -> MutexGuard<'_, ObjectIndex> {
        self.object_index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.sequencer.publish(|revision| {
            let mut object_index = self.lock();
            let kept = object_index.get(&commit.collection, &commit.key)?.cloned();
            object_index.take_room(&commit, kept.as_ref())?;
            object_index.keep(revision, commit);
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
        let kept = self.lock().get(collection, key).map(Option::<&Versioned>::cloned);
        ready(kept).boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        ready(self.write(commit)).boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.lock().follow(collection, reader);
        ready(Ok(())).boxed()
    }

    fn unfollow(&self, collection: &Collection, reader: &Arc<dyn LogReader>) {
        self.lock().leave(collection, reader);
    }

    fn collections(&self) -> Vec<Collection> {
        self.lock().collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.sequencer)
    }

    fn extent(&self) -> Option<(usize, usize)> {
        Some(self.lock().extent())
    }

    fn describe(&self) -> String {
        format!("memory, at revision {}", self.sequencer.current())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Precondition, suite};
    use super::*;
    use crate::object::Object;
    use jiff::Timestamp;

    #[tokio::test]
    async fn a_full_memory_store_accepts_writes_again_after_a_delete() {
        let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
        let store = MemoryStore::new(BYTES_LIMIT, sequencer, NamespaceLimit::WHOLE);
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
                let name = format!("{size}-{}", store.sequencer.current());
                match store.commit(commit(&name, Some(size), Precondition::Absent)).await {
                    Ok(revision) => first = first.or(Some((name, revision))),
                    Err(error) => break error,
                }
            };
            assert_eq!(refused, full);
        }
        let (name, mut revision) = first.unwrap();
        // The object can still be marked for deletion, but not updated.
        let larger = commit(&name, Some(SIZE + 2_000), Precondition::At(revision));
        assert_eq!(store.commit(larger.clone()).await.unwrap_err(), full);
        revision = store.commit(Commit { marks: true, ..larger }).await.unwrap();
        store.commit(commit(&name, None, Precondition::At(revision))).await.unwrap();
        store.commit(commit("again", Some(SIZE), Precondition::Absent)).await.unwrap();
    }

    #[tokio::test]
    async fn a_namespace_at_its_limit_does_not_block_other_namespaces() {
        const SIZE: usize = 1 << 20;
        let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
        let store = MemoryStore::new(BYTES_LIMIT, sequencer, NamespaceLimit::default());
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
            let created = commit(Some("a"), &number.to_string(), Some(SIZE), Precondition::Absent);
            revisions.push(store.commit(created).await.unwrap());
        }
        let one_more = |namespace| commit(namespace, "more", Some(SIZE), Precondition::Absent);
        let refused = store.commit(one_more(Some("a"))).await.unwrap_err();
        assert!(is_exceeded(&refused), "{refused}");
        // All collections of a namespace have one limit.
        let other = Commit { collection: Collection::new("d"), ..one_more(Some("a")) };
        assert!(is_exceeded(&store.commit(other).await.unwrap_err()));
        for namespace in [Some("b"), None] {
            store.commit(one_more(namespace)).await.unwrap();
        }
        // Stored objects may become smaller, be marked for deletion, and be removed.
        let at = Precondition::At(revisions[0]);
        let larger = commit(Some("a"), "0", Some(2 * SIZE), at);
        assert!(is_exceeded(&store.commit(larger.clone()).await.unwrap_err()));
        let marked = store.commit(Commit { marks: true, ..larger }).await.unwrap();
        let smaller = commit(Some("a"), "0", Some(1), Precondition::At(marked));
        store.commit(smaller).await.unwrap();
        store.commit(commit(Some("a"), "1", None, Precondition::At(revisions[1]))).await.unwrap();
        store.commit(one_more(Some("a"))).await.unwrap();
    }

    #[tokio::test]
    async fn passes_the_suite() {
        suite::run(async || {
            let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
            Arc::new(MemoryStore::new(BYTES_LIMIT, sequencer, NamespaceLimit::default()))
        })
        .await;
    }
}
