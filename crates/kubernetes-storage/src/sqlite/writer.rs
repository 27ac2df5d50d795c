//! The thread that writes: groups of writes, one after the other, and the compaction of the log.

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

/// How many writes are one transaction at most, and how many bytes of objects.
const GROUP: usize = 512;
const GROUP_BYTES: usize = 4 << 20;
/// How often history is removed that is too old. History that is too large is removed at once.
pub(super) const COMPACT_EVERY: Duration = Duration::from_secs(60);
/// Rows that are removed in one transaction, and bytes of them.
const COMPACTED: usize = 1_000;
const COMPACTED_BYTES: usize = 16 << 20;
/// What the log and `/readyz` say once the room is given up that is held for what makes room.
pub(super) const FULL: &str =
    "the disk of the store is full, or has less than 32 MiB left: only deletions are written";
/// How often it is looked at most whether there is room on the disk again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the thread is told.
pub(super) enum Message {
    /// Write this, and say what came of it.
    Write(Box<Commit>, Answer),
    /// Make the log shorter.
    Compact,
}

/// Where the caller of a write waits for its outcome, with the place of the write in the queue.
pub(super) struct Answer {
    to: oneshot::Sender<Result<Revision, StoreError>>,
    _queued: QueuedWrite,
}

impl Answer {
    pub fn new(to: oneshot::Sender<Result<Revision, StoreError>>, queued: QueuedWrite) -> Self {
        Self { to, _queued: queued }
    }

    /// Tells the caller, if it still waits; the write leaves the queue.
    fn send(self, outcome: Result<Revision, StoreError>) -> Result<(), ()> {
        self.to.send(outcome).map_err(drop)
    }
}

/// A write that has room, and waits for the disk.
struct Staged {
    commit: Commit,
    before: Option<Versioned>,
    row: Row,
    answer: Answer,
}

/// Writes what comes.
pub(super) struct Writer {
    database: Database,
    shared: Arc<Shared>,
    log: Log,
    /// The newest revision, which was given last.
    newest: Revision,
    moments: Moments,
    /// When it was found that no room is held for what makes room. Nothing else is written then.
    low_since: Option<Instant>,
}

impl Writer {
    pub fn new(database: Database, shared: Arc<Shared>, log: Log, newest: Revision) -> Self {
        let moments = Moments::starting(newest);
        Self { database, shared, log, newest, moments, low_since: None }
    }

    /// Writes until nobody is left who could ask, or nothing can be written any more.
    pub fn run(mut self, mut received: Receiver<Message>) {
        // An earlier process may have left more history than this one may have.
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

    /// Writes nothing any more: only the next process can know what the disk holds.
    fn fail(self, why: String) {
        tracing::error!("{why}: nothing is written any more");
        self.shared.failed.set(why);
    }

    /// Whether history is too large or too old, however many writes wait. On a full disk it has no room at all.
    fn is_compaction_due(&self) -> bool {
        self.log.is_over()
            || self.moments.is_due()
            || (self.low_since.is_some() && self.log.has_removable(self.newest))
    }

    /// What may be written: while the disk is full, nothing but what makes room; and nothing whose key a
    /// plugin has not confirmed for long. A write that would fail anyway is told why first.
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
                // The log says why where the plugin is asked.
                StoreError::Unavailable
            } else {
                admitted.push((commit, answer));
                continue;
            };
            let _ = answer.send(Err(self.conflict(&commit).unwrap_or(refused)));
        }
        admitted
    }

    /// Why a write would fail if there were room for it.
    fn conflict(&self, commit: &Commit) -> Option<StoreError> {
        let shelves = self.shared.lock();
        let kept = shelves.get(&commit.collection, &commit.key);
        kept.and_then(|kept| commit.expected.check(kept)).err()
    }

    /// Sees to it that there is room for what makes room.
    fn hold_room(&mut self) {
        let is_held = self.database.hold_room();
        match (is_held, self.low_since) {
            (true, Some(_)) => tracing::info!("there is room on the disk of the store again"),
            (false, None) => {
                tracing::warn!("{FULL}");
            }
            _ => {}
        }
        self.set_low(!is_held);
    }

    /// Gives up the room that is held; whether there was any.
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

    /// Writes a group as one transaction. Where there is no room for all of it, history gives way first, and then its writes
    /// go one by one.
    fn write(&mut self, group: Vec<(Commit, Answer)>) -> Result<(), String> {
        let (staged, refused) = self.stage(group);
        let why = match self.database.write(staged.iter().map(|staged| &staged.row)) {
            Ok(()) => {
                self.publish(staged);
                // What they were refused for is on the disk now.
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

    /// Writes a group of which something cannot be encrypted: the writes of other collections go on.
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
        // The plugin's trouble is logged where it is asked.
        tracing::debug!("objects of a collection cannot be encrypted: {why}");
        for (_, answer) in parts.into_iter().flatten() {
            let _ = answer.send(Err(StoreError::Unavailable));
        }
        Ok(())
    }

    /// Holds writes against what is there, as each of them will have left it, and gives them numbers.
    /// Those that are refused because of others of the group are not told so before these are written.
    fn stage(
        &mut self,
        group: Vec<(Commit, Answer)>,
    ) -> (Vec<Staged>, Vec<(Commit, Answer, StoreError)>) {
        let mut shelves = self.shared.lock();
        let mut will_be: HashMap<(Collection, Key), Option<Versioned>> = HashMap::new();
        let (mut staged, mut refused) = (Vec::with_capacity(group.len()), Vec::new());
        let mut newest = self.newest;
        for (commit, answer) in group {
            let name = (commit.collection.clone(), commit.key.clone());
            let before = match will_be.get(&name) {
                Some(will_be) => Ok(will_be.clone()),
                None => {
                    let kept = shelves.get(&commit.collection, &commit.key);
                    kept.map(Option::<&Versioned>::cloned)
                }
            };
            let taken = before
                .and_then(|before| shelves.take_room(&commit, before.as_ref()).map(|()| before));
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
            newest = self.shared.timeline.after(newest);
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

    /// Takes back what was not written.
    fn unstage(&self, staged: Vec<Staged>) -> Vec<(Commit, Answer)> {
        let mut shelves = self.shared.lock();
        for Staged { commit, before, .. } in staged.iter().rev() {
            shelves.give_back(commit, before.as_ref());
        }
        drop(shelves);
        staged.into_iter().map(|Staged { commit, answer, .. }| (commit, answer)).collect()
    }

    /// Shows what was written to everybody, and says so to those who wrote it.
    fn publish(&mut self, staged: Vec<Staged>) {
        let mut answers = Vec::with_capacity(staged.len());
        let mut shelves = self.shared.lock();
        for Staged { commit, before, row, answer } in staged {
            let bytes = before.map_or(0, |before| before.object.size());
            let replaced = shelves.keep(row.revision, commit).map(|row| (row, bytes));
            self.log.note(replaced, row.revision, row.is_removal());
            self.newest = row.revision;
            answers.push((row.revision, answer));
        }
        drop(shelves);
        self.shared.timeline.reach(self.newest);
        for (revision, answer) in answers {
            let _ = answer.send(Ok(revision));
        }
    }

    /// Removes history that is too old or too large; all of it while the disk is full.
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

    /// Removes all history, because there is no room. Returns whether any was removed.
    fn forget(&mut self) -> Result<bool, String> {
        if !self.log.has_removable(self.newest) {
            return Ok(false);
        }
        let before = self.log.len();
        self.compact_until(self.newest)?;
        Ok(self.log.len() < before)
    }

    /// Lets the history begin after a revision.
    fn compact_until(&mut self, oldest: Revision) -> Result<(), String> {
        loop {
            let until = (oldest, self.newest);
            let count = self.log.count_until(until, COMPACTED, COMPACTED_BYTES);
            // What is removed in this transaction is not needed by a history that begins here.
            let begins = self.log.until(count).unwrap_or(oldest);
            match self.database.compact(begins, self.log.rows(count)) {
                Ok(()) => {}
                Err(WriteError::NoRoom) if self.make_room() => continue,
                // It is tried again, when there may be room.
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
