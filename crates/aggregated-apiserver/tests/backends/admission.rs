//! Namespaces and ResourceQuotas of the cluster, for kinds that are added to a server without any kind.

use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use kube::api::PostParams;
use kube::{Api, CustomResourceExt};
use serde_json::{Value, json};
use test_server::{FakeCluster, admin};

use crate::common::{INTERVAL, book, books, refusal};
use crate::shelf::{Book, Shelf};

const NAMESPACES: &str = "/api/v1/namespaces";
const QUOTAS: &str = "/api/v1/resourcequotas";

fn namespace(name: &str, phase: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name}, "status": {"phase": phase}})
}

/// A cluster with two namespaces, one of which is being deleted, and with a quota of one book.
fn cluster() -> FakeCluster {
    let cluster = FakeCluster::default();
    cluster.set(NAMESPACES, vec![namespace("n", "Active"), namespace("left", "Terminating")]);
    let hard = json!({"hard": {"count/books.library.example.com": "1"}});
    let metadata = json!({"name": "one", "namespace": "n", "uid": "one"});
    cluster.set(QUOTAS, vec![json!({"metadata": metadata, "spec": hard})]);
    cluster
}

/// A server without kinds. It reads nothing from the cluster that only kinds need.
async fn empty_server(cluster: &FakeCluster) -> InProcess {
    let server = ApiServer::new("books", Kinds::new()).in_process(cluster.client()).await.unwrap();
    assert!(cluster.requests().is_empty(), "{:?}", cluster.requests());
    server
}

async fn expect_admission(server: &InProcess) {
    let (kept, left) = (books(server), Api::<Book>::namespaced(server.client(admin()), "left"));
    let parameters = PostParams::default();
    kept.create(&parameters, &book("a", "Emma")).await.unwrap();
    let exceeded = refusal(kept.create(&parameters, &book("b", "Emma")).await);
    assert!(exceeded.code == 403 && exceeded.message.contains("exceeded quota: one"), "{exceeded}");
    let terminating = refusal(left.create(&parameters, &book("a", "Emma")).await);
    let why = "because it is being terminated";
    assert!(terminating.code == 403 && terminating.message.contains(why), "{terminating}");
}

#[tokio::test]
async fn virtual_kinds_that_are_added_respect_namespaces_and_quotas() {
    let server = empty_server(&cluster()).await;
    let kind = VirtualKind::polled(Book::crd(), Shelf::new(), INTERVAL).create();
    let kinds = server.runtime_kinds();
    kinds.serve_kind(kind).await.unwrap();
    kinds.wait_synced().await;
    expect_admission(&server).await;
}

#[tokio::test]
async fn stored_kinds_that_are_added_respect_namespaces_and_quotas() {
    let server = empty_server(&cluster()).await;
    server.runtime_kinds().serve(&Book::crd()).await.unwrap();
    expect_admission(&server).await;
}
