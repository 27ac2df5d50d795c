//! The servers, clients and waits of these tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::store::{NamespaceLimit, RevisionSequencer, Store};
use aggregated_apiserver::{InProcess, Kinds};
use futures::{StreamExt, TryStreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Status;
use kube::{Api, CustomResourceExt, ResourceExt};
use kubernetes_storage::MemoryStore;
use serde_json::json;
use test_server::{FakeCluster, admin};

use crate::shelf::{Book, BookSpec, Shelf};

/// The shortest interval that a kind may be polled at.
pub const INTERVAL: Duration = Duration::from_millis(100);
pub const BOOKS: &str = "/apis/library.example.com/v1/namespaces/n/books";
/// A wait that only ends if a test fails.
pub const LONG: Duration = Duration::from_secs(30);

/// A server of books that are polled.
pub async fn polled(shelf: &Arc<Shelf>) -> InProcess {
    let books = VirtualKind::polled(Book::crd(), Arc::clone(shelf), INTERVAL);
    serving(Kinds::new().kind(books.create().update().delete())).await
}

/// A server of books whose changes are streamed.
pub async fn watched(shelf: &Arc<Shelf>) -> InProcess {
    let books = VirtualKind::watched(Book::crd(), Arc::clone(shelf));
    serving(Kinds::new().kind(books.create().update().delete())).await
}

pub async fn serving(kinds: Kinds) -> InProcess {
    let server = test_server::server_of(kinds).await;
    server.wait_synced().await;
    server
}

/// A server of these kinds, behind a cluster with a quota of this number of books in the namespace `n`.
pub async fn with_quota(kinds: Kinds, books: usize) -> InProcess {
    const QUOTAS: &str = "/api/v1/resourcequotas";
    let cluster = FakeCluster::without_objects(QUOTAS);
    let metadata = json!({"name": "q", "namespace": "n", "uid": "q", "resourceVersion": "1"});
    let hard = json!({"count/books.library.example.com": books.to_string()});
    cluster.set(QUOTAS, vec![json!({"metadata": metadata, "spec": {"hard": hard}})]);
    let server = test_server::api_server(kinds).in_process(cluster.client()).await.unwrap();
    server.wait_synced().await;
    server
}

pub fn books(server: &InProcess) -> Api<Book> {
    Api::namespaced(server.client(admin()), "n")
}

pub fn book(name: &str, title: &str) -> Book {
    Book::new(name, BookSpec { title: title.to_owned(), copies: 1 })
}

pub fn titles(books: &[Book]) -> BTreeMap<String, String> {
    books.iter().map(|book| (book.name_any(), book.spec.title.clone())).collect()
}

/// Follows the books until they are these.
pub async fn until(api: &Api<Book>, is_expected: impl Fn(&BTreeMap<String, Book>) -> bool) {
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
pub fn refusal<T>(outcome: kube::Result<T>) -> Box<Status> {
    match outcome.map(drop).unwrap_err() {
        kube::Error::Api(status) => status,
        error => panic!("{error}"),
    }
}

/// A store that several servers share.
pub fn shared_store() -> Arc<dyn Store> {
    let sequencer = Arc::new(RevisionSequencer::shared());
    Arc::new(MemoryStore::new(64 << 20, sequencer, NamespaceLimit::WHOLE))
}

pub async fn replica(kind: VirtualKind<Shelf>, store: &Arc<dyn Store>) -> InProcess {
    let kinds = Kinds::new().kind(kind.create().update().delete());
    let server = test_server::server_with_store(kinds, Arc::clone(store)).await;
    server.wait_synced().await;
    server
}
