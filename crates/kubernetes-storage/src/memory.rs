//! A store in memory. Its objects are lost when the process ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::shelves::Shelves;
use super::{
    Collection, Commit, LogReader, NamespaceLimit, Revision, Store, StoreError, Timeline, Versioned,
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
    timeline: Arc<Timeline>,
    shelves: Mutex<Shelves>,
}

impl MemoryStore {
    /// Creates an empty store with a limit in bytes. Its revisions come from this timeline, and a namespace may use at
    /// most this part of the limit.
    pub fn new(limit: usize, timeline: Arc<Timeline>, share: NamespaceLimit) -> Self {
        Self { timeline, shelves: Mutex::new(Shelves::new(limit, share)) }
    }

    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.timeline.publish(|revision| {
            let mut shelves = self.lock();
            let kept = shelves.get(&commit.collection, &commit.key)?.cloned();
            shelves.take_room(&commit, kept.as_ref())?;
            shelves.keep(revision, commit);
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

    fn timeline(&self) -> Arc<Timeline> {
        Arc::clone(&self.timeline)
    }

    fn extent(&self) -> Option<(usize, usize)> {
        Some(self.lock().extent())
    }

    fn describe(&self) -> String {
        format!("memory, at revision {}", self.timeline.current())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expected, suite};
    use super::*;
    use crate::object::Object;
    use jiff::Timestamp;

    #[tokio::test]
    async fn is_full_at_last_and_has_room_again() {
        let timeline = Arc::new(Timeline::starting(Timestamp::now(), 7));
        let store = MemoryStore::new(BYTES_LIMIT, timeline, NamespaceLimit::WHOLE);
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
                let name = format!("{size}-{}", store.timeline.current());
                match store.commit(commit(&name, Some(size), Expected::Absent)).await {
                    Ok(revision) => first = first.or(Some((name, revision))),
                    Err(error) => break error,
                }
            };
            assert_eq!(refused, full);
        }
        let (name, mut revision) = first.unwrap();
        // The object can still be marked for deletion, but not updated.
        let larger = commit(&name, Some(SIZE + 2_000), Expected::At(revision));
        assert_eq!(store.commit(larger.clone()).await.unwrap_err(), full);
        revision = store.commit(Commit { marks: true, ..larger }).await.unwrap();
        store.commit(commit(&name, None, Expected::At(revision))).await.unwrap();
        store.commit(commit("again", Some(SIZE), Expected::Absent)).await.unwrap();
    }

    #[tokio::test]
    async fn a_full_share_leaves_room_for_others() {
        const SIZE: usize = 1 << 20;
        let timeline = Arc::new(Timeline::starting(Timestamp::now(), 7));
        let store = MemoryStore::new(BYTES_LIMIT, timeline, NamespaceLimit::default());
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
        // All collections of a namespace have one limit.
        let other = Commit { collection: Collection::new("d"), ..one_more(Some("a")) };
        assert!(is_exceeded(&store.commit(other).await.unwrap_err()));
        for namespace in [Some("b"), None] {
            store.commit(one_more(namespace)).await.unwrap();
        }
        // Stored objects may become smaller, be marked for deletion, and be removed.
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
        suite::run(async || {
            let timeline = Arc::new(Timeline::starting(Timestamp::now(), 7));
            Arc::new(MemoryStore::new(BYTES_LIMIT, timeline, NamespaceLimit::default()))
        })
        .await;
    }
}
