//! Direct kinds, whose backend is called for every read.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::DirectKind;
use aggregated_apiserver::{Kinds, User};
use http::Method;
use kube::api::{ListParams, PostParams, VersionMatch, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use test_server::{admin, ask};

use crate::common::{LONG, book, books, refusal, serving, titles};
use crate::shelf::{Book, Fault, Shelf};
use crate::trees;

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
