//! Writes of direct kinds.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{DirectKind, Reason};
use aggregated_apiserver::{InProcess, Kind, Kinds, Validation};
use http::Method;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use test_server::{admin, ask};

use crate::common::{BOOKS, LONG, book, books, refusal, serving, titles, with_quota};
use crate::shelf::{Book, BookSpec, Fault, Shelf};
use crate::trees;

fn direct(shelf: &Arc<Shelf>) -> DirectKind<Shelf> {
    DirectKind::new(Book::crd(), Arc::clone(shelf))
}

async fn server(shelf: &Arc<Shelf>) -> InProcess {
    serving(Kinds::new().kind(direct(shelf).create().update().delete())).await
}

/// A backend with etags, and one without.
fn shelves() -> [Arc<Shelf>; 2] {
    [Shelf::with_etags(), Shelf::without_etags()]
}

#[tokio::test]
async fn writes_of_direct_kinds_go_to_the_backend_as_the_user() {
    for shelf in shelves() {
        let server = server(&shelf).await;
        let api = books(&server);
        let created = api.create(&PostParams::default(), &book("a", "Emma")).await.unwrap();
        assert_eq!(api.get("a").await.unwrap(), created);
        let listed = api.list(&ListParams::default()).await.unwrap();
        assert_eq!(listed.items, std::slice::from_ref(&created));
        let patch = json!({"spec": {"copies": 3}});
        let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        assert_eq!((patched.uid(), patched.spec.copies), (created.uid(), 3));
        assert_ne!(patched.resource_version(), created.resource_version());
        // The first state cannot be replaced any more, and the new one can.
        let stale = api.replace("a", &PostParams::default(), &created).await;
        assert_eq!(refusal(stale).code, 409);
        let mut newer = patched.clone();
        newer.spec.copies = 4;
        assert_eq!(api.replace("a", &PostParams::default(), &newer).await.unwrap().spec.copies, 4);
        let copies = json!([
            {"op": "test", "path": "/spec/copies", "value": 4},
            {"op": "replace", "path": "/spec/copies", "value": 5},
        ]);
        let media_type = "application/json-patch+json";
        let patch = test_server::request("PATCH", &format!("{BOOKS}/a"), media_type, &copies);
        let patched = test_server::send(&server, admin(), patch).await.into_body();
        assert_eq!(patched["spec"]["copies"], 5, "{patched}");
        let again = api.create(&PostParams::default(), &book("a", "Emma")).await;
        assert_eq!(refusal(again).code, 409);
        let invalid = Book::new("b", BookSpec { title: "Emma".into(), copies: 99 });
        assert_eq!(refusal(api.create(&PostParams::default(), &invalid).await).code, 422);
        api.delete("a", &DeleteParams::default()).await.unwrap();
        assert_eq!(refusal(api.get("a").await).code, 404);
        assert_eq!(refusal(api.delete("a", &DeleteParams::default()).await).code, 404);
        let calls = [
            "create a as admin",
            "update a as admin",
            "update a as admin",
            "update a as admin",
            "create a as admin",
            "delete a as admin",
        ];
        assert_eq!(shelf.writes(), calls, "invalid requests do not reach the backend");
        assert!(shelf.calls().iter().all(|call| call.ends_with("as admin")));
    }
}

#[tokio::test]
async fn creates_of_direct_kinds_have_defaults_and_generated_names() {
    let shelf = Shelf::with_etags();
    let server = server(&shelf).await;
    let emma = json!({
        "apiVersion": "library.example.com/v1", "kind": "Book",
        "metadata": {"generateName": "emma-"}, "spec": {"title": "Emma", "x": 1},
    });
    let (code, created) = ask(&server, Method::POST, BOOKS, &emma).await;
    assert_eq!((code.as_u16(), &created["spec"]), (201, &json!({"title": "Emma", "copies": 1})));
    let name = created["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("emma-") && shelf.row(name).unwrap().copies == 1, "{created}");
    // A client that has read the object changes the state that it has read.
    let (_, read) = ask(&server, Method::GET, &format!("{BOOKS}/{name}"), &Value::Null).await;
    assert_eq!(read, created);
}

#[tokio::test]
async fn deletions_of_direct_kinds_have_preconditions_and_selectors() {
    for shelf in shelves() {
        for (name, title) in [("a", "Emma"), ("b", "Ulysses"), ("c", "Emma")] {
            shelf.put(name, Some(title));
        }
        let server = server(&shelf).await;
        let api = books(&server);
        let a = api.get("a").await.unwrap();
        let only_if = |uid: Option<String>, resource_version: Option<String>| {
            DeleteParams::default().preconditions(Preconditions { uid, resource_version })
        };
        for wrong in [only_if(Some("x".to_owned()), None), only_if(None, Some("1".to_owned()))] {
            assert_eq!(refusal(api.delete("a", &wrong).await).code, 409);
        }
        let dry = DeleteParams::default().dry_run();
        api.delete("a", &dry).await.unwrap();
        api.delete_collection(&dry, &ListParams::default()).await.unwrap();
        assert!(shelf.writes().is_empty());
        api.delete("a", &only_if(a.uid(), a.resource_version())).await.unwrap();
        let emma = ListParams::default().fields("spec.title=Emma");
        api.delete_collection(&DeleteParams::default(), &emma).await.unwrap();
        assert_eq!(shelf.writes(), ["delete a as admin", "delete c as admin"]);
        assert_eq!(titles(&api.list(&ListParams::default()).await.unwrap().items), shelf.titles());
    }
}

#[tokio::test]
async fn dry_runs_of_direct_kinds_do_not_reach_the_backend() {
    let shelf = Shelf::with_etags();
    shelf.put("a", Some("Emma"));
    let server = server(&shelf).await;
    let api = books(&server);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry, &book("b", "Emma")).await.unwrap();
    assert_eq!(refusal(api.create(&dry, &book("a", "Emma")).await).code, 409);
    let patch = Patch::Merge(json!({"spec": {"title": "Ulysses"}}));
    let patched = api.patch("a", &PatchParams::default().dry_run(), &patch).await.unwrap();
    assert_eq!(patched.spec.title, "Ulysses");
    assert!(shelf.writes().is_empty());
}

#[tokio::test]
async fn direct_kinds_have_exactly_the_verbs_of_their_backend() {
    let shelf = Shelf::with_etags();
    shelf.put("a", Some("Emma"));
    let rows = [
        (direct(&shelf).delete(), vec!["delete", "deletecollection", "get", "list"]),
        (direct(&shelf).create(), vec!["get", "list", "create"]),
        (direct(&shelf).update(), vec!["get", "list", "patch", "update"]),
    ];
    for (kind, verbs) in rows {
        let server = serving(Kinds::new().kind(kind)).await;
        let (_, discovery) =
            ask(&server, Method::GET, "/apis/library.example.com/v1", &Value::Null).await;
        assert_eq!(discovery["resources"][0]["verbs"], json!(verbs));
        let body = serde_json::to_value(book("b", "Emma")).unwrap();
        let one = format!("{BOOKS}/b");
        for (verb, method, path) in [
            ("create", Method::POST, BOOKS),
            ("update", Method::PUT, &one),
            ("patch", Method::PATCH, &one),
            ("delete", Method::DELETE, &one),
            ("deletecollection", Method::DELETE, BOOKS),
        ] {
            let (code, _) = ask(&server, method, path, &body).await;
            assert_eq!(code != 405, verbs.contains(&verb), "{verb}: {code}");
        }
    }
}

#[tokio::test]
async fn metadata_that_a_direct_backend_does_not_store_is_refused() {
    let shelf = Shelf::with_etags();
    shelf.put("a", Some("Emma"));
    let kind = direct(&shelf).create().update().delete().keeps_metadata_fields(["labels"]);
    let server = serving(Kinds::new().kind(kind)).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]);
    let rows = [
        ("annotations", json!({"a": "b"})),
        ("finalizers", json!(["example.com/a"])),
        ("ownerReferences", owner),
    ];
    for (field, value) in rows {
        let why = format!(
            "metadata.{field}: Forbidden: the backend of books.library.example.com does not store it"
        );
        let one = format!("{BOOKS}/a");
        let new = json!({
            "apiVersion": "library.example.com/v1", "kind": "Book",
            "metadata": {"name": "b", field: value}, "spec": {"title": "Emma"},
        });
        let patch = json!({"metadata": {field: value}});
        for dry_run in ["", "?dryRun=All"] {
            for (method, path, body) in [(Method::POST, BOOKS, &new), (Method::PATCH, &one, &patch)]
            {
                let (code, status) = ask(&server, method, &format!("{path}{dry_run}"), body).await;
                assert_eq!(code, 422, "{status}");
                assert!(status["message"].as_str().unwrap().contains(&why), "{status}");
            }
        }
    }
    let api = books(&server);
    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    let status = refusal(api.delete("a", &foreground).await);
    assert!(status.code == 422 && status.message.contains("metadata.finalizers"), "{status:?}");
    let apply = Patch::Apply(book("a", "Ulysses"));
    let status = refusal(api.patch("a", &PatchParams::apply("one"), &apply).await);
    assert_eq!(
        (status.code, &*status.message),
        (
            415,
            "server-side apply is not supported, because the backend of books.library.example.com does not store metadata.managedFields",
        )
    );
    assert!(shelf.writes().is_empty());
    // A field that the backend stores.
    let mut labelled = book("b", "Emma");
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    api.create(&PostParams::default(), &labelled).await.unwrap();
}

#[tokio::test]
async fn direct_kinds_with_metadata_have_apply_status_scale_and_finalizers() {
    let trees = Arc::new(trees::Trees::default());
    let server = serving(Kinds::new().kind(trees::direct(&trees))).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let api: Api<DynamicObject> = Api::all_with(server.client(admin()), &resource);
    let applied = |size: i64| {
        Patch::Apply(json!({
            "apiVersion": "example.com/v1", "kind": "Farm",
            "metadata": {"name": "a", "finalizers": ["example.com/a"]}, "spec": {"size": size},
        }))
    };
    let created = api.patch("a", &PatchParams::apply("one"), &applied(2)).await.unwrap();
    assert_eq!(
        (created.metadata.generation, trees.get("a").unwrap().uid()),
        (Some(1), created.uid())
    );
    let other = api.patch("a", &PatchParams::apply("two"), &applied(3)).await;
    assert_eq!(refusal(other).code, 409, "another manager has the field");
    let status = Patch::Merge(json!({"status": {"size": 7}, "spec": {"size": 9}}));
    let status = api.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(
        (&status.data["spec"]["size"], &status.data["status"]["size"]),
        (&json!(2), &json!(7))
    );
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let scale = api.patch_scale("a", &PatchParams::default(), &scale).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(5));
    assert_eq!(trees.get("a").unwrap().data["spec"]["size"], 5);
    let thirteen = Patch::Merge(json!({"spec": {"size": 13}}));
    assert_eq!(refusal(api.patch("a", &PatchParams::default(), &thirteen).await).code, 422);
    let marked = api.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some() && trees.get("a").is_some());
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("a", &PatchParams::default(), &none).await.unwrap();
    assert!(trees.get("a").is_none());
}

#[tokio::test]
async fn a_failing_write_of_a_direct_kind_fails_alone() {
    const SECRET: &str = "password=hunter2";
    let shelf = Shelf::with_etags();
    let kind = direct(&shelf).create().update().delete().timeout(Duration::from_secs(1));
    let server = serving(Kinds::new().kind(kind)).await;
    let api = books(&server);
    let failed = "the backend of books.library.example.com has failed";
    let rows = [
        (Fault::Fail(SECRET.to_owned()), 500, failed),
        (Fault::Reject("the library is closed".to_owned()), 403, "the library is closed"),
        (Fault::Panic, 500, failed),
        (Fault::OtherObject, 500, failed),
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
    let copies = |copies: i64| Patch::Merge(json!({"spec": {"copies": copies}}));
    for reason in Reason::ALL {
        for verb in ["create", "update", "delete"] {
            shelf.fail_write(Fault::RejectAs(reason));
            let status = match verb {
                "create" => refusal(api.create(&PostParams::default(), &book("c", "Emma")).await),
                "update" => refusal(api.patch("b0", &PatchParams::default(), &copies(2)).await),
                _ => refusal(api.delete("b0", &DeleteParams::default()).await),
            };
            let expected = (reason.code(), "no");
            assert_eq!((status.code, &*status.message), expected, "{verb} {reason:?}");
        }
    }
    // If the object cannot be read, nothing is written.
    let writes = shelf.writes();
    shelf.fail_read(Fault::Fail(SECRET.to_owned()));
    let status = refusal(api.patch("b0", &PatchParams::default(), &copies(2)).await);
    assert!(status.code == 500 && !status.message.contains(SECRET), "{status:?}");
    shelf.fail_read(Fault::Hang);
    assert_eq!(refusal(api.delete("b0", &DeleteParams::default()).await).code, 503);
    assert_eq!(shelf.writes(), writes);
}

#[tokio::test]
async fn simultaneous_writers_of_a_direct_kind_lose_no_change() {
    for shelf in shelves() {
        shelf.put("a", Some("Emma"));
        // Without etags, only the writers of one server notice each other.
        let replicas = [server(&shelf).await, server(&shelf).await];
        let apis = if shelf.has_etags() { [0, 1, 0, 1] } else { [0, 0, 0, 0] };
        let writers = apis.map(|replica| {
            let api = books(&replicas[replica]);
            async move {
                for _ in 0..2 {
                    loop {
                        let mut book = api.get("a").await.unwrap();
                        book.spec.copies += 1;
                        match api.replace("a", &PostParams::default(), &book).await {
                            Ok(_) => break,
                            Err(kube::Error::Api(status)) if status.code == 409 => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            }
        });
        let writers = futures::future::join_all(writers);
        tokio::time::timeout(LONG, writers).await.unwrap();
        assert_eq!(shelf.row("a").unwrap().copies, 9);
        // Patches are repeated by the server.
        let patches = (0..4).map(|number| {
            let api = books(&replicas[0]);
            let field = if number % 2 == 0 { "copies" } else { "title" };
            let value = if number % 2 == 0 { json!(number + 1) } else { json!("Ulysses") };
            async move {
                let patch = Patch::Merge(json!({"spec": {field: value}}));
                api.patch("a", &PatchParams::default(), &patch).await.unwrap();
            }
        });
        futures::future::join_all(patches).await;
        assert_eq!(shelf.row("a").unwrap().title, "Ulysses");
    }
}

#[tokio::test]
async fn quotas_count_the_objects_of_direct_kinds() {
    let shelf = Shelf::with_etags();
    let kind = direct(&shelf).create().delete().timeout(Duration::from_secs(1));
    let server = with_quota(Kinds::new().kind(kind), 3).await;
    let api = books(&server);
    let creates = (0..8).map(|number| {
        let (api, name) = (api.clone(), format!("a{number}"));
        async move { api.create(&PostParams::default(), &book(&name, "Emma")).await }
    });
    let created = futures::future::join_all(creates).await;
    assert_eq!(created.iter().filter(|created| created.is_ok()).count(), 3);
    let refused = created.into_iter().find(Result::is_err).unwrap();
    let refused = refusal(refused);
    assert!(refused.code == 403 && refused.message.contains("exceeded quota: q"), "{refused:?}");
    let name = shelf.titles().into_keys().next().unwrap();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    // An object that the backend creates after the response counts as soon as it exists.
    shelf.fail_write(Fault::Hang);
    let unknown = api.create(&PostParams::default(), &book("late", "Emma")).await;
    assert_eq!(refusal(unknown).code, 504);
    shelf.put("late", Some("Emma"));
    let full = api.create(&PostParams::default(), &book("b", "Emma")).await;
    assert_eq!(refusal(full).code, 403);
    shelf.put("late", None);
    api.create(&PostParams::default(), &book("b", "Emma")).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    assert_eq!(refusal(api.create(&dry, &book("c", "Emma")).await).code, 403);
}

#[tokio::test]
async fn rules_in_rust_need_writes() {
    let shelf = Shelf::with_etags();
    let rules = || Validation::new().prepare(|book: &mut Book, _| book.spec.copies = 7);
    let written = Kind::direct(direct(&shelf).create()).validation(rules());
    let server = serving(Kinds::new().kind(written)).await;
    let created = books(&server).create(&PostParams::default(), &book("a", "Emma")).await.unwrap();
    assert_eq!(created.spec.copies, 7);
    let read_only = Kinds::new().kind(Kind::direct(direct(&shelf)).validation(rules()));
    let cluster = test_server::unreachable_cluster();
    let Err(refused) = test_server::api_server(read_only).in_process(cluster).await else {
        panic!("the server has started");
    };
    assert!(refused.to_string().contains("cannot have rules in Rust without writes"), "{refused}");
}
