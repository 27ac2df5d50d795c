//! The tests that every store must pass. The memory store is the reference.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // the whole module is test code

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{Collection, Commit, LogEntry, LogReader, Precondition, Revision, Store, StoreError};
use crate::object::{Key, Object};

/// A reader that records the entries it receives.
#[derive(Default)]
struct Recorder(Mutex<Vec<(Revision, String, bool)>>);

impl LogReader for Recorder {
    fn append(&self, entry: LogEntry) {
        let row = (entry.revision, entry.key.to_string(), entry.object.is_some());
        self.0.lock().unwrap().push(row);
    }
}

/// Runs the tests. `open` creates an empty store for each of them.
pub async fn run<S: Store>(open: impl AsyncFn() -> Arc<S>) {
    creates_once(&*open().await).await;
    replaces_and_removes_at_the_expected_revision(&*open().await).await;
    keeps_collections_apart(&*open().await).await;
    tells_followers_everything_in_order(&*open().await).await;
    lets_one_of_many_writers_win(open().await).await;
    knows_its_newest_revision(&*open().await).await;
}

fn collection() -> Collection {
    Collection::new("llamas.farm.example.com")
}

fn key(name: &str) -> Key {
    Key::new(Some("default"), name)
}

fn commit(name: &str, expected: Precondition, weight: Option<i64>) -> Commit {
    let object = weight.map(|weight| {
        let tree = json!({
            "metadata": {"name": name, "namespace": "default", "uid": "u"},
            "spec": {"weight": weight},
        });
        Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
    });
    Commit { collection: collection(), key: key(name), expected, object, marks: false }
}

async fn creates_once<S: Store>(store: &S) {
    assert!(store.get(&collection(), &key("a")).await.unwrap().is_none());
    let revision = store.commit(commit("a", Precondition::Absent, Some(1))).await.unwrap();
    let kept = store.get(&collection(), &key("a")).await.unwrap().unwrap();
    assert_eq!(kept.revision, revision);
    let again = store.commit(commit("a", Precondition::Absent, Some(2))).await;
    assert_eq!(again, Err(StoreError::Exists));
    let kept = store.get(&collection(), &key("a")).await.unwrap().unwrap();
    assert_eq!(kept.object.to_tree()["spec"]["weight"], 1, "a refused write changes nothing");
}

async fn replaces_and_removes_at_the_expected_revision<S: Store>(store: &S) {
    let first = store.commit(commit("a", Precondition::Absent, Some(1))).await.unwrap();
    let second = store.commit(commit("a", Precondition::At(first), Some(2))).await.unwrap();
    assert!(second > first);
    for object in [Some(3), None] {
        let stale = store.commit(commit("a", Precondition::At(first), object)).await;
        assert_eq!(stale, Err(StoreError::Changed { current: second }));
    }
    let removed = store.commit(commit("a", Precondition::At(second), None)).await.unwrap();
    assert!(removed > second, "a removal takes a revision of its own");
    assert!(store.get(&collection(), &key("a")).await.unwrap().is_none());
    let absent = store.commit(commit("a", Precondition::At(second), None)).await;
    assert_eq!(absent, Err(StoreError::Absent));
    let again = store.commit(commit("a", Precondition::Absent, Some(4))).await.unwrap();
    assert!(again > removed);
}

async fn keeps_collections_apart<S: Store>(store: &S) {
    let first = store.commit(commit("a", Precondition::Absent, Some(1))).await.unwrap();
    let mut other = commit("a", Precondition::Absent, Some(1));
    other.collection = Collection::new("alpacas.farm.example.com");
    let second = store.commit(other).await.unwrap();
    assert!(second > first, "one timeline for all collections");
}

async fn tells_followers_everything_in_order<S: Store>(store: &S) {
    let first = store.commit(commit("b", Precondition::Absent, Some(1))).await.unwrap();
    let second = store.commit(commit("a", Precondition::Absent, Some(1))).await.unwrap();
    let recorder = Arc::new(Recorder::default());
    store.follow(&collection(), recorder.clone()).await.unwrap();
    let third = store.commit(commit("b", Precondition::At(first), Some(2))).await.unwrap();
    let _ = store.commit(commit("b", Precondition::Absent, Some(2))).await;
    let fourth = store.commit(commit("b", Precondition::At(third), None)).await.unwrap();
    let told = recorder.0.lock().unwrap().clone();
    let expected = [
        (first, "default/b", true),
        (second, "default/a", true),
        (third, "default/b", true),
        (fourth, "default/b", false),
    ];
    assert_eq!(told, expected.map(|(revision, key, kept)| (revision, key.to_owned(), kept)));
}

async fn lets_one_of_many_writers_win<S: Store>(store: Arc<S>) {
    const WRITERS: i64 = 32;
    let recorder = Arc::new(Recorder::default());
    store.follow(&collection(), recorder.clone()).await.unwrap();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|weight| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                store.commit(commit("a", Precondition::Absent, Some(weight))).await
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => won += 1,
            Err(error) => assert_eq!(error, StoreError::Exists),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(recorder.0.lock().unwrap().len(), 1);
}

async fn knows_its_newest_revision<S: Store>(store: &S) {
    assert!(store.is_known());
    store.known().await;
    let before = store.newest().await.unwrap();
    let written = store.commit(commit("a", Precondition::Absent, Some(1))).await.unwrap();
    assert!(before < written);
    let newest = store.newest().await.unwrap();
    assert!(written <= newest, "{written} is newer than {newest}");
    store.sequencer().wait_until(newest).await;
    assert!(store.sequencer().current() >= newest);
    assert!(store.sequencer().may_have_issued(newest));
}
