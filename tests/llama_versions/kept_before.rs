//! A store that contains objects before the server starts, as an earlier release has stored them.

use std::sync::{Arc, Mutex};

use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::store::{
    Collection, Commit, Key, LogReader, Object, ObjectIndex, Precondition, Revision,
    RevisionSequencer, Store, StoreError, Versioned,
};
use futures::future::BoxFuture;
use serde_json::Value;

/// A store in memory.
pub struct KeptBefore {
    sequencer: Arc<RevisionSequencer>,
    shelves: Mutex<ObjectIndex>,
}

impl KeptBefore {
    /// A store with these objects in a collection.
    pub async fn new(collection: &str, objects: &[Value]) -> Self {
        let mut shelves = ObjectIndex::new(1 << 24, NamespaceLimit::WHOLE);
        let sequencer = Arc::new(RevisionSequencer::continuing(Vec::new(), 41));
        shelves.begin_past(sequencer.current());
        let store = Self { sequencer, shelves: Mutex::new(shelves) };
        for object in objects {
            let object = Object::from_tree(object.as_object().unwrap()).unwrap();
            let commit = Commit {
                collection: Collection::new(collection),
                key: object.key().clone(),
                expected: Precondition::Absent,
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
        let written = self.sequencer.publish(|revision| {
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

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.sequencer)
    }
}
