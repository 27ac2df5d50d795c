//! The suite for backends, and random histories.

use std::collections::BTreeMap;

use aggregated_apiserver::backend::suite;
use fastrand::Rng;
use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::json;

use crate::common::{LONG, book, books, polled, titles, watched};
use crate::shelf::{Book, Fault, Shelf};

#[tokio::test]
async fn the_backend_of_these_tests_passes_the_suite() {
    let open = async || Shelf::new();
    let object = |name: &str| {
        let mut book = book(name, "Emma");
        book.metadata.namespace = Some("n".to_owned());
        book
    };
    let change = |book: &mut Book| book.spec.copies += 1;
    suite::run(open, object, change).await;
    suite::run_watched(open, object, change).await;
}

/// Clients and other programs write at random, while the backend fails at random and its events arrive late. In the end,
/// a watcher that has followed all changes, a list and the table are equal.
#[tokio::test]
async fn random_histories_end_equal_for_watchers_lists_and_the_backend() {
    futures::future::join_all((0..8).map(history)).await;
}

async fn history(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let shelf = Shelf::new();
    let server = if seed.is_multiple_of(2) { polled(&shelf).await } else { watched(&shelf).await };
    let api = books(&server);
    let list = api.list(&ListParams::default()).await.unwrap();
    let revision = list.metadata.resource_version.unwrap();
    let mut events = api.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
    // The labels that clients have set, by name.
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for step in 0..150 {
        let name = format!("b{}", rng.u8(0..6));
        let title = step.to_string();
        match rng.u8(0..12) {
            0 => shelf.put(&name, Some(&title)),
            1 => shelf.put(&name, None),
            2 => shelf.fail_list(Fault::Fail("no list".to_owned())),
            3 => shelf.fail_write(Fault::Fail("no write".to_owned())),
            4 => shelf.set_partial(rng.bool()),
            5 => {
                if api.delete(&name, &DeleteParams::default()).await.is_ok() {
                    labels.remove(&name);
                }
            }
            6 | 7 => {
                if api.create(&PostParams::default(), &book(&name, &title)).await.is_ok() {
                    labels.remove(&name);
                }
            }
            8 => shelf.hold_changes(rng.bool()),
            9 => {
                let patch = json!({"metadata": {"labels": {"step": title}}});
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
                if api.patch(&name, &parameters, &patch).await.is_ok() {
                    labels.insert(name, title);
                }
            }
            _ => {
                let patch = json!({"spec": {"title": title}});
                drop(api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    }
    shelf.heal();
    shelf.put("last", Some("last"));
    let mut known: BTreeMap<String, Book> = BTreeMap::new();
    let mut newest = 0_u64;
    let is_equal = |known: &BTreeMap<String, Book>| {
        titles(&known.values().cloned().collect::<Vec<_>>()) == shelf.titles()
    };
    let follow = async {
        loop {
            let event = events.try_next().await.unwrap().unwrap();
            let (is_added, book) = match &event {
                WatchEvent::Added(book) => (true, book),
                WatchEvent::Modified(book) | WatchEvent::Deleted(book) => (false, book),
                WatchEvent::Bookmark(_) => continue,
                event => panic!("{event:?}"),
            };
            let revision = book.resource_version().unwrap().parse().unwrap();
            assert!(revision > newest, "seed {seed}: revisions grow");
            newest = revision;
            let before = known.remove(&book.name_any());
            assert_eq!(before.is_none(), is_added, "seed {seed}: {event:?} after {before:?}");
            if let Some(before) = before.filter(|_| !matches!(event, WatchEvent::Deleted(_))) {
                let identity = |book: &Book| (book.uid(), book.creation_timestamp());
                assert_eq!(identity(&before), identity(book), "seed {seed}: {event:?}");
                let (old, new) = (before.metadata.generation, book.metadata.generation);
                let is_incremented = new > old;
                assert!(new >= old && old.is_some(), "seed {seed}: {event:?} after {before:?}");
                assert_eq!(before.spec != book.spec, is_incremented, "seed {seed}: {event:?}");
            }
            if !matches!(event, WatchEvent::Deleted(_)) {
                known.insert(book.name_any(), book.clone());
            }
            if is_equal(&known) {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(LONG, follow).await;
    assert!(ended.is_ok(), "seed {seed}: {known:?} instead of {:?}", shelf.titles());
    let listed = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items, known.into_values().collect::<Vec<_>>(), "seed {seed}");
    for book in &listed.items {
        assert_eq!(book.labels().get("step"), labels.get(&book.name_any()), "seed {seed}");
    }
}
