//! A backend without its type: objects are trees.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::timeout;

use super::calls::{Writer, Writes};
use super::{BackendError, Change, Item, Listing, Poll, Watch, objects};
use crate::object::{Key, Tree};

/// The changes that may wait until the library has taken them over. A backend that sends more of them waits.
const CHANGES: usize = 16;
/// The number of objects after which other tasks run.
pub(super) const BATCH: usize = 256;

/// Lists the objects of a backend.
pub(super) type List =
    Box<dyn Fn() -> BoxFuture<'static, Result<Listing<Tree>, BackendError>> + Send + Sync>;
/// Runs the stream of changes of a backend, until the stream or the receiver ends.
pub(super) type Run =
    Box<dyn Fn(mpsc::Sender<ReceivedChange>) -> BoxFuture<'static, ()> + Send + Sync>;
/// A change of a backend, or the error that ends its stream.
pub(super) type ReceivedChange = Result<Change<Tree>, BackendError>;
/// Reads one object of a backend, by namespace and name.
pub(super) type Get =
    Box<dyn Fn(Key) -> BoxFuture<'static, Result<Option<Item<Tree>>, BackendError>> + Send + Sync>;
/// The way in which the library learns about the objects of a backend.
pub(super) enum Feed {
    /// The library lists all objects at this interval.
    Polled { list: List, interval: Duration },
    /// The backend streams its changes, and reads single objects.
    Watched { run: Run, get: Get },
}

/// A backend without its type.
pub(crate) struct ErasedBackend {
    pub(super) feed: Feed,
    pub(super) writer: Writer,
}

impl fmt::Debug for ErasedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedBackend").field("writes", &self.writes()).finish_non_exhaustive()
    }
}

impl ErasedBackend {
    /// A backend without writes.
    pub(super) fn new(feed: Feed) -> Self {
        Self { feed, writer: Writer::default() }
    }

    /// The fields of the metadata that the backend stores: the declared ones, and those of an object that it has read.
    /// Objects that writes return are not used: the backend may return fields that it has received and does not store.
    pub(super) fn kept_fields(&self, read: &Tree) -> Arc<[String]> {
        let mut fields = objects::metadata_fields(read);
        if fields.is_empty() {
            return Arc::clone(&self.writer.kept_metadata);
        }
        fields.extend(self.writer.kept_metadata.iter().cloned());
        fields.sort_unstable();
        fields.dedup();
        fields.into()
    }

    /// Reads one object of a watched kind.
    ///
    /// # Errors
    /// The error of the backend.
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Item<Tree>>, BackendError> {
        match &self.feed {
            Feed::Watched { get, .. } => self.call(|| get(key.clone())).await,
            Feed::Polled { .. } => Err(BackendError::internal("a polled kind is only listed")),
        }
    }

    /// The writes that the backend supports.
    pub(crate) fn writes(&self) -> Writes {
        self.writer.writes()
    }

    /// Whether the backend stores the whole `metadata` of its objects.
    pub(crate) fn keeps_metadata(&self) -> bool {
        self.writer.keeps_metadata
    }

    /// The timeout of each call.
    pub(super) fn timeout(&self) -> Duration {
        self.writer.timeout
    }

    /// Waits for a call of the backend, at most as long as the timeout of the backend.
    ///
    /// # Errors
    /// The error of the call; an error for a call that panics or takes too long.
    pub(super) async fn call<T>(
        &self,
        call: impl FnOnce() -> BoxFuture<'static, Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        caught(self.timeout(), call).await
    }
}

/// Waits for a slot of a call, at most as long as this timeout. Returns `None` if no slot is free in time.
pub(super) async fn slot(calls: &Semaphore, limit: Duration) -> Option<SemaphorePermit<'_>> {
    // The semaphore is never closed.
    timeout(limit, calls.acquire()).await.ok()?.ok()
}

/// Waits for a call of a backend, at most as long as this timeout.
///
/// # Errors
/// The error of the call; an error for a call that panics or takes too long.
pub(super) async fn caught<T>(
    limit: Duration,
    call: impl FnOnce() -> BoxFuture<'static, Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let call = AssertUnwindSafe(async { call().await }).catch_unwind();
    match timeout(limit, call).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(BackendError::internal("the backend panicked")),
        Err(_) => Err(BackendError::TimedOut(limit)),
    }
}

pub(super) fn list<B: Poll>(backend: &Arc<B>) -> List {
    let backend = Arc::clone(backend);
    Box::new(move || {
        let backend = Arc::clone(&backend);
        async move { to_listing(backend.list().await?).await }.boxed()
    })
}

pub(super) fn run<B: Watch>(backend: &Arc<B>) -> Run {
    let backend = Arc::clone(backend);
    Box::new(move |changes| {
        let backend = Arc::clone(&backend);
        async move { forward(pin!(backend.watch()), &changes).await }.boxed()
    })
}

pub(super) fn get<B: Watch>(backend: &Arc<B>) -> Get {
    let backend = Arc::clone(backend);
    Box::new(move |key| {
        let backend = Arc::clone(&backend);
        async move {
            let item = backend.get(key.namespace(), key.name()).await?;
            let mut item = item.map(to_item).transpose()?;
            if let Some(item) = &mut item {
                objects::fill_key(&mut item.object, &key);
            }
            Ok(item)
        }
        .boxed()
    })
}

/// A channel for the changes of a backend.
pub(super) fn changes() -> (mpsc::Sender<ReceivedChange>, mpsc::Receiver<ReceivedChange>) {
    mpsc::channel(CHANGES)
}

async fn forward<T: Serialize + Send>(
    mut stream: std::pin::Pin<&mut (impl Stream<Item = Result<Change<T>, BackendError>> + Send)>,
    changes: &mpsc::Sender<ReceivedChange>,
) {
    while let Some(change) = stream.next().await {
        let change = match change {
            Ok(change) => to_change(change).await,
            Err(error) => Err(error),
        };
        if changes.send(change).await.is_err() {
            return;
        }
    }
}

async fn to_listing<T: Serialize + Send>(
    listing: Listing<T>,
) -> Result<Listing<Tree>, BackendError> {
    let Listing { items, is_complete } = listing;
    let mut trees = Vec::with_capacity(items.len());
    for item in items {
        trees.push(to_item(item)?);
        if trees.len().is_multiple_of(BATCH) {
            tokio::task::yield_now().await;
        }
    }
    Ok(Listing { items: trees, is_complete })
}

async fn to_change<T: Serialize + Send>(change: Change<T>) -> ReceivedChange {
    Ok(match change {
        Change::Restarted(listing) => Change::Restarted(to_listing(listing).await?),
        Change::Applied(item) => Change::Applied(to_item(item)?),
        Change::Deleted { namespace, name } => Change::Deleted { namespace, name },
    })
}

pub(super) fn to_item<T: Serialize>(
    Item { object, etag }: Item<T>,
) -> Result<Item<Tree>, BackendError> {
    Ok(Item { object: to_tree(object)?, etag })
}

/// Encodes an object of a backend.
pub(super) fn to_tree<T: Serialize>(object: T) -> Result<Tree, BackendError> {
    match serde_json::to_value(object) {
        Ok(Value::Object(tree)) => Ok(tree),
        Ok(_) => Err(BackendError::internal("the backend has returned a value that is no object")),
        Err(error) => Err(BackendError::internal(format!("an object cannot be encoded: {error}"))),
    }
}
