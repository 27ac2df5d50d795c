//! Lists of the backend: complete, partial, failing, late and with objects that do not belong to the kind.

use futures::{StreamExt, TryStreamExt};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt};
use serde_json::json;
use test_server::admin;

use crate::common::{LONG, book, books, polled, refusal, titles, until};
use crate::shelf::{Book, Fault, Shelf};

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
