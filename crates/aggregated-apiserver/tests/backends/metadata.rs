//! Metadata that the backend stores, and metadata that the library stores.

use std::sync::Arc;

use aggregated_apiserver::Kinds;
use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::store::{Collection, Key};
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;
use test_server::admin;

use crate::common::{
    INTERVAL, LONG, book, books, polled, refusal, replica, serving, shared_store, until, watched,
};
use crate::shelf::{Book, Shelf};
use crate::trees;

#[tokio::test]
async fn metadata_that_the_backend_does_not_store_is_stored_by_the_server() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let server = polled(&shelf).await;
    let api = books(&server);
    let applied = json!({
        "apiVersion": "library.example.com/v1", "kind": "Book",
        "metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": ["example.com/f"]},
        "spec": {"title": "Emma"},
    });
    let apply = PatchParams::apply("one").force();
    let book = api.patch("a", &apply, &Patch::Apply(&applied)).await.unwrap();
    assert_eq!(book.labels()["x"], "y");
    let managers = |book: &Book| -> Vec<_> {
        book.managed_fields().iter().map(|one| one.manager.clone().unwrap()).collect()
    };
    assert!(managers(&book).contains(&"one".to_owned()), "{:?}", managers(&book));
    let other = json!({
        "apiVersion": "library.example.com/v1", "kind": "Book",
        "metadata": {"name": "a"}, "spec": {"title": "Ulysses"},
    });
    let conflict = api.patch("a", &PatchParams::apply("two"), &Patch::Apply(&other)).await;
    assert_eq!(refusal(conflict).code, 409);
    // Other programs change the row, and the metadata stays.
    shelf.put("a", Some("Persuasion"));
    until(&api, |books| books["a"].spec.title == "Persuasion").await;
    let book = api.get("a").await.unwrap();
    assert_eq!((book.labels()["x"].as_str(), !managers(&book).is_empty()), ("y", true));
    // The finalizer delays the deletion.
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let book = api.get("a").await.unwrap();
    assert!(book.metadata.deletion_timestamp.is_some() && shelf.row("a").is_some());
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert_eq!(refusal(api.get("a").await).code, 404);
    assert!(shelf.row("a").is_none());
    // A new object of this name has none of the metadata.
    shelf.put("a", Some("Emma"));
    until(&api, |books| books.contains_key("a")).await;
    let book = api.get("a").await.unwrap();
    assert!(book.labels().is_empty() && book.finalizers().is_empty());
}

#[tokio::test]
async fn the_identity_of_the_backend_and_the_metadata_of_the_client_are_merged() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        shelf.identify();
        let server = if watched_kind { watched(&shelf).await } else { polled(&shelf).await };
        let api = books(&server);
        let mut labelled = book("a", "Emma");
        labelled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
        let created = api.create(&PostParams::default(), &labelled).await.unwrap();
        assert_eq!(created.uid(), shelf.row("a").unwrap().uid);
        assert_eq!(created.labels()["x"], "y");
        let watch = api.watch(&WatchParams::default(), &created.resource_version().unwrap()).await;
        let mut events = watch.unwrap().boxed();
        // Another program replaces the row by another one.
        shelf.put_all(&[("a", None), ("a", Some("Ulysses"))]);
        let mut next =
            async || tokio::time::timeout(LONG, events.try_next()).await.unwrap().unwrap().unwrap();
        let (deleted, added) = (next().await, next().await);
        assert!(matches!(&deleted, WatchEvent::Deleted(book) if book.uid() == created.uid()));
        let WatchEvent::Added(added) = added else { panic!("{added:?}") };
        assert_eq!(added.uid(), shelf.row("a").unwrap().uid);
        assert!(added.labels().is_empty() && added.uid() != created.uid());
    }
}

#[tokio::test]
async fn a_row_that_is_missing_for_a_short_time_keeps_its_metadata() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let server = polled(&shelf).await;
    let api = books(&server);
    let labels = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let book = api.patch("a", &PatchParams::default(), &labels).await.unwrap();
    shelf.put("a", None);
    until(&api, |books| books.is_empty()).await;
    shelf.put("a", Some("Emma"));
    until(&api, |books| books.contains_key("a")).await;
    let again = api.get("a").await.unwrap();
    assert_eq!((again.uid(), again.labels()), (book.uid(), book.labels()));
    // A client that creates the object has another one.
    shelf.put("a", None);
    until(&api, |books| books.is_empty()).await;
    let created =
        api.create(&PostParams::default(), &crate::common::book("a", "Emma")).await.unwrap();
    assert!(created.labels().is_empty() && created.uid() != book.uid());
}

#[tokio::test]
async fn the_metadata_of_a_deleted_row_is_removed_after_a_while() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let store = shared_store();
    let kind = VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL);
    let server = replica(kind.timeout(INTERVAL), &store).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    books(&server).patch("a", &PatchParams::default(), &labels).await.unwrap();
    let collection = Collection::new("books.library.example.com:metadata");
    let key = Key::new(Some("n"), "a");
    assert!(store.get(&collection, &key).await.unwrap().is_some());
    shelf.put("a", None);
    let removed = async {
        while store.get(&collection, &key).await.unwrap().is_some() {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(LONG, removed).await.expect("the record stays");
}

#[tokio::test]
async fn a_backend_may_store_a_part_of_the_metadata() {
    let trees = Arc::new(trees::Trees::default());
    let kind = trees::kind(&trees, false).keeps_metadata_fields(["labels", "uid"]);
    let server = serving(Kinds::new().kind(kind)).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let api: Api<DynamicObject> = Api::all_with(server.client(admin()), &resource);
    let farm = DynamicObject::new("a", &resource).data(json!({"spec": {}}));
    let created = api.create(&PostParams::default(), &farm).await.unwrap();
    let labels = json!({"metadata": {"labels": {"x": "y"}, "finalizers": ["example.com/f"]}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&labels)).await.unwrap();
    assert_eq!(trees.get("a").unwrap().labels()["x"], "y", "labels are sent to the backend");
    // Another program removes the label. The finalizer is not its own.
    let mut unlabelled = trees.get("a").unwrap();
    unlabelled.metadata.labels = None;
    unlabelled.metadata.finalizers = None;
    trees.put(unlabelled);
    let is_unlabelled =
        |farm: Option<&DynamicObject>| farm.is_some_and(|farm| farm.labels().is_empty());
    let seen = kube::runtime::wait::await_condition(api.clone(), "a", is_unlabelled);
    tokio::time::timeout(LONG, seen).await.unwrap().unwrap();
    let farm = api.get("a").await.unwrap();
    assert_eq!((farm.uid(), farm.finalizers()), (created.uid(), &["example.com/f".to_owned()][..]));
}
