//! The thread that writes: groups of writes, one after the other, and what makes the log shorter.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

use super::Shared;
use super::database::{Database, Row, Value, WriteError};
use crate::object::Key;
use crate::storage::write_queue::QueuedWrite;
use crate::storage::{Collection, Commit, Revision, StoreError, Versioned};

/// How many writes are one transaction at most, and how many bytes of objects.
const GROUP: usize = 512;
const GROUP_BYTES: usize = 4 << 20;
/// How long it is kept what was there before: for as long clients may be away and go on.
const HISTORY: Duration = Duration::from_secs(5 * 60);
/// At most so many rows are kept of it: more than watches can go back through.
const HISTORY_ROWS: usize = 102_400;
/// Rows that are removed in one transaction.
const COMPACTED: usize = 1_000;
/// What is said once the room is given up that is held for what makes room.
const FULL: &str =
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

/// Which rows are history.
#[derive(Default)]
pub(super) struct Log {
    /// Rows that are not needed any more once the history begins after another one: that one, and
    /// the row.
    replaced: VecDeque<(Revision, Revision)>,
}

impl Log {
    /// Notes a row, which replaces the one of another revision, or none; they come in the order of
    /// their revisions.
    pub fn note(&mut self, before: Option<Revision>, revision: Revision, is_removal: bool) {
        self.replaced.extend(before.map(|before| (revision, before)));
        if is_removal {
            self.replaced.push_back((revision, revision));
        }
    }

    /// Rows that nobody needs if the history begins after a revision; the newest row says where
    /// numbers go on.
    pub fn obsolete(&self, oldest: Revision, newest: Revision) -> impl Iterator<Item = Revision> {
        let replaced = self.replaced.iter().take_while(move |(until, _)| *until <= oldest);
        replaced.map(|(_, row)| *row).filter(move |row| *row != newest)
    }
}

/// Writes what comes.
pub(super) struct Writer {
    database: Database,
    shared: Arc<Shared>,
    log: Log,
    /// The newest revision, which was given last.
    newest: Revision,
    /// What was the newest at some moments.
    moments: VecDeque<(Instant, Revision)>,
    /// When it was found that no room is held for what makes room. Nothing else is written then.
    low_since: Option<Instant>,
}

impl Writer {
    pub fn new(database: Database, shared: Arc<Shared>, log: Log, newest: Revision) -> Self {
        let moments = VecDeque::from([(Instant::now(), newest)]);
        let mut writer = Self { database, shared, log, newest, moments, low_since: None };
        writer.hold_room();
        writer
    }

    /// Writes until nobody is left who could ask, or nothing can be written any more.
    pub fn run(mut self, mut received: Receiver<Message>) {
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
            if is_to_compact && done.is_ok() {
                done = self.compact();
            }
            if let Err(why) = done {
                // What the disk holds now is known to the next process alone.
                tracing::error!("{why}: nothing is written any more");
                self.shared.failed.set(why);
                return;
            }
        }
    }

    /// What may be written: while the disk is full, nothing but what makes room; and nothing whose key a
    /// plugin has not confirmed for long.
    fn admitted(&mut self, group: Vec<(Commit, Answer)>) -> Vec<(Commit, Answer)> {
        if self.low_since.is_some_and(|since| since.elapsed() >= LOOK_EVERY) {
            self.hold_room();
        }
        let mut admitted = Vec::with_capacity(group.len());
        for (commit, answer) in group {
            if self.low_since.is_some() && !commit.makes_room() {
                let _ = answer.send(Err(StoreError::NoDiskSpace));
            } else if commit.object.is_some()
                && self.database.ensure_writes(&commit.collection).is_err()
            {
                // The log says why where the plugin is asked.
                let _ = answer.send(Err(StoreError::Unavailable));
            } else {
                admitted.push((commit, answer));
            }
        }
        admitted
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
        self.low_since = (!is_held).then(Instant::now);
    }

    /// Gives up the room that is held; whether there was any.
    fn make_room(&mut self) -> bool {
        let is_made = self.database.make_room();
        if is_made {
            tracing::warn!("{FULL}");
            self.low_since = Some(Instant::now());
        }
        is_made
    }

    /// Writes a group as one transaction; one by one, if there is no room for all of them.
    fn write(&mut self, group: Vec<(Commit, Answer)>) -> Result<(), String> {
        let (staged, refused) = self.stage(group);
        match self.database.write(staged.iter().map(|staged| &staged.row)) {
            Ok(()) => {
                self.publish(staged);
                // What they were refused for is on the disk now.
                for (_, answer, error) in refused {
                    let _ = answer.send(Err(error));
                }
            }
            Err(WriteError::NoRoom) if staged.len() + refused.len() > 1 => {
                let mut group = self.unstage(staged);
                group.extend(refused.into_iter().map(|(commit, answer, _)| (commit, answer)));
                for one in group {
                    let one = self.admitted(vec![one]);
                    self.write(one)?;
                }
            }
            Err(WriteError::NoRoom) => {
                let group = self.unstage(staged);
                let makes_room = group.iter().all(|(commit, _)| commit.makes_room());
                if makes_room && self.make_room() {
                    return self.write(group);
                }
                for (_, answer) in group {
                    let _ = answer.send(Err(StoreError::NoDiskSpace));
                }
            }
            Err(WriteError::Sealing(why)) => {
                // The plugin's trouble is logged where it is asked.
                tracing::debug!("{} objects cannot be encrypted: {why}", staged.len());
                let group = self.unstage(staged).into_iter();
                let others = refused.into_iter().map(|(commit, answer, _)| (commit, answer));
                for (_, answer) in group.chain(others) {
                    let _ = answer.send(Err(StoreError::Unavailable));
                }
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
        for Staged { commit, row, answer, .. } in staged {
            let before = shelves.keep(row.revision, commit);
            self.log.note(before, row.revision, row.is_removal());
            self.newest = row.revision;
            answers.push((row.revision, answer));
        }
        drop(shelves);
        self.shared.timeline.reach(self.newest);
        for (revision, answer) in answers {
            let _ = answer.send(Ok(revision));
        }
    }

    /// Lets go of what happened too long ago.
    fn compact(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let mut oldest = None;
        while self.moments.front().is_some_and(|(at, _)| now.duration_since(*at) >= HISTORY) {
            oldest = self.moments.pop_front().map(|(_, revision)| revision);
        }
        self.moments.push_back((now, self.newest));
        if let Some(excess) = self.log.replaced.len().checked_sub(HISTORY_ROWS + 1) {
            let (until, _) = self.log.replaced[excess];
            oldest = Some(oldest.map_or(until, |oldest| oldest.max(until)));
        }
        let Some(oldest) = oldest else { return Ok(()) };
        self.shared.lock().forget_past();
        self.compact_until(oldest)
    }

    /// Lets the history begin after a revision.
    fn compact_until(&mut self, oldest: Revision) -> Result<(), String> {
        loop {
            let rows = self.log.obsolete(oldest, self.newest).take(COMPACTED);
            let written = self.database.compact(oldest, rows);
            match written {
                Ok(()) => {}
                Err(WriteError::NoRoom) if self.make_room() => continue,
                // It is tried again, when there may be room.
                Err(WriteError::NoRoom) => return Ok(()),
                Err(WriteError::Sealing(why) | WriteError::Failed(why)) => return Err(why),
            }
            let replaced = &mut self.log.replaced;
            let count = replaced.iter().take_while(|(until, _)| *until <= oldest).count();
            replaced.drain(..count.min(COMPACTED));
            if count <= COMPACTED {
                return Ok(());
            }
        }
    }
}
