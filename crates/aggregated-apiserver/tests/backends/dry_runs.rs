//! Dry runs of kinds whose backend validates them.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{DirectKind, VirtualKind};
use aggregated_apiserver::{InProcess, Kind, Kinds};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use serde_json::json;

use crate::common::{book, books, refusal, shared_store, titles};
use crate::shelf::{Book, Fault, Shelf};

/// Kinds that know the rows at the start of the server, or that read them for each request.
fn kinds(shelf: &Arc<Shelf>) -> [Kind; 3] {
    let shelf = || Arc::clone(shelf);
    let (polled, timeout) = (Duration::from_secs(3_600), Duration::from_secs(1));
    let polled = VirtualKind::polled(Book::crd(), shelf(), polled).timeout(timeout);
    let watched = VirtualKind::watched(Book::crd(), shelf()).timeout(timeout);
    let direct = DirectKind::new(Book::crd(), shelf()).timeout(timeout);
    [
        polled.create().update().delete().validates_dry_run().into(),
        watched.create().update().delete().validates_dry_run().into(),
        direct.create().update().delete().validates_dry_run().into(),
    ]
}

#[tokio::test]
async fn a_backend_validates_dry_runs_and_nothing_is_stored() {
    for sort in 0..3 {
        let shelf = Shelf::with_etags();
        shelf.put("a", Some("Emma"));
        let [polled, watched, direct] = kinds(&shelf);
        let kind = [polled, watched, direct].into_iter().nth(sort).unwrap();
        let store = shared_store();
        let server = test_server::server_with_store(Kinds::new().kind(kind), store.clone()).await;
        server.wait_synced().await;
        let (api, revision) = (books(&server), store.sequencer().current());
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let patch = Patch::Merge(json!({"spec": {"title": "Ulysses"}}));
        let created = api.create(&dry, &book("b", "Emma")).await.unwrap();
        assert_eq!(created.spec.title, "Emma");
        let patched = api.patch("a", &PatchParams::default().dry_run(), &patch).await.unwrap();
        assert_eq!(patched.spec.title, "Ulysses");
        api.delete("a", &DeleteParams::default().dry_run()).await.unwrap();
        let all = ListParams::default();
        api.delete_collection(&DeleteParams::default().dry_run(), &all).await.unwrap();
        let nothing = "nothing is stored";
        let calls = [
            "create b as admin",
            nothing,
            "update a as admin",
            nothing,
            "delete a as admin",
            nothing,
            "delete a as admin",
            nothing,
        ];
        assert_eq!(shelf.writes(), calls);
        assert_eq!(titles(&api.list(&all).await.unwrap().items), shelf.titles());
        assert_eq!(shelf.row("a").unwrap().title, "Emma");
        assert_eq!(store.sequencer().current(), revision, "no record is stored");
        the_errors_of_the_backend_are_those_of_the_dry_run(&api, &shelf).await;
        assert_eq!(store.sequencer().current(), revision, "no record is stored");
        // The next write is stored.
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(shelf.row("a").unwrap().title, "Ulysses");
        drop::<InProcess>(server);
    }
}

async fn the_errors_of_the_backend_are_those_of_the_dry_run(api: &Api<Book>, shelf: &Shelf) {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let patch = Patch::Merge(json!({"spec": {"title": "Ulysses"}}));
    for (fault, code) in [
        (Fault::Reject("the library is closed".to_owned()), 403),
        (Fault::Panic, 500),
        (Fault::OtherObject, 500),
        (Fault::Hang, 503),
    ] {
        shelf.fail_write(fault.clone());
        let created = api.create(&dry, &book("c", "Emma")).await;
        assert_eq!(refusal(created).code, code, "{fault:?}");
        shelf.fail_write(fault.clone());
        let patched = api.patch("a", &PatchParams::default().dry_run(), &patch).await;
        assert_eq!(refusal(patched).code, code, "{fault:?}");
        if !matches!(fault, Fault::OtherObject) {
            shelf.fail_write(fault.clone());
            let deleted = api.delete("a", &DeleteParams::default().dry_run()).await;
            assert_eq!(refusal(deleted).code, code, "{fault:?}");
        }
    }
    // A row that the server may not know yet.
    shelf.put("d", Some("Emma"));
    assert_eq!(refusal(api.create(&dry, &book("d", "Emma")).await).code, 409);
    shelf.put("d", None);
}
