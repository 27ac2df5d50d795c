//! The tests that every backend with writes must pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // the whole module is test code
#![allow(clippy::missing_panics_doc)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::{Stream, StreamExt};
use tokio::time::timeout;

use super::erased::to_tree;
use super::{
    BackendError, Change, Create, Delete, Item, Poll, Update, Watch, WriteContext, objects,
};
use crate::object::{Key, Tree};
use crate::user::User;

/// The number of writers that change one object at the same time.
const WRITERS: usize = 8;
/// The longest time until a change appears in a stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the tests of a polled backend. `open` opens a backend without objects for each of them, `object` makes an object
/// of a name, and `change` changes the content of an object.
pub async fn run<B>(
    open: impl AsyncFn() -> Arc<B>,
    object: impl Fn(&str) -> B::Object,
    change: impl Fn(&mut B::Object),
) where
    B: Poll + Create + Update + Delete,
    B::Object: Clone,
{
    let writes = Writes { object, change };
    writes.lists_every_write(&*open().await, async |backend| listed(backend).await).await;
    writes.refuses_wrong_writes(&open).await;
}

/// Runs the tests of a watched backend, with the same parameters as [`run`].
pub async fn run_watched<B>(
    open: impl AsyncFn() -> Arc<B>,
    object: impl Fn(&str) -> B::Object,
    change: impl Fn(&mut B::Object),
) where
    B: Watch + Create + Update + Delete,
    B::Object: Clone,
{
    let writes = Writes { object, change };
    writes.lists_every_write(&*open().await, async |backend| streamed(backend).await).await;
    writes.streams_every_write(&*open().await).await;
    writes.refuses_wrong_writes(&open).await;
}

/// The objects of a backend by their keys, without what the library ignores.
type Known = BTreeMap<Key, Tree>;

async fn listed<B: Poll>(backend: &B) -> Known {
    let listing = backend.list().await.expect("the objects are listed");
    assert!(listing.is_complete, "the list is complete");
    by_key(listing.items)
}

/// The objects with which a stream begins.
async fn streamed<B: Watch>(backend: &B) -> Known {
    let stream = std::pin::pin!(backend.watch());
    first(stream).await
}

async fn first<T: serde::Serialize>(
    mut stream: impl Stream<Item = Result<Change<T>, BackendError>> + Unpin,
) -> Known {
    let change = timeout(PATIENCE, stream.next()).await.expect("the stream begins in time");
    match change.expect("the stream does not end").expect("the stream does not fail") {
        Change::Restarted(listing) => {
            assert!(listing.is_complete, "the stream begins with all objects");
            by_key(listing.items)
        }
        _ => panic!("the stream begins with Change::Restarted"),
    }
}

fn by_key<T: serde::Serialize>(items: Vec<Item<T>>) -> Known {
    let mut known = Known::new();
    for item in items {
        let tree = to_tree(item.object).unwrap();
        let key = objects::key(&tree);
        assert!(!key.name().is_empty(), "each object has a name");
        assert!(known.insert(key.clone(), content(&tree)).is_none(), "{key} is listed twice");
    }
    known
}

/// The content of an object that each backend stores.
fn content(tree: &Tree) -> Tree {
    let fields = tree.iter().filter(|(name, value)| {
        !["apiVersion", "kind", "metadata"].contains(&name.as_str()) && !value.is_null()
    });
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn context() -> WriteContext {
    WriteContext { timeout: PATIENCE, ..WriteContext::new(&User::default(), "suite", "") }
}

struct Writes<O, C> {
    object: O,
    change: C,
}

impl<O, C> Writes<O, C> {
    fn object<T>(&self, name: &str) -> T
    where
        O: Fn(&str) -> T,
    {
        (self.object)(name)
    }

    fn changed<T: Clone>(&self, object: &T) -> T
    where
        C: Fn(&mut T),
    {
        let mut changed = object.clone();
        (self.change)(&mut changed);
        changed
    }

    /// A list that begins after a write has the written object.
    async fn lists_every_write<B>(&self, backend: &B, list: impl AsyncFn(&B) -> Known)
    where
        B: Create + Update + Delete,
        B::Object: Clone,
        O: Fn(&str) -> B::Object,
        C: Fn(&mut B::Object),
    {
        assert!(list(backend).await.is_empty(), "the backend has no objects at the beginning");
        let a = backend.create(&context(), self.object("a")).await.expect("a is created");
        let b = backend.create(&context(), self.object("b")).await.expect("b is created");
        let expected = by_key(vec![a.clone(), b.clone()]);
        assert_eq!(list(backend).await, expected, "a list after two creates");
        let new = self.changed(&a.object);
        let updated = backend.update(&context(), a, new.clone()).await.expect("a is updated");
        let (sent, stored) = (to_tree(new).unwrap(), to_tree(updated.object.clone()).unwrap());
        assert_eq!(content(&stored), content(&sent), "an update returns the new object");
        let expected = by_key(vec![updated.clone(), b]);
        assert_eq!(list(backend).await, expected, "a list after an update");
        backend.delete(&context(), updated).await.expect("a is deleted");
        assert_eq!(list(backend).await.len(), 1, "a list after a deletion");
    }

    /// Each write appears in a stream that has begun before, and [`Watch::get`] reads the present object.
    async fn streams_every_write<B>(&self, backend: &B)
    where
        B: Watch + Create + Update + Delete,
        B::Object: Clone,
        O: Fn(&str) -> B::Object,
        C: Fn(&mut B::Object),
    {
        let mut stream = std::pin::pin!(backend.watch());
        assert!(first(&mut stream).await.is_empty(), "the stream begins without objects");
        let created = backend.create(&context(), self.object("a")).await.expect("a is created");
        let key = objects::key(&to_tree(created.object.clone()).unwrap());
        let present = content(&to_tree(created.object.clone()).unwrap());
        until(&mut stream, &key, Some(&present)).await;
        let read = backend.get(key.namespace(), key.name()).await.expect("a is read");
        let read = to_tree(read.expect("a exists").object).unwrap();
        assert_eq!(content(&read), present, "get returns the object");
        let new = self.changed(&created.object);
        let updated = backend.update(&context(), created, new).await.expect("a is updated");
        until(&mut stream, &key, Some(&content(&to_tree(updated.object.clone()).unwrap()))).await;
        backend.delete(&context(), updated).await.expect("a is deleted");
        until(&mut stream, &key, None).await;
        let gone = backend.get(key.namespace(), key.name()).await.expect("a is read");
        assert!(gone.is_none(), "get returns no object after a deletion");
    }

    /// The tests that are the same however the library learns about the objects.
    async fn refuses_wrong_writes<B>(&self, open: &impl AsyncFn() -> Arc<B>)
    where
        B: Create + Update + Delete,
        B::Object: Clone,
        O: Fn(&str) -> B::Object,
        C: Fn(&mut B::Object),
    {
        self.creates_once(&*open().await).await;
        self.rejects_outdated_writes(&*open().await).await;
        self.lets_one_of_many_writers_win(&*open().await).await;
    }

    async fn creates_once<B>(&self, backend: &B)
    where
        B: Create + Update + Delete,
        B::Object: Clone,
        O: Fn(&str) -> B::Object,
        C: Fn(&mut B::Object),
    {
        let first = backend.create(&context(), self.object("a")).await.expect("a is created");
        let again = backend.create(&context(), self.changed(&first.object)).await;
        assert!(
            matches!(again, Err(BackendError::AlreadyExists)),
            "a second create: AlreadyExists"
        );
        backend
            .delete(&context(), first.clone())
            .await
            .expect("the refused create has changed nothing");
        let gone = backend.delete(&context(), first.clone()).await;
        assert!(
            matches!(gone, Ok(()) | Err(BackendError::NotFound)),
            "a second deletion: NotFound"
        );
        let second =
            backend.create(&context(), self.object("a")).await.expect("a is created again");
        let is_other = first.etag.is_none() || first.etag != second.etag;
        assert!(is_other, "an object that is created again has another etag");
    }

    /// With etags, a write of an outdated object is a conflict.
    async fn rejects_outdated_writes<B>(&self, backend: &B)
    where
        B: Create + Update + Delete,
        B::Object: Clone,
        O: Fn(&str) -> B::Object,
        C: Fn(&mut B::Object),
    {
        let old = backend.create(&context(), self.object("a")).await.expect("a is created");
        let new = self.changed(&old.object);
        let updated = backend.update(&context(), old.clone(), new.clone()).await;
        let updated = updated.expect("a is updated");
        if old.etag.is_some() {
            assert_ne!(old.etag, updated.etag, "an update changes the etag");
            let outdated = backend.update(&context(), old.clone(), new.clone()).await;
            assert!(
                matches!(outdated, Err(BackendError::Conflict)),
                "an outdated update: Conflict"
            );
            let outdated = backend.delete(&context(), old).await;
            assert!(
                matches!(outdated, Err(BackendError::Conflict)),
                "an outdated deletion: Conflict"
            );
        }
        backend.delete(&context(), updated.clone()).await.expect("a is deleted");
        let missing = backend.update(&context(), updated, new).await;
        assert!(matches!(missing, Err(BackendError::NotFound)), "an update of no object: NotFound");
    }

    /// With etags, one of many simultaneous updates wins.
    async fn lets_one_of_many_writers_win<B>(&self, backend: &B)
    where
        B: Create + Update + Delete,
        B::Object: Clone,
        O: Fn(&str) -> B::Object,
        C: Fn(&mut B::Object),
    {
        let old = backend.create(&context(), self.object("a")).await.expect("a is created");
        let context = context();
        let updates = (0..WRITERS).map(|_| {
            let new = self.changed(&old.object);
            backend.update(&context, old.clone(), new)
        });
        let updated = join_all(updates).await;
        if old.etag.is_some() {
            let winners = updated.iter().filter(|updated| updated.is_ok()).count();
            assert_eq!(winners, 1, "one of {WRITERS} simultaneous updates wins");
        }
    }
}

/// Follows a stream until an object has this content, or was deleted.
async fn until<T: serde::Serialize>(
    stream: &mut (impl Stream<Item = Result<Change<T>, BackendError>> + Unpin),
    key: &Key,
    expected: Option<&Tree>,
) {
    let follow = async {
        loop {
            let change = stream.next().await.expect("the stream does not end");
            let found = match change.expect("the stream does not fail") {
                Change::Restarted(listing) => by_key(listing.items).remove(key),
                Change::Applied(item) => {
                    let tree = to_tree(item.object).unwrap();
                    if objects::key(&tree) != *key {
                        continue;
                    }
                    Some(content(&tree))
                }
                Change::Deleted { namespace, name } => {
                    if Key::new(namespace.as_deref(), &name) != *key {
                        continue;
                    }
                    None
                }
            };
            if found.as_ref() == expected {
                return;
            }
        }
    };
    timeout(PATIENCE, follow).await.expect("the change appears in the stream");
}
