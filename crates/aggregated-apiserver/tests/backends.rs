//! Virtual kinds: the objects live in a backend that other programs change, too, and that fails in every way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

#[path = "backends/shelf.rs"]
mod shelf;
#[path = "backends/trees.rs"]
mod trees;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{DirectKind, VirtualKind, suite};
use aggregated_apiserver::store::{Collection, Key, NamespaceLimit, RevisionSequencer, Store};
use aggregated_apiserver::{FieldError, InProcess, Kind, Kinds, User, Validation, Visibility};
use fastrand::Rng;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Status};
use kube::{Api, CustomResourceExt, ResourceExt};
use kubernetes_storage::MemoryStore;
use serde_json::{Value, json};
use test_server::{admin, ask};

use shelf::{Book, BookSpec, Fault, Shelf};

/// The shortest interval that a kind may be polled at.
const INTERVAL: Duration = Duration::from_millis(100);
const BOOKS: &str = "/apis/library.example.com/v1/namespaces/n/books";
/// A wait that only ends if a test fails.
const LONG: Duration = Duration::from_secs(30);

/// A server of books that are polled.
async fn polled(shelf: &Arc<Shelf>) -> InProcess {
    let books = VirtualKind::polled(Book::crd(), Arc::clone(shelf), INTERVAL);
    serving(Kinds::new().kind(books.create().update().delete())).await
}

/// A server of books whose changes are streamed.
async fn watched(shelf: &Arc<Shelf>) -> InProcess {
    let books = VirtualKind::watched(Book::crd(), Arc::clone(shelf));
    serving(Kinds::new().kind(books.create().update().delete())).await
}

async fn serving(kinds: Kinds) -> InProcess {
    let server = test_server::server_of(kinds).await;
    server.wait_synced().await;
    server
}

fn books(server: &InProcess) -> Api<Book> {
    Api::namespaced(server.client(admin()), "n")
}

fn book(name: &str, title: &str) -> Book {
    Book::new(name, BookSpec { title: title.to_owned(), copies: 1 })
}

fn titles(books: &[Book]) -> BTreeMap<String, String> {
    books.iter().map(|book| (book.name_any(), book.spec.title.clone())).collect()
}

/// Follows the books until they are these.
async fn until(api: &Api<Book>, is_expected: impl Fn(&BTreeMap<String, Book>) -> bool) {
    let list = api.list(&ListParams::default()).await.unwrap();
    let mut known: BTreeMap<_, _> =
        list.items.into_iter().map(|book| (book.name_any(), book)).collect();
    let revision = list.metadata.resource_version.unwrap();
    let mut events = api.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
    let expected = async {
        while !is_expected(&known) {
            match events.try_next().await.unwrap().expect("the watch ends too early") {
                WatchEvent::Added(book) | WatchEvent::Modified(book) => {
                    known.insert(book.name_any(), book);
                }
                WatchEvent::Deleted(book) => drop(known.remove(&book.name_any())),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(LONG, expected).await.expect("the books stay different");
}

/// The Status of a failed request.
fn refusal<T>(outcome: kube::Result<T>) -> Box<Status> {
    match outcome.map(drop).unwrap_err() {
        kube::Error::Api(status) => status,
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn polled_objects_are_read_like_stored_objects() {
    let shelf = Shelf::new();
    for (name, title) in [("a", "Ulysses"), ("b", "Emma"), ("c", "Emma")] {
        shelf.put(name, Some(title));
    }
    let server = polled(&shelf).await;
    let api = books(&server);
    let emma = ListParams::default().fields("spec.title=Emma");
    let found = api.list(&emma).await.unwrap();
    assert_eq!(found.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["b", "c"]);
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    let next = ListParams::default().limit(2).continue_token(&first.metadata.continue_.unwrap());
    let second = api.list(&next).await.unwrap();
    assert_eq!((first.items.len(), second.items.len()), (2, 1));
    // The uid is the same in each process.
    let uid = api.get("a").await.unwrap().uid().unwrap();
    assert_eq!(books(&polled(&shelf).await).get("a").await.unwrap().uid().unwrap(), uid);
    // Watches see the changes of other programs.
    shelf.put("a", None);
    shelf.put("b", Some("Persuasion"));
    until(&api, |books| !books.contains_key("a") && books["b"].spec.title == "Persuasion").await;
    assert_eq!(refusal(api.get("a").await).code, 404);
}

#[tokio::test]
async fn writes_go_to_the_backend_as_the_user() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        let server = if watched_kind { watched(&shelf).await } else { polled(&shelf).await };
        let api = books(&server);
        let created = api.create(&PostParams::default(), &book("a", "Emma")).await.unwrap();
        assert_eq!(api.get("a").await.unwrap(), created);
        let patch = json!({"spec": {"copies": 3}});
        let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        assert_eq!((patched.uid(), patched.spec.copies), (created.uid(), 3));
        assert!(patched.resource_version() > created.resource_version());
        // The first state cannot be replaced any more.
        let stale = api.replace("a", &PostParams::default(), &created).await;
        assert_eq!(refusal(stale).code, 409);
        let again = api.create(&PostParams::default(), &book("a", "Emma")).await;
        assert_eq!(refusal(again).code, 409);
        let invalid = Book::new("b", BookSpec { title: "Emma".into(), copies: 99 });
        assert_eq!(refusal(api.create(&PostParams::default(), &invalid).await).code, 422);
        api.delete("a", &DeleteParams::default()).await.unwrap();
        assert_eq!(refusal(api.get("a").await).code, 404);
        assert_eq!(refusal(api.delete("a", &DeleteParams::default()).await).code, 404);
        let calls = ["create a as admin", "update a as admin", "delete a as admin"];
        assert_eq!(shelf.calls(), calls, "invalid requests do not reach the backend");
    }
}

#[tokio::test]
async fn dry_runs_do_not_reach_the_backend() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let server = polled(&shelf).await;
    let api = books(&server);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry, &book("b", "Emma")).await.unwrap();
    let patch = json!({"spec": {"title": "Ulysses"}});
    let patched = api.patch("a", &PatchParams::default().dry_run(), &Patch::Merge(&patch)).await;
    assert_eq!(patched.unwrap().spec.title, "Ulysses");
    api.delete("a", &DeleteParams::default().dry_run()).await.unwrap();
    assert!(shelf.calls().is_empty());
    assert_eq!(titles(&api.list(&ListParams::default()).await.unwrap().items), shelf.titles());
}

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
async fn a_poll_that_began_before_a_write_does_not_undo_it() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    shelf.put("b", Some("Emma"));
    let server = polled(&shelf).await;
    let api = books(&server);
    shelf.fail_list(Fault::Late);
    shelf.arrived.notified().await;
    // The list was read before these writes, and arrives after them.
    api.create(&PostParams::default(), &book("c", "Emma")).await.unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    let patch = json!({"spec": {"title": "Ulysses"}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let written = api.list(&ListParams::default()).await.unwrap();
    let revision = written.metadata.resource_version.clone().unwrap();
    let mut events = api.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
    shelf.release.notify_one();
    // The next poll shows this row, and no event comes before it.
    shelf.put("d", Some("Emma"));
    let event = tokio::time::timeout(LONG, events.try_next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(&event, WatchEvent::Added(book) if book.name_any() == "d"), "{event:?}");
    let now = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(titles(&now.items), shelf.titles());
}

#[tokio::test]
async fn a_partial_list_deletes_nothing() {
    let shelf = Shelf::new();
    for name in ["a", "b", "c", "d"] {
        shelf.put(name, Some("Emma"));
    }
    let server = polled(&shelf).await;
    let api = books(&server);
    shelf.set_partial(true);
    shelf.put("a", Some("Ulysses"));
    shelf.put("d", None);
    until(&api, |books| books["a"].spec.title == "Ulysses").await;
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 4);
    shelf.set_partial(false);
    until(&api, |books| !books.contains_key("d")).await;
}

#[tokio::test]
async fn changes_of_other_programs_conflict_with_writes() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        for name in ["a", "b", "c"] {
            shelf.put(name, Some("Emma"));
        }
        let server = if watched_kind { watched(&shelf).await } else { polled(&shelf).await };
        let api = books(&server);
        let old = api.get("b").await.unwrap();
        shelf.put("a", Some("Ulysses"));
        shelf.put("b", Some("Ulysses"));
        shelf.put("c", None);
        // A patch is applied to the new state.
        let patch = json!({"spec": {"copies": 5}});
        let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        assert_eq!((patched.spec.title.as_str(), patched.spec.copies), ("Ulysses", 5));
        // An update of the old state fails.
        let updated = api.replace("b", &PostParams::default(), &old).await;
        assert_eq!(refusal(updated).code, 409);
        assert_eq!(shelf.row("b").unwrap().title, "Ulysses");
        let gone = api.patch("c", &PatchParams::default(), &Patch::Merge(&patch)).await;
        assert_eq!(refusal(gone).code, 404);
        shelf.put("d", Some("Emma"));
        let taken = api.create(&PostParams::default(), &book("d", "Ulysses")).await;
        assert_eq!(refusal(taken).code, 409);
        until(&api, |books| titles(&books.values().cloned().collect::<Vec<_>>()) == shelf.titles())
            .await;
    }
}

#[tokio::test]
async fn a_failing_write_fails_alone_and_clients_see_no_secret() {
    const SECRET: &str = "password=hunter2";
    let shelf = Shelf::new();
    let books_kind = VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL)
        .timeout(Duration::from_secs(1))
        .create()
        .update()
        .delete();
    let server = serving(Kinds::new().kind(books_kind)).await;
    let api = books(&server);
    let rows = [
        (
            Fault::Fail(SECRET.to_owned()),
            500,
            "the backend of books.library.example.com has failed",
        ),
        (Fault::Reject("the library is closed".to_owned()), 403, "the library is closed"),
        (Fault::Panic, 500, "the backend of books.library.example.com has failed"),
        (Fault::OtherObject, 500, "the backend of books.library.example.com has failed"),
        (Fault::Hang, 504, "outcome"),
    ];
    for (index, (fault, code, message)) in rows.into_iter().enumerate() {
        shelf.fail_write(fault.clone());
        let name = format!("a{index}");
        let status = refusal(api.create(&PostParams::default(), &book(&name, "Emma")).await);
        assert_eq!(status.code, code, "{fault:?}: {status:?}");
        assert!(status.message.contains(message), "{fault:?}: {}", status.message);
        assert!(!status.message.contains(SECRET), "{}", status.message);
        api.create(&PostParams::default(), &book(&format!("b{index}"), "Emma")).await.unwrap();
    }
    until(&api, |books| titles(&books.values().cloned().collect::<Vec<_>>()) == shelf.titles())
        .await;
}

#[tokio::test]
async fn a_failing_list_leaves_the_known_objects() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let server = polled(&shelf).await;
    let api = books(&server);
    for fault in [Fault::Late, Fault::Panic, Fault::Fail("password=hunter2".to_owned())] {
        shelf.fail_list(fault);
    }
    // The third call waits, so both failures are over.
    shelf.arrived.notified().await;
    assert_eq!(api.get("a").await.unwrap().spec.title, "Emma");
    shelf.put("b", Some("Emma"));
    shelf.release.notify_one();
    until(&api, |books| books.contains_key("b")).await;
}

#[tokio::test]
async fn objects_that_do_not_belong_to_the_kind_are_ignored() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let strange = |change: &dyn Fn(&mut Book)| {
        let mut book = book("x", "Emma");
        book.metadata.namespace = Some("n".to_owned());
        change(&mut book);
        book
    };
    shelf.list_strange(vec![
        strange(&|book| book.metadata.namespace = None),
        strange(&|book| book.metadata.name = None),
        strange(&|book| book.metadata.name = Some("a/b".to_owned())),
        strange(&|book| book.metadata.name = Some("..".to_owned())),
        strange(&|book| book.metadata.namespace = Some("a/b".to_owned())),
        // The same row twice.
        strange(&|book| book.metadata.name = Some("a".to_owned())),
        // An object that is larger than any stored object.
        strange(&|book| book.spec.title = "x".repeat(2 << 20)),
    ]);
    let server = polled(&shelf).await;
    shelf.put("b", Some("Emma"));
    until(&books(&server), |books| books.contains_key("b")).await;
    let all: Api<Book> = Api::all(server.client(admin()));
    let listed = all.list(&ListParams::default()).await.unwrap();
    assert_eq!(titles(&listed.items), shelf.titles());
}

#[tokio::test]
async fn verbs_that_the_backend_does_not_have_are_not_in_discovery() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let kind = || VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL);
    let rows = [
        (kind(), vec!["get", "list", "watch"]),
        (kind().delete(), vec!["delete", "deletecollection", "get", "list", "watch"]),
        (kind().create(), vec!["get", "list", "create", "watch"]),
        (kind().update(), vec!["get", "list", "patch", "update", "watch"]),
    ];
    for (kind, verbs) in rows {
        let server = serving(Kinds::new().kind(kind)).await;
        let (_, discovery) =
            ask(&server, Method::GET, "/apis/library.example.com/v1", &Value::Null).await;
        let served: Vec<_> = discovery["resources"][0]["verbs"].as_array().unwrap().to_vec();
        assert_eq!(served, verbs);
        let body = serde_json::to_value(book("b", "Emma")).unwrap();
        let one = format!("{BOOKS}/b");
        for (verb, method, path) in [
            ("create", Method::POST, BOOKS),
            ("update", Method::PUT, &one),
            ("delete", Method::DELETE, &one),
        ] {
            let (code, _) = ask(&server, method, path, &body).await;
            assert_eq!(code != 405, verbs.contains(&verb), "{verb}: {code}");
        }
        shelf.put("b", None);
    }
}

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
    let created = api.create(&PostParams::default(), &self::book("a", "Emma")).await.unwrap();
    assert!(created.labels().is_empty() && created.uid() != book.uid());
}

/// A store that several servers share.
fn shared_store() -> Arc<dyn Store> {
    let sequencer = Arc::new(RevisionSequencer::shared());
    Arc::new(MemoryStore::new(64 << 20, sequencer, NamespaceLimit::WHOLE))
}

async fn replica(kind: VirtualKind<Shelf>, store: &Arc<dyn Store>) -> InProcess {
    let kinds = Kinds::new().kind(kind.create().update().delete());
    let server = test_server::server_with_store(kinds, Arc::clone(store)).await;
    server.wait_synced().await;
    server
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
async fn replicas_follow_an_object_that_is_deleted_and_created_again() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        let store = shared_store();
        let kind = || match watched_kind {
            true => VirtualKind::watched(Book::crd(), Arc::clone(&shelf)),
            false => VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL),
        };
        let servers = [replica(kind(), &store).await, replica(kind(), &store).await];
        let [first, second] = servers.each_ref().map(books);
        for number in 0..10 {
            let mut labelled = book("a", "Emma");
            labelled.metadata.labels = Some([("x".to_owned(), number.to_string())].into());
            let created = first.create(&PostParams::default(), &labelled).await.unwrap();
            let is_seen =
                |book: &Book| (book.uid(), book.labels()) == (created.uid(), created.labels());
            until(&second, |books| books.get("a").is_some_and(is_seen)).await;
            first.delete("a", &DeleteParams::default()).await.unwrap();
        }
        until(&second, |books| books.is_empty()).await;
    }
}

#[tokio::test]
async fn a_change_of_the_etag_alone_does_not_fail_a_patch() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let kind = VirtualKind::polled(Book::crd(), Arc::clone(&shelf), Duration::from_secs(3_600));
    let server = replica(kind, &shared_store()).await;
    shelf.put("a", Some("Emma"));
    let patch = Patch::Merge(json!({"spec": {"copies": 5}}));
    let patched = books(&server).patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((patched.spec.copies, shelf.row("a").unwrap().copies), (5, 5));
}

#[tokio::test]
async fn replicas_that_share_a_store_lose_no_metadata() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let store = shared_store();
    // The second replica lists the rows once.
    let kind = |interval| VirtualKind::polled(Book::crd(), Arc::clone(&shelf), interval);
    let servers = [
        replica(kind(INTERVAL), &store).await,
        replica(kind(Duration::from_secs(3_600)), &store).await,
    ];
    let replicas = servers.each_ref().map(books);
    let patched = (0..20).map(|number| {
        let (api, label) = (&replicas[number % 2], format!("l{number}"));
        async move {
            let labels = Patch::Merge(json!({"metadata": {"labels": {label: "x"}}}));
            api.patch("a", &PatchParams::default(), &labels).await.unwrap()
        }
    });
    futures::future::join_all(patched).await;
    for api in &replicas {
        until(api, |books| books["a"].labels().len() == 20).await;
    }
    // The row of the first replica is not known to the second one, and its metadata stays.
    let mut labelled = book("b", "Emma");
    labelled.metadata.finalizers = Some(vec!["example.com/f".to_owned()]);
    let created = replicas[0].create(&PostParams::default(), &labelled).await.unwrap();
    let taken = replicas[1].create(&PostParams::default(), &book("b", "Ulysses")).await;
    assert_eq!(refusal(taken).code, 409);
    let seen = replicas[1].get("b").await.unwrap();
    assert_eq!((seen.uid(), seen.finalizers()), (created.uid(), created.finalizers()));
    assert_eq!(replicas[0].get("b").await.unwrap(), created);
    // A finalizer of one replica delays the deletion at the other one.
    replicas[1].delete("b", &DeleteParams::default()).await.unwrap();
    assert!(shelf.row("b").is_some());
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    replicas[0].patch("b", &PatchParams::default(), &none).await.unwrap();
    assert!(shelf.row("b").is_none());
}

#[tokio::test]
async fn a_write_that_hangs_delays_no_other_object() {
    for watched_kind in [false, true] {
        let shelf = Shelf::new();
        let server = if watched_kind { watched(&shelf).await } else { polled(&shelf).await };
        let api = books(&server);
        shelf.fail_write(Fault::Late);
        let (parameters, late) = (PostParams::default(), book("a", "Emma"));
        let create = api.create(&parameters, &late);
        let others = async {
            shelf.arrived.notified().await;
            shelf.put("b", Some("Emma"));
            until(&api, |books| books.contains_key("b")).await;
            api.create(&parameters, &book("c", "Emma")).await.unwrap();
            shelf.release.notify_one();
        };
        let (created, ()) = tokio::join!(create, others);
        assert_eq!(created.unwrap().name_any(), "a");
    }
}

#[tokio::test]
async fn dynamic_objects_have_subresources_versions_and_their_own_metadata() {
    let trees = Arc::new(trees::Trees::default());
    let server = serving(Kinds::new().kind(trees::kind(&trees, true))).await;
    let resource =
        |version| ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Farm"));
    let farms = |version| -> Api<DynamicObject> {
        Api::all_with(server.client(admin()), &resource(version))
    };
    let api = farms("v1");
    // The name is generated, the schema has a default, and fields that it does not have are removed.
    let mut farm = DynamicObject::new("", &resource("v1")).data(json!({"spec": {}, "x": "y"}));
    farm.metadata.generate_name = Some("farm-".to_owned());
    farm.metadata.name = None;
    let created = api.create(&PostParams::default(), &farm).await.unwrap();
    let name = created.name_any();
    assert!(
        name.starts_with("farm-") && created.data == json!({"spec": {"size": 1}}),
        "{created:?}"
    );
    let stored = trees.get(&name).unwrap();
    assert_eq!((stored.uid(), stored.metadata.managed_fields.is_some()), (created.uid(), true));
    assert_eq!(farms("v2").get(&name).await.unwrap().types.unwrap().api_version, "example.com/v2");
    // Server-side apply, status and scale.
    let applied = json!({
        "apiVersion": "example.com/v1", "kind": "Farm", "spec": {"size": 2, "animals": ["cow"]},
    });
    let apply = PatchParams::apply("one").force();
    let applied = api.patch(&name, &apply, &Patch::Apply(&applied)).await.unwrap();
    assert_eq!(
        (&applied.data["spec"]["animals"], applied.metadata.generation),
        (&json!(["cow"]), Some(2))
    );
    let status = Patch::Merge(json!({"status": {"size": 7}, "spec": {"size": 9}}));
    let status = api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    assert_eq!(
        (&status.data["spec"]["size"], &status.data["status"]["size"]),
        (&json!(2), &json!(7))
    );
    assert_eq!(status.annotations()["written"], "status");
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let scale = api.patch_scale(&name, &PatchParams::default(), &scale).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(5));
    assert_eq!(trees.get(&name).unwrap().data["spec"]["size"], 5);
    // The backend rejects a value.
    let thirteen = Patch::Merge(json!({"spec": {"size": 13}}));
    let status = refusal(api.patch(&name, &PatchParams::default(), &thirteen).await);
    assert_eq!((status.code, status.details.unwrap().causes[0].field.as_str()), (422, "spec.size"));
    // A value of another type never reaches the backend.
    let text = Patch::Merge(json!({"spec": {"size": "many"}}));
    assert_eq!(refusal(api.patch(&name, &PatchParams::default(), &text).await).code, 422);
    let all = api.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    all.unwrap();
    assert!(trees.get(&name).is_none());
    // Objects of other kinds, and with values of other types, are ignored.
    let put = |name: &str, version, data: Value| {
        trees.put(DynamicObject::new(name, &resource(version)).data(data));
    };
    put("text", "v1", json!({"spec": {"size": "many"}}));
    put("other", "v2", json!({}));
    put("whole", "v1", json!({"spec": {"size": 3}}));
    let is_there = kube::runtime::wait::await_condition(
        api.clone(),
        "whole",
        |farm: Option<&DynamicObject>| farm.is_some(),
    );
    tokio::time::timeout(LONG, is_there).await.unwrap().unwrap();
    let names = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(names.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["whole"]);
    api.delete("whole", &DeleteParams::default()).await.unwrap();
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
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

#[tokio::test]
async fn rules_and_visibility_apply_to_virtual_kinds() {
    let shelf = Shelf::new();
    shelf.put("public-a", Some("Emma"));
    shelf.put("secret-b", Some("Emma"));
    let books_kind = VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL).create();
    let rules = Validation::new().prepare(|book: &mut Book, _| book.spec.copies = 7).validate(
        |book: &Book, _, _| match book.spec.title.as_str() {
            "Ulysses" => vec![FieldError::forbidden("spec.title", "it is too long")],
            _ => Vec::new(),
        },
    );
    let visible =
        Visibility::by_object(|_: &User, book: &Book| book.name_any().starts_with("public"));
    let kind = Kind::virtual_kind(books_kind).validation(rules).visibility(visible);
    let server = test_server::server_of_kinds_for_all(Kinds::new().kind(kind)).await;
    server.wait_synced().await;
    let reader = User { name: "reader".to_owned(), ..User::default() };
    let api: Api<Book> = Api::namespaced(server.client(reader), "n");
    let refused = api.create(&PostParams::default(), &book("public-c", "Ulysses")).await;
    assert_eq!(refusal(refused).code, 422);
    let created = api.create(&PostParams::default(), &book("public-c", "Emma")).await.unwrap();
    assert_eq!(created.spec.copies, 7);
    let listed = api.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = listed.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["public-a", "public-c"]);
    assert_eq!(refusal(api.get("secret-b").await).code, 404);
}

async fn page_revision(api: &Api<Book>) -> String {
    api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
}

/// A backend that hangs holds no slot: other requests of the same user are served.
#[tokio::test]
async fn a_direct_kind_that_hangs_delays_no_other_kind() {
    let shelf = Shelf::new();
    let direct = DirectKind::new(Book::crd(), Arc::clone(&shelf));
    let trees = Arc::new(trees::Trees::default());
    let kinds = Kinds::new().kind(direct).kind(trees::kind(&trees, true));
    let server = test_server::server_of_kinds_for_all(kinds).await;
    server.wait_synced().await;
    let reader = User { name: "reader".to_owned(), ..User::default() };
    let api: Api<Book> = Api::namespaced(server.client(reader.clone()), "n");
    let lists: Vec<_> = (0..200)
        .map(|_| {
            shelf.fail_list(Fault::Hang);
            let api = api.clone();
            tokio::spawn(async move { api.list(&ListParams::default()).await })
        })
        .collect();
    let all_hang = async {
        while shelf.calls().len() < 64 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, all_hang).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let farms: Api<DynamicObject> = Api::all_with(server.client(reader), &resource);
    let begun = std::time::Instant::now();
    farms.list(&ListParams::default()).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "the list has waited for a slot");
    lists.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_direct_kind_calls_its_backend_for_every_read() {
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    let kind = DirectKind::new(Book::crd(), Arc::clone(&shelf)).timeout(Duration::from_secs(1));
    let server = serving(Kinds::new().kind(kind)).await;
    let api = books(&server);
    assert_eq!(api.get("a").await.unwrap().spec.title, "Emma");
    // No read shows an old state.
    for number in 0..10 {
        shelf.put("a", Some(&number.to_string()));
        assert_eq!(api.get("a").await.unwrap().spec.title, number.to_string());
        let listed = api.list(&ListParams::default()).await.unwrap();
        assert_eq!(titles(&listed.items), shelf.titles());
    }
    shelf.put("b", Some("Emma"));
    shelf.put("c", Some("Ulysses"));
    let emma = ListParams::default().fields("spec.title=Emma");
    let found = api.list(&emma).await.unwrap();
    assert_eq!(found.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["b"]);
    let named = api.list(&ListParams::default().fields("metadata.name=c")).await.unwrap();
    assert_eq!(named.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["c"]);
    // Names that no object can have do not reach the backend.
    let calls = shelf.calls().len();
    for name in ["../../x", "%2e%2e", "."] {
        let selected = ListParams::default().fields(&format!("metadata.name={name}"));
        assert!(api.list(&selected).await.unwrap().items.is_empty(), "{name}");
    }
    assert_eq!(shelf.calls().len(), calls);
    // A past state is gone.
    let revision = page_revision(&api).await;
    let exact = ListParams::default().at(&revision).matching(VersionMatch::Exact);
    assert_eq!(refusal(api.list(&exact).await).code, 410);
    assert_ne!(page_revision(&api).await, revision, "each response may have another state");
    // A list has one page, because no later request has the same state.
    let page = api.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!((page.items.len(), page.metadata.continue_.unwrap_or_default()), (3, String::new()));
    let all: Api<Book> = Api::all(server.client(admin()));
    assert_eq!(all.list(&ListParams::default()).await.unwrap().items.len(), 3);
    assert_eq!(refusal(api.get("d").await).code, 404);
    // It cannot be watched or written, and discovery says so.
    assert_eq!(refusal(api.watch(&WatchParams::default(), "0").await.map(drop)).code, 405);
    let created = api.create(&PostParams::default(), &book("d", "Emma")).await;
    assert_eq!(refusal(created).code, 405);
    let (_, resources) =
        ask(&server, Method::GET, "/apis/library.example.com/v1", &Value::Null).await;
    assert_eq!(resources["resources"][0]["verbs"], json!(["get", "list"]));
    // Failures are those of one request.
    for (fault, code) in [
        (Fault::Fail("password=hunter2".to_owned()), 500),
        (Fault::Reject("the library is closed".to_owned()), 403),
        (Fault::Panic, 500),
        (Fault::Hang, 503),
    ] {
        shelf.fail_list(fault.clone());
        let status = refusal(api.list(&ListParams::default()).await);
        assert_eq!(status.code, code, "{fault:?}: {status:?}");
        assert!(!status.message.contains("hunter2"), "{}", status.message);
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 3);
    }
    assert!(shelf.calls().iter().all(|call| call.ends_with("as admin")), "{:?}", shelf.calls());
}

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
            let same = before.is_none_or(|before| before.uid() == book.uid());
            assert!(same, "seed {seed}: the uid has changed: {event:?}");
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
