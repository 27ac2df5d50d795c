//! A store that contains objects before the server starts, as an earlier release has stored them.

use std::sync::{Arc, Mutex};

use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::store::{
    Collection, Commit, Expected, Key, LogReader, Object, Revision, Shelves, Store, StoreError,
    Timeline, Versioned,
};
use futures::future::BoxFuture;
use serde_json::Value;

/// A store in memory.
pub struct KeptBefore {
    timeline: Arc<Timeline>,
    shelves: Mutex<Shelves>,
}

impl KeptBefore {
    /// A store with these objects in a collection.
    pub async fn new(collection: &str, objects: &[Value]) -> Self {
        let mut shelves = Shelves::new(1 << 24, NamespaceLimit::WHOLE);
        let timeline = Arc::new(Timeline::continuing(Vec::new(), 41));
        shelves.begin_past(timeline.current());
        let store = Self { timeline, shelves: Mutex::new(shelves) };
        for object in objects {
            let object = Object::from_tree(object.as_object().unwrap()).unwrap();
            let commit = Commit {
                collection: Collection::new(collection),
                key: object.key().clone(),
                expected: Expected::Absent,
                object: Some(Arc::new(object)),
                marks: false,
            };
            store.commit(commit).await.unwrap();
        }
        store
    }
}

impl Store for KeptBefore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        let kept = self.shelves.lock().unwrap().get(collection, key).map(|kept| kept.cloned());
        Box::pin(async move { kept })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let written = self.timeline.publish(|revision| {
            let mut shelves = self.shelves.lock().unwrap();
            let kept = shelves.get(&commit.collection, &commit.key)?.cloned();
            shelves.take_room(&commit, kept.as_ref())?;
            shelves.keep(revision, commit);
            Ok(revision)
        });
        Box::pin(async move { written })
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.shelves.lock().unwrap().follow(collection, reader);
        Box::pin(async { Ok(()) })
    }

    fn collections(&self) -> Vec<Collection> {
        self.shelves.lock().unwrap().collections()
    }

    fn timeline(&self) -> Arc<Timeline> {
        Arc::clone(&self.timeline)
    }
}
