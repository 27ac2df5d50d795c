//! Replicas that share a store, and that learn about a new state at different times.

use std::sync::Arc;

use aggregated_apiserver::store::{
    Collection, Commit, Key, LogReader, Revision, RevisionSequencer, Store, StoreError, Versioned,
};
use futures::future::BoxFuture;
use tokio::sync::watch as channel;

use crate::kinds::{shared_store, stored};
use crate::teams;
use crate::watch::{Watch, list};

/// A store that other processes write to.
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        self.0.get(collection, key)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.0.commit(commit)
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.follow(collection, reader)
    }

    fn collections(&self) -> Vec<Collection> {
        self.0.collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        self.0.sequencer()
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_watch_that_was_resumed_at_another_replica_ends_when_that_replica_changes_its_state() {
    let store: Arc<dyn Store> = Arc::new(Shared(shared_store()));
    let (first_state, receiver) = channel::channel(teams([]));
    let first = stored(store.clone(), receiver).await;
    let (second_state, receiver) = channel::channel(teams([]));
    let second = stored(store, receiver).await;
    first.put("a", "red", "1", 0).await;
    first_state.send(teams([("jane", &["red"])])).unwrap();
    let (listed, _) = list(&first.server, "jane", "").await;
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["a"]);
    // The second replica does not know the new state. Its revisions are newer than the change.
    let (listed, revision) = list(&second.server, "jane", "").await;
    assert!(listed.is_empty());
    let mut resumed = Watch::resume(&first.server, "jane", "", &revision).await;
    second_state.send(teams([("jane", &["red"])])).unwrap();
    resumed.expect_expired().await;
    let (listed, revision) = list(&second.server, "jane", "").await;
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["a"]);
    let mut resumed = Watch::resume(&first.server, "jane", "", &revision).await;
    first.put("a", "red", "1", 1).await;
    resumed.expect("MODIFIED", "a").await;
}
