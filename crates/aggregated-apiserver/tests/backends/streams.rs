//! Backends that stream their changes.

use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::json;

use crate::common::{LONG, book, books, until, watched};
use crate::shelf::Shelf;

#[tokio::test]
async fn a_stream_that_ends_is_restarted() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let server = watched(&shelf).await;
    let api = books(&server);
    // More changes than the channel holds: the stream has lost some, and fails.
    for number in 0..2_000 {
        shelf.put("a", Some(&number.to_string()));
    }
    shelf.put("b", Some("Emma"));
    until(&api, |books| books.contains_key("b") && books["a"].spec.title == "1999").await;
}

#[tokio::test]
async fn late_events_do_not_undo_writes() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let server = watched(&shelf).await;
    let api = books(&server);
    shelf.hold_changes(true);
    let patch = |copies: i64| Patch::Merge(json!({"spec": {"copies": copies}}));
    api.patch("a", &PatchParams::default(), &patch(2)).await.unwrap();
    api.patch("a", &PatchParams::default(), &patch(3)).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let mut labelled = book("a", "Emma");
    labelled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
    let created = api.create(&PostParams::default(), &labelled).await.unwrap();
    let revision = api.list(&ListParams::default()).await.unwrap().metadata.resource_version;
    let mut events = api.watch(&WatchParams::default(), &revision.unwrap()).await.unwrap().boxed();
    // Each of the events is older than the object. Only the row that follows them is a change.
    shelf.hold_changes(false);
    shelf.put("b", Some("Emma"));
    let event = tokio::time::timeout(LONG, events.try_next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(&event, WatchEvent::Added(book) if book.name_any() == "b"), "{event:?}");
    assert_eq!(api.get("a").await.unwrap(), created);
}
