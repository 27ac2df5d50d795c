//! A store in etcd, to which several replicas write.
//!
//! The stored objects are also in memory, in their state of a moment ago: one watch over all keys delivers every
//! change. A read of the current state first queries the newest revision, and waits until the watch has reached it. One
//! query serves many reads at the same time. etcd checks the precondition of each write.

mod client;
mod compactor;
mod feed;
mod keys;
mod list;
mod messages;
mod newest_revision;
mod reservation;
mod rewrite;

use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::object_index::ObjectIndex;
use super::write_queue::WriteQueue;
use super::{
    Collection, Commit, EtcdOptions, LogReader, Precondition, Revision, RevisionSequencer, Store,
    StoreError, StoreOptions, Versioned, await_newest,
};
use crate::object::Key;
use client::{Client, Fault};
use feed::Feed;
use keys::{Prefix, Row, number, revision};
use messages::{
    Compare, CompareTarget, Compared, DeleteRangeRequest, Operation, PutRequest, RangeRequest,
    RequestOp, TxnRequest,
};
use newest_revision::Newest;
pub use rewrite::rewrite;

/// The longest time that a completed write waits until this process has received it.
const SEEN: Duration = Duration::from_secs(1);

/// The state that the feed shares with callers.
struct Shared {
    sequencer: Arc<RevisionSequencer>,
    object_index: Mutex<ObjectIndex>,
    /// Whether everything that was in etcd when the process started has been received.
    known: watch::Sender<bool>,
    /// The newest revision that etcd is known to have reached.
    seen: AtomicU64,
    /// Whether the store has never been used.
    is_new: AtomicBool,
    /// Whether etcd had no space for the last object that was written.
    is_full: AtomicBool,
    /// The bytes of objects that may be written before etcd is compacted. `written` counts the bytes since the last
    /// compaction.
    compact_after: usize,
    written: AtomicUsize,
    /// Notified when `compact_after` bytes have been written.
    compact: Notify,
    closing: CancellationToken,
    /// The reason why etcd cannot be read at the moment.
    trouble: Mutex<Option<String>>,
    /// The reason why etcd must no longer be used.
    failed: Failure,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ObjectIndex> {
        self.object_index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_new(&self, is_new: bool) {
        self.is_new.store(is_new, Ordering::Relaxed);
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a revision that etcd has reached.
    fn note_seen(&self, revision: Revision) {
        self.seen.fetch_max(revision.number(), Ordering::Relaxed);
    }

    /// The newest revision that etcd is known to have reached.
    fn seen(&self) -> Revision {
        Revision::new(self.seen.load(Ordering::Relaxed))
    }

    /// Counts bytes of objects that were written to etcd. etcd stores the replaced values until it is compacted.
    fn note_written(&self, bytes: usize) {
        let written = self.written.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if written >= self.compact_after {
            self.written.store(0, Ordering::Relaxed);
            self.compact.notify_one();
        }
    }

    /// Stores received rows, and sends them to readers.
    fn take(&self, rows: impl Iterator<Item = Row>) {
        let mut object_index = self.lock();
        for Row { collection, key, revision, value, .. } in rows {
            match value {
                Ok(object) => object_index.take(&collection, key, (revision, object)),
                Err(why) => {
                    tracing::error!("{collection} {key} in etcd at revision {revision} {why}");
                    object_index.take_damaged(&collection, key, revision)
                }
            };
        }
    }
}

/// A store in etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
    client: Arc<Client>,
    newest: Arc<Newest>,
    prefix: Prefix,
    queue: WriteQueue,
    tasks: Vec<JoinHandle<()>>,
}

impl EtcdStore {
    /// Opens the store, and starts to read etcd. Reading continues until the store is dropped.
    ///
    /// # Errors
    /// If the options are invalid. An etcd that cannot be reached is no error.
    pub fn open(etcd: &EtcdOptions, options: StoreOptions) -> Result<Self, String> {
        let StoreOptions { limit, history, queue, share, encryption } = options;
        let prefix = Prefix::new(&etcd.prefix, encryption)?;
        let client = Arc::new(Client::new(etcd)?);
        let shared = Arc::new(Shared {
            sequencer: Arc::new(RevisionSequencer::shared()),
            object_index: Mutex::new(ObjectIndex::new(limit, share).with_past_limit(history)),
            known: watch::Sender::new(false),
            seen: AtomicU64::new(0),
            is_new: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            compact_after: limit,
            written: AtomicUsize::new(0),
            compact: Notify::new(),
            closing: CancellationToken::new(),
            trouble: Mutex::new(Some("it has not been read yet".to_owned())),
            failed: Failure::none(),
        });
        let feed = Feed::new(Arc::clone(&client), Arc::clone(&shared), prefix.clone(), history);
        let mut tasks = vec![tokio::spawn(feed.run())];
        if let Some(every) = etcd.compaction_interval {
            let (client, shared) = (Arc::clone(&client), Arc::clone(&shared));
            tasks.push(tokio::spawn(compactor::run(client, shared, every)));
        }
        let newest = Arc::new(Newest::new(Arc::clone(&client), prefix.clone()));
        Ok(Self { shared, client, newest, prefix, queue: WriteQueue::new(queue), tasks })
    }

    fn ensure_known(&self) -> Result<(), StoreError> {
        if self.shared.failed.why().is_some() {
            return Err(StoreError::Failed);
        }
        if *self.shared.known.borrow() { Ok(()) } else { Err(StoreError::Unavailable) }
    }
}

impl Store for EtcdStore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        async move {
            await_newest(self).await?;
            let object_index = self.shared.lock();
            object_index.get(collection, key).map(Option::<&Versioned>::cloned)
        }
        .boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            self.ensure_known()?;
            let queued = self.queue.enter(&commit).await;
            let request = transaction(&self.prefix, &commit).map_err(|why| {
                tracing::debug!(
                    collection = %commit.collection,
                    key = %commit.key,
                    error = %why,
                    "write failed"
                );
                StoreError::Unavailable
            })?;
            let reserved = self.reserve(&commit).await?;
            let (client, shared) = (Arc::clone(&self.client), Arc::clone(&self.shared));
            let newest = Arc::clone(&self.newest);
            // The write runs in a task of its own, so that it completes even if its caller stops waiting.
            let writing = tokio::spawn(async move {
                let _queued = queued;
                let written = write(&client, request, commit.expected).await;
                if commit.object.is_some() {
                    let is_full = matches!(written, Err(StoreError::NoDiskSpace));
                    shared.is_full.store(is_full, Ordering::Relaxed);
                }
                match written {
                    Ok(revision) => {
                        shared.note_seen(revision);
                        // The write has succeeded, even if it does not become visible in time.
                        let seen = timeout(SEEN, shared.sequencer.wait_until(revision)).await;
                        if seen.is_err() {
                            reserved.hold_until_seen(revision);
                        }
                    }
                    Err(StoreError::Unknown) => reserved.hold_until_settled(newest),
                    Err(_) => {}
                }
                written
            });
            writing.await.unwrap_or(Err(StoreError::Unknown))
        }
        .boxed()
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            self.ensure_known()?;
            let newest = self.newest.ask().await.map_err(|_| StoreError::Unavailable)?;
            self.shared.note_seen(newest);
            Ok(newest)
        }
        .boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.shared.lock().follow(collection, reader);
        ready(Ok(())).boxed()
    }

    fn unfollow(&self, collection: &Collection, reader: &Arc<dyn LogReader>) {
        self.shared.lock().leave(collection, reader);
    }

    fn collections(&self) -> Vec<Collection> {
        self.shared.lock().collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.shared.sequencer)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn is_known(&self) -> bool {
        *self.shared.known.borrow()
    }

    fn known(&self) -> BoxFuture<'_, ()> {
        let mut known = self.shared.known.subscribe();
        async move {
            // The sender lives as long as the store.
            let _ = known.wait_for(|known| *known).await;
        }
        .boxed()
    }

    fn is_new(&self) -> bool {
        self.shared.is_new.load(Ordering::Relaxed)
    }

    fn note_begun(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let key = self.prefix.store();
            let value = json!({"form": feed::FORM}).to_string().into();
            let put = PutRequest { key: key.clone(), value };
            let request = TxnRequest {
                compare: vec![was_written_at(key, 0)],
                success: vec![RequestOp { request: Some(Operation::Put(put)) }],
                failure: Vec::new(),
            };
            match write(&self.client, request, Precondition::Absent).await {
                // Another replica has written the record first.
                Ok(_) | Err(StoreError::Exists) => {
                    self.shared.set_new(false);
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn extent(&self) -> Option<(usize, usize)> {
        Some(self.shared.lock().extent())
    }

    fn behind(&self) -> u64 {
        let (current, seen) = (self.shared.sequencer.current(), self.shared.seen());
        seen.number().saturating_sub(current.number())
    }

    fn describe(&self) -> String {
        let (current, seen) = (self.shared.sequencer.current(), self.shared.seen());
        let behind = seen.number().saturating_sub(current.number());
        let place = self.prefix.first();
        let place = String::from_utf8_lossy(&place);
        format!("etcd, under {place}, at revision {current}, {behind} behind")
    }

    fn failure(&self) -> Option<String> {
        self.shared.failed.why()
    }

    fn trouble(&self) -> Option<String> {
        let trouble = self.shared.trouble().map(|why| format!("etcd cannot be read: {why}"));
        let full = || {
            let is_full = self.shared.is_full.load(Ordering::Relaxed);
            is_full.then(|| "etcd is at its quota: nothing but removals is written".to_owned())
        };
        trouble.or_else(|| self.prefix.trouble()).or_else(full)
    }

    fn failed(&self) -> BoxFuture<'_, String> {
        self.shared.failed.wait()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.shared.closing.cancel();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Builds the transaction of a write in the form that kube-apiserver sends. Other servers that implement etcd's
/// protocol support only this form.
fn transaction(prefix: &Prefix, commit: &Commit) -> Result<TxnRequest, String> {
    let key = prefix.place(&commit.collection, &commit.key);
    let operation = match &commit.object {
        Some(object) => {
            let value = prefix.value(&commit.collection, &commit.key, object)?;
            Operation::Put(PutRequest { key: key.clone(), value })
        }
        None => Operation::DeleteRange(DeleteRangeRequest { key: key.clone() }),
    };
    let (at, failure) = match commit.expected {
        Precondition::Absent => (0, Vec::new()),
        Precondition::At(revision) => {
            let get = RangeRequest { key: key.clone(), ..RangeRequest::default() };
            (number(revision), vec![RequestOp { request: Some(Operation::Range(get)) }])
        }
    };
    Ok(TxnRequest {
        compare: vec![was_written_at(key, at)],
        success: vec![RequestOp { request: Some(operation) }],
        failure,
    })
}

fn was_written_at(key: bytes::Bytes, revision: i64) -> Compare {
    let with = Some(Compared::ModRevision(revision));
    Compare { target: CompareTarget::Mod.into(), key, with }
}

async fn write(
    client: &Client,
    request: TxnRequest,
    expected: Precondition,
) -> Result<Revision, StoreError> {
    let answer = client.transaction(request).await.map_err(|fault| match fault {
        Fault::Unavailable(why) => {
            tracing::debug!(error = %why, "etcd did not write");
            StoreError::Unavailable
        }
        Fault::Full => StoreError::NoDiskSpace,
        Fault::TooLarge => StoreError::TooLarge,
        Fault::Unknown(_) | Fault::Compacted | Fault::AnswerTooLarge => {
            tracing::debug!(error = %fault.text(), "etcd may have written");
            StoreError::Unknown
        }
    })?;
    if answer.succeeded {
        return Ok(revision(answer.header.unwrap_or_default().revision));
    }
    Err(match (expected, answer.into_found()) {
        (Precondition::Absent, _) => StoreError::Exists,
        (Precondition::At(_), None) => StoreError::Absent,
        (Precondition::At(_), Some(kept)) => {
            StoreError::Changed { current: revision(kept.mod_revision) }
        }
    })
}

#[cfg(test)]
mod tests;
