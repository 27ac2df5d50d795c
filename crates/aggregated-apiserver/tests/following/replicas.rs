//! Replicas that share a store, and that learn about a new state at different times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aggregated_apiserver::store::{
    Collection, Commit, Key, LogReader, Revision, RevisionSequencer, Store, StoreError, Versioned,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde_json::Value;
use test_server::{ask_as, user};
use tokio::sync::watch as channel;

use crate::kinds::{shared_store, stored};
use crate::watch::{Watch, list};
use crate::{NOTES, teams};

/// A store that other processes write to.
struct Shared {
    store: Arc<dyn Store>,
    /// Whether it accepts no changes of visibility.
    fails: AtomicBool,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self { store: shared_store(), fails: AtomicBool::new(false) })
    }
}

impl Store for Shared {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        self.store.get(collection, key)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let is_marker = commit.collection.as_str().ends_with(":visibility");
        match is_marker && self.fails.load(Ordering::Relaxed) {
            true => futures::future::ready(Err(StoreError::Unavailable)).boxed(),
            false => self.store.commit(commit),
        }
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.follow(collection, reader)
    }

    fn collections(&self) -> Vec<Collection> {
        self.store.collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        self.store.sequencer()
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_watch_that_was_resumed_at_another_replica_ends_when_that_replica_changes_its_state() {
    let store = Shared::new();
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

/// While the change cannot be stored, lists and open watches use the new state, and no watch is resumed.
#[tokio::test]
async fn a_change_that_the_store_does_not_accept_misleads_no_client() {
    let store = Shared::new();
    let (state, receiver) = channel::channel(teams([]));
    let world = stored(store.clone(), receiver).await;
    world.put("a", "red", "1", 0).await;
    let mut open = Watch::begin(&world.server, "jane", "").await;
    let (_, old) = list(&world.server, "jane", "").await;
    store.fails.store(true, Ordering::Relaxed);
    state.send(teams([("jane", &["red"])])).unwrap();
    open.expect("ADDED", "a").await;
    let (listed, new) = list(&world.server, "jane", "").await;
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["a"]);
    for revision in [&old, &new] {
        let path = format!("{NOTES}?watch=1&resourceVersion={revision}");
        let answer = ask_as(&world.server, user("jane"), Method::GET, &path, &Value::Null).await;
        assert_eq!(answer.0, 429, "{}", answer.1);
    }
    store.fails.store(false, Ordering::Relaxed);
    let (_, new) = list(&world.server, "jane", "").await;
    Watch::resume(&world.server, "jane", "", &old).await.expect_expired().await;
    let mut resumed = Watch::resume(&world.server, "jane", "", &new).await;
    world.put("a", "red", "1", 1).await;
    resumed.expect("MODIFIED", "a").await;
}
