//! Kinds that are added, replaced and removed while a server runs.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{DirectKind, VirtualKind};
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::{InProcess, Kind, Kinds};
use futures::{StreamExt, TryStreamExt};
use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use test_server::ask;

use crate::common::{BOOKS, INTERVAL, LONG, book, books, refusal, serving, titles, until};
use crate::shelf::{Book, Fault, Shelf};
use crate::trees;

const NAME: &str = "books.library.example.com";
const GROUP: &str = "/apis/library.example.com/v1";

/// A server of another kind.
async fn server() -> (InProcess, RuntimeKinds) {
    let trees = Arc::new(trees::Trees::default());
    let server = serving(Kinds::new().kind(trees::kind(&trees, true))).await;
    let kinds = server.runtime_kinds();
    (server, kinds)
}

fn virtual_kind(shelf: &Arc<Shelf>, is_watched: bool) -> VirtualKind<Shelf> {
    let kind = match is_watched {
        true => VirtualKind::watched(Book::crd(), Arc::clone(shelf)),
        false => VirtualKind::polled(Book::crd(), Arc::clone(shelf), INTERVAL),
    };
    kind.create().update().delete()
}

/// The list, once the objects of the backend are known.
async fn listed(api: &Api<Book>) -> Vec<Book> {
    let listed = async {
        loop {
            match api.list(&ListParams::default()).await {
                Ok(list) => return list.items,
                Err(kube::Error::Api(status)) if status.code == 429 => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(LONG, listed).await.unwrap()
}

async fn status(server: &InProcess, path: &str) -> u16 {
    ask(server, Method::GET, path, &Value::Null).await.0.as_u16()
}

/// Expects that no list of the backend begins any more.
async fn expect_no_lists(shelf: &Shelf) {
    shelf.fail_list(Fault::Late);
    let called = tokio::time::timeout(INTERVAL * 6, shelf.arrived.notified()).await;
    assert!(called.is_err(), "the backend was called");
}

#[tokio::test]
async fn a_virtual_kind_is_added_and_removed() {
    for is_watched in [false, true] {
        let (server, kinds) = server().await;
        let shelf = Shelf::new();
        shelf.put("a", Some("Emma"));
        let openapi = format!("/openapi/v3{GROUP}");
        assert_eq!((status(&server, GROUP).await, status(&server, &openapi).await), (404, 404));
        kinds.serve_kind(virtual_kind(&shelf, is_watched)).await.unwrap();
        let (_, resources) = ask(&server, Method::GET, GROUP, &Value::Null).await;
        assert_eq!(resources["resources"][0]["name"], "books");
        let (_, document) = ask(&server, Method::GET, &openapi, &Value::Null).await;
        assert!(document["paths"][BOOKS.replace("/n/", "/{namespace}/")].is_object());
        let api = books(&server);
        assert_eq!(titles(&listed(&api).await), shelf.titles());
        shelf.put("b", Some("Ulysses"));
        until(&api, |books| books.contains_key("b")).await;
        api.create(&PostParams::default(), &book("c", "Emma")).await.unwrap();
        let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
        let labelled = api.patch("a", &PatchParams::default(), &label).await.unwrap();
        assert!(kinds.is_served(NAME));
        let revision = labelled.resource_version().unwrap();
        let mut events = api.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
        // The kind is removed: its watch ends, and its backend is not called any more.
        kinds.withdraw_kind(NAME).await;
        let calls = shelf.calls();
        let end = tokio::time::timeout(LONG, events.try_next()).await.unwrap();
        assert!(matches!(end, Ok(None)), "{end:?}");
        assert_eq!(status(&server, BOOKS).await, 404);
        // An APIService of the group version stays available.
        let (status_of_group, resources) = ask(&server, Method::GET, GROUP, &Value::Null).await;
        assert_eq!((status_of_group.as_u16(), &resources["resources"]), (200, &json!([])));
        assert_eq!(status(&server, &openapi).await, 404);
        let refused = api.create(&PostParams::default(), &book("d", "Emma")).await;
        assert_eq!((refusal(refused).code, kinds.is_served(NAME)), (404, false));
        assert_eq!((shelf.calls(), shelf.streams()), (calls, 0));
        if !is_watched {
            expect_no_lists(&shelf).await;
            shelf.heal();
        }
        // The objects have their metadata again if the kind is added again.
        kinds.serve_kind(virtual_kind(&shelf, is_watched)).await.unwrap();
        assert_eq!(titles(&listed(&api).await), shelf.titles());
        let again = api.get("a").await.unwrap();
        assert_eq!((again.labels(), again.uid()), (labelled.labels(), labelled.uid()));
    }
}

#[tokio::test]
async fn the_removal_of_a_kind_waits_for_a_write() {
    let (server, kinds) = server().await;
    let shelf = Shelf::new();
    kinds.serve_kind(virtual_kind(&shelf, false)).await.unwrap();
    let api = books(&server);
    listed(&api).await;
    shelf.fail_write(Fault::Late);
    let create = async { api.create(&PostParams::default(), &book("a", "Emma")).await };
    let remove = async {
        shelf.arrived.notified().await;
        let mut removed = tokio::spawn(async move { kinds.withdraw_kind(NAME).await });
        let early = tokio::time::timeout(INTERVAL, &mut removed).await;
        assert!(early.is_err(), "the write is running");
        shelf.release.notify_one();
        tokio::time::timeout(LONG, removed).await.unwrap().unwrap();
    };
    let (created, ()) = tokio::join!(create, remove);
    assert_eq!((created.unwrap().name_any(), shelf.row("a").is_some()), ("a".to_owned(), true));
}

#[tokio::test]
async fn a_kind_is_replaced_by_a_new_definition() {
    let (server, kinds) = server().await;
    let (first, second) = (Shelf::new(), Shelf::new());
    first.put("a", Some("Emma"));
    second.put("b", Some("Ulysses"));
    kinds.serve_kind(virtual_kind(&first, false)).await.unwrap();
    let api = books(&server);
    listed(&api).await;
    let revision = api.get("a").await.unwrap().resource_version().unwrap();
    let mut events = api.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
    let mut definition = Book::crd();
    definition.spec.names.short_names = Some(vec!["bk".to_owned()]);
    let kind = VirtualKind::polled(definition, Arc::clone(&second), INTERVAL);
    kinds.serve_kind(kind).await.unwrap();
    let end = tokio::time::timeout(LONG, events.try_next()).await.unwrap();
    assert!(matches!(end, Ok(None)), "{end:?}");
    let (_, resources) = ask(&server, Method::GET, GROUP, &Value::Null).await;
    let resource = &resources["resources"][0];
    assert_eq!(resource["shortNames"], json!(["bk"]));
    assert_eq!(resource["verbs"], json!(["get", "list", "watch"]));
    assert_eq!(titles(&listed(&api).await), second.titles());
    expect_no_lists(&first).await;
    // The history of the former kind is not known any more.
    let path = format!("{BOOKS}?watch=1&resourceVersion={revision}&timeoutSeconds=5");
    let (_, event) = ask(&server, Method::GET, &path, &Value::Null).await;
    assert_eq!(event["object"]["code"], 410, "{event}");
}

#[tokio::test]
async fn a_direct_kind_is_added_and_removed() {
    let (server, kinds) = server().await;
    let shelf = Shelf::new();
    shelf.put("a", Some("Emma"));
    kinds.serve_kind(DirectKind::new(Book::crd(), Arc::clone(&shelf))).await.unwrap();
    let api = books(&server);
    assert_eq!(titles(&listed(&api).await), shelf.titles());
    // A read that hangs ends when the kind is removed.
    shelf.fail_list(Fault::Late);
    let hanging = tokio::spawn({
        let api = api.clone();
        async move { api.list(&ListParams::default()).await }
    });
    shelf.arrived.notified().await;
    kinds.withdraw_kind(NAME).await;
    let calls = shelf.calls();
    let ended = tokio::time::timeout(LONG, hanging).await.unwrap().unwrap();
    assert_eq!(refusal(ended).code, 404);
    assert_eq!(refusal(api.list(&ListParams::default()).await).code, 404);
    assert_eq!((status(&server, GROUP).await, shelf.calls()), (200, calls));
}

#[tokio::test]
async fn kinds_that_cannot_be_added_are_rejected() {
    let (server, kinds) = server().await;
    let shelf = Shelf::new();
    let failed =
        |result: Result<(), aggregated_apiserver::StartError>| result.unwrap_err().to_string();
    // A stored kind, and a kind of the server itself.
    let stored = failed(kinds.serve_kind(Kind::crd(Book::crd())).await);
    assert!(stored.contains("is not a kind with a backend"), "{stored}");
    let trees = Arc::new(trees::Trees::default());
    let own = failed(kinds.serve_kind(trees::kind(&trees, true)).await);
    assert!(own.contains("is a kind of the server itself"), "{own}");
    kinds.withdraw_kind("farms.example.com").await;
    assert_eq!(status(&server, "/apis/example.com/v1/farms").await, 200);
    // A name in use.
    kinds.serve_kind(virtual_kind(&shelf, false)).await.unwrap();
    let direct = |definition| DirectKind::new(definition, Arc::clone(&shelf));
    let conflict = failed(kinds.serve_kind(direct(renamed("others", "Book"))).await);
    assert!(conflict.contains("is already in use"), "{conflict}");
    let crd = failed(kinds.serve(&Book::crd()).await);
    assert!(crd.contains("is a kind of the server itself"), "{crd}");
    kinds.serve_kind(virtual_kind(&shelf, true)).await.unwrap();
}

fn renamed(plural: &str, kind: &str) -> CustomResourceDefinition {
    let mut definition = Book::crd();
    definition.metadata.name = Some(format!("{plural}.library.example.com"));
    definition.spec.names.plural = plural.to_owned();
    definition.spec.names.singular = Some(kind.to_lowercase());
    definition.spec.names.kind = kind.to_owned();
    definition.spec.names.list_kind = None;
    definition
}

/// A server in the smallest container. Its stored objects may use 32 MiB at most.
#[tokio::test]
async fn kinds_that_are_added_share_their_memory() {
    let server = test_server::api_server(Kinds::new()).with_memory_limit(1);
    let server = server.in_process(test_server::unreachable_cluster()).await.unwrap();
    let kinds = server.runtime_kinds();
    let shelf = Shelf::new();
    for number in 0..20 {
        let definition = renamed(&format!("others{number}"), &format!("Other{number}"));
        kinds.serve_kind(DirectKind::new(definition, Shelf::new())).await.unwrap();
    }
    kinds.serve_kind(virtual_kind(&shelf, false)).await.unwrap();
    let api = books(&server);
    listed(&api).await;
    let title = "x".repeat(1 << 20);
    let create = async |name: usize| {
        api.create(&PostParams::default(), &book(&format!("a{name}"), &title)).await
    };
    let mut count = 0;
    let full = loop {
        match create(count).await {
            Ok(_) => count += 1,
            Err(error) => break refusal(Err::<Book, _>(error)),
        }
    };
    assert!((8..64).contains(&count), "{count}");
    assert_eq!(full.code, 507, "{full}");
    // The memory of a kind that is removed is free.
    kinds.withdraw_kind(NAME).await;
    let other = Shelf::new();
    kinds.serve_kind(virtual_kind(&other, false)).await.unwrap();
    listed(&api).await;
    for number in 0..count {
        create(number).await.unwrap();
    }
}
