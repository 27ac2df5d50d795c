//! Replicas that share the store of the metadata.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::VirtualKind;
use fastrand::Rng;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;

use crate::common::{INTERVAL, LONG, book, books, refusal, replica, shared_store, titles, until};
use crate::shelf::{Book, Shelf};

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

/// Clients of two replicas and other programs write at random. In the end, both replicas show the same metadata.
#[tokio::test]
async fn replicas_agree_on_creation_times_and_generations_after_random_changes() {
    futures::future::join_all((0..6).map(agreement)).await;
}

async fn agreement(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let shelf = Shelf::new();
    let store = shared_store();
    let kind = || match seed.is_multiple_of(2) {
        true => VirtualKind::watched(Book::crd(), Arc::clone(&shelf)),
        false => VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL),
    };
    let servers = [replica(kind(), &store).await, replica(kind(), &store).await];
    let replicas = servers.each_ref().map(books);
    for name in ["a", "b", "c"] {
        replicas[0].create(&PostParams::default(), &book(name, "0")).await.unwrap();
    }
    for step in 0..60 {
        let (name, title) = (["a", "b", "c"][rng.usize(0..3)], step.to_string());
        let api = &replicas[rng.usize(0..2)];
        let patch = match rng.u8(0..6) {
            0 => json!({"metadata": {"labels": {"step": title}}}),
            1 => json!({"spec": {"title": title}}),
            2 => {
                tokio::time::sleep(Duration::from_millis(rng.u64(0..150))).await;
                continue;
            }
            _ => {
                shelf.put(name, Some(&title));
                continue;
            }
        };
        drop(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await);
    }
    let agree = async {
        loop {
            let mut lists = Vec::new();
            for api in &replicas {
                let mut books = api.list(&ListParams::default()).await.unwrap().items;
                books.iter_mut().for_each(|book| book.metadata.resource_version = None);
                lists.push(books);
            }
            if lists[0] == lists[1] && titles(&lists[0]) == shelf.titles() {
                return lists.remove(0);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    let agreed = tokio::time::timeout(LONG, agree).await.expect("the replicas differ");
    assert!(agreed.iter().all(|book| book.metadata.generation > Some(1)), "seed {seed}");
}
