//! A store in a directory, with SQLite, which needs no installation. Acknowledged writes survive a kill of the process
//! and a power failure.
//!
//! The stored objects are also in memory, and reads use only memory. One thread writes. It takes the waiting writes,
//! checks their preconditions, writes them in one transaction, and only then makes them visible and acknowledges them.
//! Replaced and removed objects stay in the file for some minutes with their revisions, so watches can continue over a
//! restart.

mod backup;
mod connection;
mod database;
mod log;
mod reserved_space;
mod rewrite;
mod rows;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use super::failure::Failure;
use super::object_index::ObjectIndex;
use super::sequencer::microseconds;
use super::stored_value::{Sealing, Unreadable};
use super::write_queue::WriteQueue;
use super::{
    Collection, Commit, LogReader, Revision, RevisionSequencer, Store, StoreError, StoreOptions,
    Versioned,
};
use crate::object::Key;
pub use backup::{back_up, back_up_to};
use database::{Database, Past, Row, Value};
use log::Log;
pub use rewrite::rewrite;
use writer::{Answer, Message, Writer};

/// The capacity of the channel to the writer thread. Further writes wait until it has capacity.
const WAITING: usize = 1_024;

/// The state that the writer thread shares with callers.
struct Shared {
    sequencer: Arc<RevisionSequencer>,
    object_index: Mutex<ObjectIndex>,
    /// The reason why nothing can be written any more.
    failed: Failure,
    /// Whether the disk has so little space that only deletions are written.
    is_full: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ObjectIndex> {
        self.object_index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store in a directory. It outlives the process.
pub struct SqliteStore {
    shared: Arc<Shared>,
    sealing: Sealing,
    folder: PathBuf,
    is_new: bool,
    /// `None` once the store is dropped.
    messages: Option<mpsc::Sender<Message>>,
    queue: WriteQueue,
    thread: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the store in a directory, or creates it there.
    ///
    /// # Errors
    /// If the directory or its files cannot be used: another process uses them, another program or a later version of
    /// this one has written them, they are damaged, or their encryption key is missing.
    pub fn open(folder: &Path, options: StoreOptions, now: Timestamp) -> Result<Self, String> {
        let StoreOptions { limit, history, queue, share, encryption } = options;
        let sealing = Sealing::new(encryption, "");
        let mut database = Database::open(folder, sealing.clone())?;
        let Past { runs, mut oldest, newest } = database.past()?;
        let mut object_index = ObjectIndex::new(limit, share).with_past_limit(history);
        let (mut rows, mut has_begun, began) = (0_usize, false, Instant::now());
        let mut log = Log::new(history);
        let mut locked: Option<String> = None;
        database.read(|row| {
            rows += 1;
            let Row { collection, key, revision, .. } = row;
            let kept = object_index.get(&collection, &key).ok().flatten();
            let bytes = kept.map_or(0, |kept| kept.object.size());
            let object = match row.value {
                Value::Object(object) => Some(object),
                Value::Nothing => None,
                Value::Unreadable(why @ Unreadable::Locked(_)) => {
                    locked
                        .get_or_insert(format!("{collection} {key} at revision {revision} {why}"));
                    return;
                }
                Value::Unreadable(why) => {
                    tracing::error!(
                        "{}: {collection} {key} at revision {revision} {why}",
                        folder.display()
                    );
                    let before = object_index.take_damaged(&collection, key, revision);
                    log.note(before.map(|before| (before, bytes)), revision, false);
                    (oldest, has_begun) = (revision, false);
                    return;
                }
            };
            if revision > oldest && !has_begun {
                object_index.begin_past(oldest);
                has_begun = true;
            }
            let is_removal = object.is_none();
            let before = object_index.take(&collection, key, (revision, object));
            log.note(before.map(|before| (before, bytes)), revision, is_removal);
        })?;
        if let Some(locked) = locked {
            return Err(locked);
        }
        let is_new = rows == 0;
        let is_first = runs.is_empty();
        let start = (newest.number() + 1).max(microseconds(now));
        database.begin_run(start, newest)?;
        if !has_begun {
            // A new store has no history.
            let is_new = oldest == Revision::NONE && is_first;
            object_index.begin_past(if is_new { Revision::new(start) } else { oldest });
        }
        let sequencer = Arc::new(RevisionSequencer::continuing(runs, start));
        let (path, took) = (folder.to_owned(), began.elapsed().as_millis());
        let folder = path.display();
        tracing::info!(
            directory = %folder,
            rows,
            milliseconds = took as u64,
            revision = %start,
            "opened the database"
        );
        let (failed, object_index) = (Failure::none(), Mutex::new(object_index));
        let is_full = AtomicBool::new(false);
        let shared = Arc::new(Shared { sequencer, object_index, failed, is_full });
        let (messages, received) = mpsc::channel(WAITING);
        let writer = Writer::new(database, Arc::clone(&shared), log, Revision::new(start));
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    // Readers are called in this thread, and can panic, too.
                    let run = AssertUnwindSafe(|| writer.run(received));
                    if catch_unwind(run).is_err() {
                        let why = "the thread that writes has panicked";
                        shared.failed.set(why.to_owned());
                    }
                }
            })
            .map_err(|error| format!("no thread can be started: {error}"))?;
        tokio::spawn(keep_short(messages.downgrade()));
        Ok(Self {
            shared,
            sealing,
            folder: path,
            is_new,
            messages: Some(messages),
            queue: WriteQueue::new(queue),
            thread: Some(thread),
        })
    }
}

/// Requests a compaction of the log regularly, until the store is dropped.
async fn keep_short(messages: mpsc::WeakSender<Message>) {
    let mut ticks = interval(writer::COMPACT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(messages) = messages.upgrade() else { return };
        let _ = messages.send(Message::Compact).await;
    }
}

impl Store for SqliteStore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        let kept = self.shared.lock().get(collection, key).map(Option::<&Versioned>::cloned);
        std::future::ready(kept).boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let (answer, answered) = oneshot::channel();
        async move {
            let messages = self.messages.as_ref().ok_or(StoreError::Failed)?;
            let queued = self.queue.enter(&commit).await;
            let write = Message::Write(Box::new(commit), Answer::new(answer, queued));
            messages.send(write).await.map_err(|_| StoreError::Failed)?;
            // The writer thread has ended without a result. It may have written the object.
            answered.await.unwrap_or(Err(StoreError::Unknown))
        }
        .boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.shared.lock().follow(collection, reader);
        std::future::ready(Ok(())).boxed()
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

    fn outlives_process(&self) -> bool {
        true
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    fn failure(&self) -> Option<String> {
        self.shared.failed.why()
    }

    fn extent(&self) -> Option<(usize, usize)> {
        Some(self.shared.lock().extent())
    }

    fn describe(&self) -> String {
        let (folder, current) = (self.folder.display(), self.shared.sequencer.current());
        format!("the directory {folder}, at revision {current}")
    }

    fn trouble(&self) -> Option<String> {
        let is_full = self.shared.is_full.load(Ordering::Relaxed);
        let full = || is_full.then(|| writer::FULL.to_owned());
        self.sealing.trouble().or_else(full)
    }

    fn failed(&self) -> BoxFuture<'_, String> {
        self.shared.failed.wait()
    }
}

impl Drop for SqliteStore {
    /// Waits until all accepted writes are on the disk, and the directory can be used by another process.
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
