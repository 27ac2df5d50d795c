//! The writer thread: it writes groups of writes sequentially, and compacts the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

use super::Shared;
use super::database::{Database, Row, Value, WriteError};
use super::log::{Log, Moments};
use crate::object::Key;
use crate::write_queue::QueuedWrite;
use crate::{Collection, Commit, Revision, StoreError, Versioned};

/// The largest number of writes in one transaction. `GROUP_BYTES` is the largest size of their objects, in bytes.
const GROUP: usize = 512;
const GROUP_BYTES: usize = 4 << 20;
/// The interval at which history beyond its age limit is removed. History beyond its size limit is removed immediately.
pub(super) const COMPACT_EVERY: Duration = Duration::from_secs(60);
/// The largest number of rows that one transaction removes. `COMPACTED_BYTES` is their largest size, in bytes.
const COMPACTED: usize = 1_000;
const COMPACTED_BYTES: usize = 16 << 20;
/// The message in the log and in `/readyz` after the reserved disk space was released.
pub(super) const FULL: &str =
    "the disk of the store is full, or has less than 32 MiB left: only deletions are written";
/// The shortest interval between checks whether the disk has space again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A request to the thread.
pub(super) enum Message {
    /// Write this object, and send the result.
    Write(Box<Commit>, Answer),
    /// Compact the log.
    Compact,
}

/// The channel for the result of a write, with the permit of the write in the queue.
pub(super) struct Answer {
    to: oneshot::Sender<Result<Revision, StoreError>>,
    _queued: QueuedWrite,
}

impl Answer {
    pub fn new(to: oneshot::Sender<Result<Revision, StoreError>>, queued: QueuedWrite) -> Self {
        Self { to, _queued: queued }
    }

    /// Sends the result to the caller, if it still waits. The write leaves the queue.
    fn send(self, outcome: Result<Revision, StoreError>) -> Result<(), ()> {
        self.to.send(outcome).map_err(drop)
    }
}

/// A write with reserved memory that waits for the disk.
struct Staged {
    commit: Commit,
    before: Option<Versioned>,
    row: Row,
    answer: Answer,
}

/// The state of the writer thread.
pub(super) struct Writer {
    database: Database,
    shared: Arc<Shared>,
    log: Log,
    /// The revision that was issued last.
    newest: Revision,
    moments: Moments,
    /// The time of the last check that found no reserved disk space. While this is set, only writes that free memory
    /// are accepted.
    low_since: Option<Instant>,
}

impl Writer {
    pub fn new(database: Database, shared: Arc<Shared>, log: Log, newest: Revision) -> Self {
        let moments = Moments::starting(newest);
        Self { database, shared, log, newest, moments, low_since: None }
    }

    /// Writes until the store is dropped, or nothing can be written any more.
    pub fn run(mut self, mut received: Receiver<Message>) {
        // An earlier process may have left more history than this one may store.
        let begun = self.compact();
        self.hold_room();
        if let Err(why) = begun {
            return self.fail(why);
        }
        while let Some(first) = received.blocking_recv() {
            let (mut group, mut bytes, mut is_to_compact) = (Vec::new(), 0, false);
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Compact => is_to_compact = true,
                    Message::Write(commit, answer) => {
                        bytes += commit.object.as_ref().map_or(0, |object| object.json_size());
                        group.push((*commit, answer));
                    }
                }
                let is_full = group.len() >= GROUP || bytes >= GROUP_BYTES;
                next = if is_full { None } else { received.try_recv().ok() };
            }
            let group = self.admitted(group);
            let mut done = self.write(group);
            if done.is_ok() && (is_to_compact || self.is_compaction_due()) {
                done = self.compact();
            }
            if let Err(why) = done {
                return self.fail(why);
            }
        }
    }

    /// Stops writing. Only the next process can determine the contents of the disk.
    fn fail(self, why: String) {
        tracing::error!(
            error = %why,
            "the database has failed: no write succeeds until the server restarts"
        );
        self.shared.failed.set(why);
    }

    /// Whether history is too large or too old, regardless of the number of waiting writes. On a full disk, all history
    /// is removed.
    fn is_compaction_due(&self) -> bool {
        self.log.is_over()
            || self.moments.is_due()
            || (self.low_since.is_some() && self.log.has_removable(self.newest))
    }

    /// Returns the writes that may be written. On a full disk, these are writes that free memory. A write is rejected
    /// if a plugin has not confirmed its key for too long. A write that would fail anyway receives the error of its
    /// precondition.
    fn admitted(&mut self, group: Vec<(Commit, Answer)>) -> Vec<(Commit, Answer)> {
        if self.low_since.is_some_and(|since| since.elapsed() >= LOOK_EVERY) {
            self.hold_room();
        }
        let mut admitted = Vec::with_capacity(group.len());
        for (commit, answer) in group {
            let refused = if self.low_since.is_some() && !commit.makes_room() {
                StoreError::NoDiskSpace
            } else if commit.object.is_some()
                && self.database.ensure_writes(&commit.collection).is_err()
            {
                // The reason is logged where the plugin is called.
                StoreError::Unavailable
            } else {
                admitted.push((commit, answer));
                continue;
            };
            let _ = answer.send(Err(self.conflict(&commit).unwrap_or(refused)));
        }
        admitted
    }

    /// The reason why a write would fail even with free disk space.
    fn conflict(&self, commit: &Commit) -> Option<StoreError> {
        let object_index = self.shared.lock();
        let kept = object_index.get(&commit.collection, &commit.key);
        kept.and_then(|kept| commit.expected.check(kept)).err()
    }

    /// Reserves disk space for writes that free memory.
    fn hold_room(&mut self) {
        let is_held = self.database.hold_room();
        match (is_held, self.low_since) {
            (true, Some(_)) => tracing::info!("the disk of the database has free space again"),
            (false, None) => {
                tracing::warn!("{FULL}");
            }
            _ => {}
        }
        self.set_low(!is_held);
    }

    /// Releases disk space. Returns whether any was released.
    fn make_room(&mut self) -> bool {
        let is_made = self.database.make_room();
        if is_made {
            tracing::warn!("{FULL}");
            self.set_low(true);
        }
        is_made
    }

    fn set_low(&mut self, is_low: bool) {
        self.low_since = is_low.then(Instant::now);
        self.shared.is_full.store(is_low, Ordering::Relaxed);
    }

    /// Writes a group in one transaction. If the disk has too little space, history is removed first. After that, the
    /// writes are written one by one.
    fn write(&mut self, group: Vec<(Commit, Answer)>) -> Result<(), String> {
        let (staged, refused) = self.stage(group);
        let why = match self.database.write(staged.iter().map(|staged| &staged.row)) {
            Ok(()) => {
                self.publish(staged);
                // The writes that these conflict with are on the disk now.
                for (_, answer, error) in refused {
                    let _ = answer.send(Err(error));
                }
                return Ok(());
            }
            Err(WriteError::Failed(why)) => {
                for (_, answer, _) in refused {
                    let _ = answer.send(Err(StoreError::Failed));
                }
                for (_, answer) in self.unstage(staged) {
                    let _ = answer.send(Err(StoreError::Unknown));
                }
                return Err(why);
            }
            Err(why) => why,
        };
        let mut group = self.unstage(staged);
        group.extend(refused.into_iter().map(|(commit, answer, _)| (commit, answer)));
        match why {
            WriteError::Sealing(why) => self.write_by_collection(group, &why),
            _ if self.forget()? => self.write(group),
            _ if group.len() > 1 => {
                for one in group {
                    let one = self.admitted(vec![one]);
                    self.write(one)?;
                }
                Ok(())
            }
            _ => {
                let makes_room = group.iter().all(|(commit, _)| commit.makes_room());
                if makes_room && self.make_room() {
                    return self.write(group);
                }
                for (_, answer) in group {
                    let _ = answer.send(Err(StoreError::NoDiskSpace));
                }
                Ok(())
            }
        }
    }

    /// Writes a group in which an object cannot be encrypted. Writes of other collections continue.
    fn write_by_collection(
        &mut self,
        group: Vec<(Commit, Answer)>,
        why: &str,
    ) -> Result<(), String> {
        let mut parts: Vec<Vec<(Commit, Answer)>> = Vec::new();
        for one in group {
            let is_of = |part: &&mut Vec<(Commit, Answer)>| {
                part.first().is_some_and(|(first, _)| first.collection == one.0.collection)
            };
            match parts.iter_mut().find(is_of) {
                Some(part) => part.push(one),
                None => parts.push(vec![one]),
            }
        }
        if parts.len() > 1 {
            return parts.into_iter().try_for_each(|part| self.write(part));
        }
        // The problem of the plugin is logged where the plugin is called.
        tracing::debug!(error = %why, "cannot encrypt objects of a collection");
        for (_, answer) in parts.into_iter().flatten() {
            let _ = answer.send(Err(StoreError::Unavailable));
        }
        Ok(())
    }

    /// Checks the preconditions of writes against the state that earlier writes of the group will leave, and assigns
    /// revisions. If a write is rejected because of another write of the group, its caller receives the error only
    /// after the group is written.
    fn stage(
        &mut self,
        group: Vec<(Commit, Answer)>,
    ) -> (Vec<Staged>, Vec<(Commit, Answer, StoreError)>) {
        let mut object_index = self.shared.lock();
        let mut will_be: HashMap<(Collection, Key), Option<Versioned>> = HashMap::new();
        let (mut staged, mut refused) = (Vec::with_capacity(group.len()), Vec::new());
        let mut newest = self.newest;
        for (commit, answer) in group {
            let name = (commit.collection.clone(), commit.key.clone());
            let before = match will_be.get(&name) {
                Some(will_be) => Ok(will_be.clone()),
                None => {
                    let kept = object_index.get(&commit.collection, &commit.key);
                    kept.map(Option::<&Versioned>::cloned)
                }
            };
            let taken = before.and_then(|before| {
                object_index.take_room(&commit, before.as_ref()).map(|()| before)
            });
            let before = match taken {
                Ok(before) => before,
                Err(error) if will_be.contains_key(&name) => {
                    refused.push((commit, answer, error));
                    continue;
                }
                Err(error) => {
                    let _ = answer.send(Err(error));
                    continue;
                }
            };
            newest = self.shared.sequencer.after(newest);
            let object = commit.object.clone();
            let after = object.clone().map(|object| Versioned { revision: newest, object });
            will_be.insert(name.clone(), after);
            let value = object.map_or(Value::Nothing, Value::Object);
            let (collection, key) = name;
            let row = Row { collection, key, revision: newest, value, is_stale: false };
            staged.push(Staged { commit, before, row, answer });
        }
        (staged, refused)
    }

    /// Reverts writes that were not written.
    fn unstage(&self, staged: Vec<Staged>) -> Vec<(Commit, Answer)> {
        let mut object_index = self.shared.lock();
        for Staged { commit, before, .. } in staged.iter().rev() {
            object_index.give_back(commit, before.as_ref());
        }
        drop(object_index);
        staged.into_iter().map(|Staged { commit, answer, .. }| (commit, answer)).collect()
    }

    /// Makes writes visible to all readers, and sends their results.
    fn publish(&mut self, staged: Vec<Staged>) {
        let mut answers = Vec::with_capacity(staged.len());
        let mut object_index = self.shared.lock();
        for Staged { commit, before, row, answer } in staged {
            let bytes = before.map_or(0, |before| before.object.size());
            let replaced = object_index.keep(row.revision, commit).map(|row| (row, bytes));
            self.log.note(replaced, row.revision, row.is_removal());
            self.newest = row.revision;
            answers.push((row.revision, answer));
        }
        drop(object_index);
        self.shared.sequencer.reach(self.newest);
        for (revision, answer) in answers {
            let _ = answer.send(Ok(revision));
        }
    }

    /// Removes history beyond its limits of age and size. On a full disk, it removes all history.
    fn compact(&mut self) -> Result<(), String> {
        let aged = self.moments.pass(self.newest);
        if aged.is_some() {
            self.shared.lock().forget_past();
        }
        let oldest = match self.low_since {
            Some(_) => Some(self.newest),
            None => aged.max(self.log.excess_until()),
        };
        match oldest {
            Some(oldest) => self.compact_until(oldest),
            None => Ok(()),
        }
    }

    /// Removes all history, because the disk is full. Returns whether any was removed.
    fn forget(&mut self) -> Result<bool, String> {
        if !self.log.has_removable(self.newest) {
            return Ok(false);
        }
        let before = self.log.len();
        self.compact_until(self.newest)?;
        Ok(self.log.len() < before)
    }

    /// Moves the beginning of the history after a revision.
    fn compact_until(&mut self, oldest: Revision) -> Result<(), String> {
        loop {
            let until = (oldest, self.newest);
            let count = self.log.count_until(until, COMPACTED, COMPACTED_BYTES);
            // A history that begins here does not need the rows of this transaction.
            let begins = self.log.until(count).unwrap_or(oldest);
            match self.database.compact(begins, self.log.rows(count)) {
                Ok(()) => {}
                Err(WriteError::NoRoom) if self.make_room() => continue,
                // A later compaction tries again. The disk may have space then.
                Err(WriteError::NoRoom) => return Ok(()),
                Err(WriteError::Sealing(why) | WriteError::Failed(why)) => return Err(why),
            }
            self.log.remove(count);
            if count == 0 {
                return Ok(());
            }
        }
    }
}
