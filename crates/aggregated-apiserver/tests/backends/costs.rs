//! The cost of a create through a backend, compared with a create of a stored kind in the same run.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{
    Backend, BackendError, Create, Item, Listing, Poll, VirtualKind, WriteContext,
};
use aggregated_apiserver::{InProcess, Kinds};
use http::Method;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;
use test_server::ask;

use crate::common::{BOOKS, serving};
use crate::shelf::Book;

/// The interval of the polls: no poll runs during the measurement.
const NEVER: Duration = Duration::from_secs(3_600);
/// The number of creates in a sample.
const CREATES: usize = 40;
/// The number of samples of each kind. The smallest of them counts, because other processes only add to the time.
const SAMPLES: usize = 15;
/// The largest ratio of a create through a backend to a create of a stored kind. A debug build has 1.4 to 1.7.
const LIMIT: f64 = 1.9;

/// A backend that accepts every object at once, and stores none.
struct Accepting {
    /// Whether the backend returns the metadata that it has received, or only the key.
    keeps_metadata: bool,
}

impl Backend for Accepting {
    type Object = Book;
}

impl Poll for Accepting {
    async fn list(&self) -> Result<Listing<Book>, BackendError> {
        Ok(Listing::complete([]))
    }
}

impl Create for Accepting {
    async fn create(&self, _: &WriteContext, book: Book) -> Result<Item<Book>, BackendError> {
        if self.keeps_metadata {
            return Ok(Item::new(book));
        }
        let mut row = Book::new(&book.name_any(), book.spec);
        row.metadata.namespace = book.metadata.namespace;
        Ok(Item::new(row))
    }
}

fn virtual_kind(keeps_metadata: bool) -> VirtualKind<Accepting> {
    let backend = Arc::new(Accepting { keeps_metadata });
    let kind = VirtualKind::polled(Book::crd(), backend, NEVER).create();
    if keeps_metadata { kind.keeps_metadata() } else { kind }
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}

async fn create(server: &InProcess, number: usize) {
    let body = json!({
        "apiVersion": "library.example.com/v1", "kind": "Book",
        "metadata": {
            "name": format!("book-{number}"),
            "labels": {"app.kubernetes.io/name": "library", "shelf": "fiction"},
            "annotations": {"example.com/note": "a note of some length about this book"},
        },
        "spec": {"title": "Emma", "copies": 3},
    });
    let (code, answer) = ask(server, Method::POST, BOOKS, &body).await;
    assert_eq!(code, 201, "{answer}");
}

/// The time of a sample of creates.
async fn sample(server: &InProcess, first: usize) -> Duration {
    let begun = cpu_time();
    for number in first..first + CREATES {
        create(server, number).await;
    }
    cpu_time() - begun
}

#[tokio::test]
async fn a_create_through_a_backend_costs_little_more_than_a_stored_create() {
    let servers = [
        serving(Kinds::new().crd(Book::crd())).await,
        serving(Kinds::new().kind(virtual_kind(true))).await,
        serving(Kinds::new().kind(virtual_kind(false))).await,
    ];
    let mut best = [Duration::MAX; 3];
    for round in 0..SAMPLES {
        for (server, best) in servers.iter().zip(&mut best) {
            *best = (*best).min(sample(server, round * CREATES).await);
        }
    }
    let [stored, with_metadata, with_records] = best.map(|best| best.as_secs_f64());
    let ratios = [with_metadata / stored, with_records / stored];
    println!(
        "stored {:.0} µs; backend with metadata {:.2} x, with records {:.2} x",
        stored * 1e6 / CREATES as f64,
        ratios[0],
        ratios[1]
    );
    assert!(ratios.iter().all(|ratio| *ratio <= LIMIT), "{ratios:?}");
}
