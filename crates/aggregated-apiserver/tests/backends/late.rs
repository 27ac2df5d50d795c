//! Creates whose backend answers after the deadline of the request, or never: the object appears later.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{DirectKind, VirtualKind};
use aggregated_apiserver::{InProcess, Kind, Kinds};
use http::Method;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;
use test_server::ask;

use crate::common::{BOOKS, INTERVAL, LONG, book, books, refusal, with_quota};
use crate::shelf::{Book, Fault, Shelf};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sort {
    Polled,
    Watched,
    Direct,
}

const SORTS: [Sort; 3] = [Sort::Polled, Sort::Watched, Sort::Direct];

/// A server of books of this sort, with a quota of two books.
async fn server(sort: Sort, shelf: &Arc<Shelf>, timeout: Duration) -> InProcess {
    let shelf = Arc::clone(shelf);
    let kind: Kind = match sort {
        Sort::Polled => VirtualKind::polled(Book::crd(), shelf, INTERVAL)
            .create()
            .delete()
            .timeout(timeout)
            .into(),
        Sort::Watched => {
            VirtualKind::watched(Book::crd(), shelf).create().delete().timeout(timeout).into()
        }
        Sort::Direct => {
            let kind = DirectKind::new(Book::crd(), shelf).keeps_metadata_fields(["labels"]);
            kind.create().delete().timeout(timeout).into()
        }
    };
    with_quota(Kinds::new().kind(kind), 2).await
}

async fn create_late(server: &InProcess, parameters: &str) -> u16 {
    let emma = json!({
        "apiVersion": "library.example.com/v1", "kind": "Book",
        "metadata": {"name": "late", "labels": {"a": "b"}}, "spec": {"title": "Emma"},
    });
    ask(server, Method::POST, &format!("{BOOKS}{parameters}"), &emma).await.0.as_u16()
}

/// Waits until the late book is in lists. Returns it.
async fn found(server: &InProcess) -> Book {
    let api = books(server);
    let found = async {
        loop {
            let listed = api.list(&ListParams::default()).await.unwrap().items;
            if let Some(book) = listed.into_iter().find(|book| book.name_any() == "late") {
                return book;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, found).await.expect("the late book does not appear")
}

/// The late book counts against the quota, once.
async fn is_counted_once(server: &InProcess, sort: Sort) {
    let api = books(server);
    let create = async |name: &str| api.create(&PostParams::default(), &book(name, "Emma")).await;
    create("one").await.unwrap_or_else(|error| panic!("{sort:?}: {error}"));
    assert_eq!(refusal(create("two").await).code, 403, "{sort:?}");
    api.delete("late", &DeleteParams::default()).await.unwrap();
    create("two").await.unwrap_or_else(|error| panic!("{sort:?}: {error}"));
    assert_eq!(refusal(create("three").await).code, 403, "{sort:?}");
}

#[tokio::test]
async fn an_answer_after_the_deadline_of_the_request_publishes_the_object() {
    for sort in SORTS {
        let shelf = Shelf::with_etags();
        let server = server(sort, &shelf, LONG).await;
        shelf.fail_write(Fault::Late);
        assert_eq!(create_late(&server, "?timeout=1s").await, 504, "{sort:?}");
        shelf.release.notify_one();
        let late = found(&server).await;
        if sort != Sort::Direct {
            assert_eq!(late.labels()["a"], "b", "{sort:?}");
        }
        is_counted_once(&server, sort).await;
    }
}

#[tokio::test]
async fn an_object_that_appears_after_the_last_call_is_published() {
    for sort in SORTS {
        let shelf = Shelf::with_etags();
        let server = server(sort, &shelf, Duration::from_secs(1)).await;
        shelf.fail_write(Fault::Hang);
        assert_eq!(create_late(&server, "").await, 504, "{sort:?}");
        // A few lists do not have the object yet.
        tokio::time::sleep(4 * INTERVAL).await;
        assert!(books(&server).list(&ListParams::default()).await.unwrap().items.is_empty());
        shelf.put("late", Some("Emma"));
        let late = found(&server).await;
        if sort != Sort::Direct {
            assert_eq!(late.labels()["a"], "b", "{sort:?}: the stored metadata is used");
        }
        is_counted_once(&server, sort).await;
    }
}

/// A client repeats a create whose outcome is unknown.
#[tokio::test]
async fn a_repeated_create_finds_the_late_object() {
    for sort in SORTS {
        let shelf = Shelf::with_etags();
        let server = server(sort, &shelf, Duration::from_secs(1)).await;
        shelf.fail_write(Fault::Hang);
        assert_eq!(create_late(&server, "").await, 504, "{sort:?}");
        shelf.put("late", Some("Emma"));
        assert_eq!(create_late(&server, "").await, 409, "{sort:?}");
        found(&server).await;
        is_counted_once(&server, sort).await;
    }
}
