//! The creation time and the generation of objects whose backend has none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::{InProcess, Kinds};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use test_server::admin;

use crate::common::{
    INTERVAL, LONG, book, books, polled, replica, serving, shared_store, until, watched,
};
use crate::shelf::{Book, Shelf};
use crate::trees;

fn created(book: &Book) -> Timestamp {
    book.creation_timestamp().unwrap().0
}

fn generation(book: &Book) -> i64 {
    book.metadata.generation.unwrap()
}

/// Waits until the book has this title, and returns it.
async fn titled(api: &Api<Book>, title: &str) -> Book {
    until(api, |books| books.get("a").is_some_and(|book| book.spec.title == title)).await;
    api.get("a").await.unwrap()
}

/// Patches the book, and returns it.
async fn patch(api: &Api<Book>, patch: Value) -> Book {
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
}

#[tokio::test]
async fn objects_have_the_time_when_they_were_first_seen() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        shelf.put("a", Some("Emma"));
        let before = Timestamp::now().as_second();
        let server = if watched_kind { watched(&shelf).await } else { polled(&shelf).await };
        let api = books(&server);
        let first = api.get("a").await.unwrap();
        assert!((before..=Timestamp::now().as_second()).contains(&created(&first).as_second()));
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let list = api.list(&ListParams::default()).await.unwrap();
        let revision = list.metadata.resource_version.unwrap();
        let mut events = api.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
        shelf.put("a", Some("Ulysses"));
        let event = tokio::time::timeout(LONG, events.try_next()).await.unwrap().unwrap();
        let Some(WatchEvent::Modified(changed)) = event else { panic!("{event:?}") };
        assert_eq!(created(&changed), created(&first), "watches show the same time");
        assert_eq!(created(&patch(&api, json!({"spec": {"copies": 2}})).await), created(&first));
        // A row that is inserted again is a new object.
        shelf.put("a", None);
        until(&api, BTreeMap::is_empty).await;
        shelf.put("b", Some("Emma"));
        until(&api, |books| books.contains_key("b")).await;
        assert!(created(&api.get("b").await.unwrap()) > created(&first));
        let new = api.create(&PostParams::default(), &book("c", "Emma")).await.unwrap();
        assert!(created(&new) > created(&first));
        assert_eq!(api.get("c").await.unwrap(), new);
    }
}

#[tokio::test]
async fn the_creation_time_of_the_backend_takes_precedence() {
    let shelf = Shelf::new();
    shelf.identify();
    shelf.put("a", Some("Emma"));
    let server = polled(&shelf).await;
    let api = books(&server);
    let expected: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(created(&api.get("a").await.unwrap()), expected);
    let new = api.create(&PostParams::default(), &book("b", "Emma")).await.unwrap();
    assert_eq!(created(&new), expected);
}

#[tokio::test]
async fn stored_metadata_keeps_the_creation_time_and_the_generation() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let store = shared_store();
    let kind = || VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL);
    let server = replica(kind(), &store).await;
    let api = books(&server);
    let labelled = patch(&api, json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(generation(&labelled), 1);
    shelf.put("a", Some("Ulysses"));
    assert_eq!(generation(&titled(&api, "Ulysses").await), 2);
    // The generation is stored before the next poll.
    let saved = async {
        let collection =
            aggregated_apiserver::store::Collection::new("books.library.example.com:metadata");
        let key = aggregated_apiserver::store::Key::new(Some("n"), "a");
        loop {
            let record = store.get(&collection, &key).await.unwrap().unwrap();
            if record.object.to_tree()["metadata"]["generation"] == 2 {
                return;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(LONG, saved).await.unwrap();
    drop(server);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let server = replica(kind(), &store).await;
    let restarted = books(&server).get("a").await.unwrap();
    assert_eq!((created(&restarted), generation(&restarted)), (created(&labelled), 2));
    drop(server);
    // The row changes while no server runs.
    shelf.put("a", Some("Persuasion"));
    let server = replica(kind(), &store).await;
    assert_eq!(generation(&books(&server).get("a").await.unwrap()), 3);
}

#[tokio::test]
async fn changes_of_other_programs_increment_the_generation() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        shelf.put("a", Some("Emma"));
        let server = if watched_kind { watched(&shelf).await } else { polled(&shelf).await };
        let api = books(&server);
        assert_eq!(generation(&api.get("a").await.unwrap()), 1);
        shelf.put("a", Some("Ulysses"));
        let changed = titled(&api, "Ulysses").await;
        assert_eq!(generation(&changed), 2);
        // The row has a new etag, and no field has changed.
        shelf.put("a", Some("Ulysses"));
        shelf.put("b", Some("Emma"));
        until(&api, |books| books.contains_key("b")).await;
        assert_eq!(api.get("a").await.unwrap(), changed);
        assert_eq!(generation(&patch(&api, json!({"spec": {"copies": 2}})).await), 3);
        assert_eq!(generation(&patch(&api, json!({"metadata": {"labels": {"x": "y"}}})).await), 3);
        shelf.put("a", Some("Persuasion"));
        assert_eq!(generation(&titled(&api, "Persuasion").await), 4);
        shelf.put("a", Some("Emma"));
        assert_eq!(generation(&titled(&api, "Emma").await), 5);
    }
}

#[tokio::test]
async fn replicas_increment_the_stored_generation_once() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        shelf.put("a", Some("0"));
        let store = shared_store();
        let kind = || match watched_kind {
            true => VirtualKind::watched(Book::crd(), Arc::clone(&shelf)),
            false => VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL),
        };
        let servers = [replica(kind(), &store).await, replica(kind(), &store).await];
        let [first, second] = servers.each_ref().map(books);
        patch(&first, json!({"metadata": {"labels": {"x": "y"}}})).await;
        until(&second, |books| !books["a"].labels().is_empty()).await;
        for number in 1..=5 {
            shelf.put("a", Some(&number.to_string()));
            let books = [
                titled(&first, &number.to_string()).await,
                titled(&second, &number.to_string()).await,
            ];
            assert_eq!(books.each_ref().map(generation), [number + 1; 2]);
            assert_eq!(created(&books[0]), created(&books[1]));
        }
        // Time for a replica that would react to the other one.
        tokio::time::sleep(INTERVAL * 5).await;
        for api in [&first, &second] {
            assert_eq!(generation(&api.get("a").await.unwrap()), 6);
        }
    }
}

#[tokio::test]
async fn a_change_of_a_status_subresource_does_not_increment_the_generation() {
    let trees = Arc::new(trees::Trees::default());
    let kind = trees::kind(&trees, false);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let put = |data: Value| trees.put(DynamicObject::new("a", &resource).data(data));
    put(json!({"spec": {"size": 1}}));
    let server = serving(Kinds::new().kind(kind)).await;
    let api: Api<DynamicObject> = Api::all_with(server.client(admin()), &resource);
    for (data, expected) in [
        (json!({"spec": {"size": 1}, "status": {"size": 3}}), 1),
        (json!({"spec": {"size": 2}, "status": {"size": 3}}), 2),
        (json!({"spec": {"size": 2}}), 2),
    ] {
        put(data.clone());
        let is_seen = |farm: Option<&DynamicObject>| farm.is_some_and(|farm| farm.data == data);
        let seen = kube::runtime::wait::await_condition(api.clone(), "a", is_seen);
        let farm = tokio::time::timeout(LONG, seen).await.unwrap().unwrap().unwrap();
        assert_eq!(farm.metadata.generation, Some(expected), "{data}");
    }
}

/// A backend begins to return creation times. Its objects are the same ones, and have their metadata still.
#[tokio::test]
async fn a_backend_that_gets_creation_times_loses_no_metadata() {
    let trees = Arc::new(trees::Trees::default());
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let farm = || DynamicObject::new("a", &resource).data(json!({"spec": {"size": 1}}));
    trees.put(farm());
    let server = serving(Kinds::new().kind(trees::kind(&trees, false))).await;
    let api: Api<DynamicObject> = Api::all_with(server.client(admin()), &resource);
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let labelled = api.patch("a", &PatchParams::default(), &label).await.unwrap();
    let time = Some(Time("2020-01-01T00:00:00Z".parse().unwrap()));
    let mut dated = farm();
    dated.metadata.creation_timestamp.clone_from(&time);
    trees.put(dated);
    let is_seen = |farm: Option<&DynamicObject>| {
        farm.is_some_and(|farm| farm.metadata.creation_timestamp == time)
    };
    let seen = kube::runtime::wait::await_condition(api.clone(), "a", is_seen);
    let farm = tokio::time::timeout(LONG, seen).await.unwrap().unwrap().unwrap();
    assert_eq!((farm.uid(), farm.labels()), (labelled.uid(), labelled.labels()));
}

/// A backend that stores all metadata, and its server.
async fn keeping(trees: &Arc<trees::Trees>) -> (InProcess, Api<DynamicObject>) {
    let server = serving(Kinds::new().kind(trees::kind(trees, true))).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let api = Api::all_with(server.client(admin()), &resource);
    (server, api)
}

async fn sized(api: &Api<DynamicObject>, size: i64) -> i64 {
    let is_seen =
        |farm: Option<&DynamicObject>| farm.is_some_and(|farm| farm.data["spec"]["size"] == size);
    let seen = kube::runtime::wait::await_condition(api.clone(), "a", is_seen);
    let farm = tokio::time::timeout(LONG, seen).await.unwrap().unwrap().unwrap();
    farm.metadata.generation.unwrap()
}

#[tokio::test]
async fn a_backend_that_stores_all_metadata_receives_the_generation() {
    let trees = Arc::new(trees::Trees::default());
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let change = |size: i64| {
        let mut farm = trees.get("a").unwrap_or_else(|| DynamicObject::new("a", &resource));
        farm.data = json!({"spec": {"size": size}});
        trees.put(farm);
    };
    let stored = async |generation: i64| {
        let is_stored = async {
            while trees.get("a").unwrap().metadata.generation != Some(generation) {
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::time::timeout(LONG, is_stored).await.unwrap();
    };
    change(1);
    let (first, first_api) = keeping(&trees).await;
    let (_second, second_api) = keeping(&trees).await;
    assert_eq!(sized(&first_api, 1).await, 1);
    for size in 2..=5 {
        change(size);
        let generations = [sized(&first_api, size).await, sized(&second_api, size).await];
        assert_eq!(generations, [size; 2], "each replica has counted the change once");
        stored(size).await;
    }
    // No replica writes again.
    tokio::time::sleep(INTERVAL * 5).await;
    let writes = trees.writes("a");
    tokio::time::sleep(INTERVAL * 5).await;
    assert_eq!(trees.writes("a"), writes);
    // A change of metadata or of the status is not counted.
    let mut farm = trees.get("a").unwrap();
    farm.labels_mut().insert("x".to_owned(), "y".to_owned());
    farm.data["status"] = json!({"size": 5});
    trees.put(farm);
    let is_seen = |farm: Option<&DynamicObject>| farm.is_some_and(|farm| !farm.labels().is_empty());
    let seen = kube::runtime::wait::await_condition(first_api.clone(), "a", is_seen);
    let farm = tokio::time::timeout(LONG, seen).await.unwrap().unwrap().unwrap();
    assert_eq!(farm.metadata.generation, Some(5));
    let grow = Patch::Merge(json!({"spec": {"size": 6}}));
    let patched = first_api.patch("a", &PatchParams::default(), &grow).await.unwrap();
    assert_eq!((patched.metadata.generation, sized(&second_api, 6).await), (Some(6), 6));
    drop(first);
    let (_restarted, api) = keeping(&trees).await;
    assert_eq!(sized(&api, 6).await, 6);
}
