//! Writes of clients, which the backend accepts, rejects or never answers.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::Kinds;
use aggregated_apiserver::backend::VirtualKind;
use axum::body::Body;
use http::{Method, Request};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use test_server::{admin, ask};

use crate::common::{
    BOOKS, INTERVAL, book, books, polled, refusal, replica, serving, shared_store, titles, until,
    watched,
};
use crate::shelf::{Book, BookSpec, Fault, Shelf};

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
async fn backends_receive_the_audit_id_of_the_request() {
    let shelf = Shelf::new();
    let server = polled(&shelf).await;
    let emma = serde_json::to_value(book("a", "Emma")).unwrap();
    let [patch, other] = [3, 4].map(|copies| json!({"spec": {"copies": copies}}));
    let one = format!("{BOOKS}/a");
    for (method, path, body, given) in [
        (Method::POST, BOOKS, &emma, Some(&b"sent-by-a-client"[..])),
        (Method::PATCH, &one, &patch, None),
        // Backends receive the ID as text, and an empty ID is that of the server itself.
        (Method::PATCH, &one, &other, Some(b"\xff")),
        (Method::DELETE, &one, &json!({}), None),
    ] {
        let request = Request::builder().method(&method).uri(path);
        let request = match method {
            Method::PATCH => request.header("content-type", "application/merge-patch+json"),
            _ => request.header("content-type", "application/json"),
        };
        let request = match given {
            Some(id) => request.header("audit-id", id),
            None => request,
        };
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = server.respond(admin(), request).await;
        assert!(response.status().is_success(), "{method}: {}", response.status());
        let id = response.headers()["audit-id"].to_str().unwrap();
        let given = given.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or(id);
        assert_eq!((given, &*shelf.audit_id()), (id, id), "{method}");
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
