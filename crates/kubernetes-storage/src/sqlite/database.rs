//! The file: what is in it, and what is done with it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::ballast::{BYTES as BALLAST, Ballast};
use super::connection::{self, Access, beside, check, is_no_room};
use super::rows;
use crate::object::{Key, Object};
use crate::sealed::{Sealing, Unreadable};
use crate::{Collection, Renewed, Revision};

pub(super) const FILE: &str = "objects.db";
const LOCK: &str = "lock";
/// How many runs are remembered. A number of an older one is nobody's.
const RUNS: i64 = 1_000;
pub(super) const NO_ROOM: &str = "there is no room on the disk";

/// A row of the log.
pub(super) struct Row {
    pub collection: Collection,
    pub key: Key,
    pub revision: Revision,
    pub value: Value,
    /// Whether it would be written in another way now.
    pub is_stale: bool,
}

impl Row {
    /// The object, if there is one that can be read.
    fn object(&self) -> Option<&Object> {
        match &self.value {
            Value::Object(object) => Some(object),
            Value::Nothing | Value::Unreadable(_) => None,
        }
    }

    /// Whether what was under the key was removed.
    pub fn is_removal(&self) -> bool {
        matches!(self.value, Value::Nothing)
    }
}

/// A row as it is written.
struct Sealed {
    number: u64,
    collection: String,
    name: String,
    value: Vec<u8>,
}

/// What is under a key since a revision.
pub(super) enum Value {
    Object(Arc<Object>),
    /// It was removed.
    Nothing,
    Unreadable(Unreadable),
}

/// What happened in earlier processes.
pub(super) struct Past {
    /// The revisions that each of them has given.
    pub runs: Vec<RangeInclusive<u64>>,
    /// Every change since this one is known.
    pub oldest: Revision,
    /// The newest of all.
    pub newest: Revision,
}

/// Why something was not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// There is no room on the disk; nothing was written.
    NoRoom,
    /// It cannot be encrypted at the moment; nothing was written.
    Sealing(String),
    /// Nobody knows what was written.
    Failed(String),
}

/// The file, open. No other process writes to it.
pub(super) struct Database {
    connection: Connection,
    access: Access,
    path: PathBuf,
    sealing: Sealing,
    ballast: Ballast,
    /// Whether the log has made room since the last transaction that succeeded.
    has_truncated: bool,
    /// The number that this process begins with, until there is room to note it.
    unnoted_run: Option<(u64, Revision)>,
    _lock: File,
}

impl Database {
    /// Opens the file in a folder, in which objects are written down so. Both are made, if they are not
    /// there.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn open(folder: &Path, sealing: Sealing) -> Result<Self, String> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| format!("cannot be made: {error}"))?;
        if let Some(name) = network_file_system(folder) {
            return Err(format!(
                "is on a network file system ({name}), which does not keep what it promises"
            ));
        }
        let lock = lock(folder)?;
        let path = folder.join(FILE);
        // Only its owner may read what is kept.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| format!("{FILE} cannot be written: {error}"))?;
        let ballast = Ballast::in_folder(folder);
        let (connection, access) = connection::open(&path, || ballast.give_up())?;
        check(&connection, true)?;
        // The names of new files are on the disk, too.
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| format!("cannot be synced: {error}"))?;
        Ok(Self {
            connection,
            access,
            path,
            sealing,
            ballast,
            unnoted_run: None,
            has_truncated: false,
            _lock: lock,
        })
    }

    /// Refuses if objects of a collection cannot be encrypted at the moment.
    ///
    /// # Errors
    /// Why not.
    pub fn ensure_writes(&self, collection: &Collection) -> Result<(), String> {
        self.sealing.ensure_writes(collection.as_str())
    }

    /// What happened before.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn past(&self) -> Result<Past, String> {
        let read = || -> rusqlite::Result<Past> {
            let number = |sql: &str| -> rusqlite::Result<u64> {
                self.connection.query_row(sql, [], |row| row.get(0)).map(unsigned)
            };
            let newest = number("SELECT coalesce(max(revision), 0) FROM log")?;
            let oldest = number("SELECT oldest FROM history")?;
            let mut statement =
                self.connection.prepare("SELECT start, newest_before FROM run ORDER BY start")?;
            let starts = statement
                .query_map([], |row| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?))))?;
            let starts = starts.collect::<rusqlite::Result<Vec<(u64, u64)>>>()?;
            let ends = starts.iter().skip(1).map(|(_, newest_before)| *newest_before);
            let runs = starts.iter().zip(ends.chain([newest]));
            // A run in which nothing was written has given the number that it began with.
            let runs: Vec<_> = runs.map(|((start, _), end)| *start..=end.max(*start)).collect();
            let newest = runs.last().map_or(newest, |run| newest.max(*run.end()));
            let (oldest, newest) = (Revision::new(oldest), Revision::new(newest));
            Ok(Past { runs, oldest, newest })
        };
        read().map_err(|error| format!("{FILE} cannot be read: {error}"))
    }

    /// Reads all rows, in the order of their revisions.
    ///
    /// # Errors
    /// When the file is damaged, or something in it is encrypted by a plugin that does not answer.
    pub fn read(&mut self, take: impl FnMut(Row)) -> Result<(), String> {
        rows::read_all(&mut self.connection, &self.sealing, take)
    }

    /// Notes that a process begins, with this number. On a full disk that is done with the first write: until then the
    /// number is given to readers alone.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin_run(&mut self, start: u64, newest: Revision) -> Result<(), String> {
        self.unnoted_run = Some((start, newest));
        loop {
            match self.in_transaction(|_| Ok(())) {
                Err(WriteError::NoRoom) if self.make_room() => {}
                Err(WriteError::NoRoom) => {
                    tracing::warn!("{FILE} cannot be written, and is only read: {NO_ROOM}");
                    return Ok(());
                }
                Err(WriteError::Sealing(why) | WriteError::Failed(why)) => return Err(why),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Makes room for what makes room: that of the log, or else what is held. Whether there was any. A transaction that fails
    /// makes the log grow again, so the log is truncated once, and what is held is given up once.
    pub fn make_room(&mut self) -> bool {
        let log = || fs::metadata(beside(&self.path, "-wal")).map_or(0, |log| log.len());
        let before = log();
        // As far as it goes: where that fails, too, nothing is lost.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if !self.has_truncated && log() < before {
            self.has_truncated = true;
            return true;
        }
        self.ballast.give_up()
    }

    /// Holds room for what makes room. Whether that is held, or is free in the file itself.
    pub fn hold_room(&mut self) -> bool {
        if self.ballast.take().is_ok() {
            if self.access != Access::Shared {
                self.reopen();
            }
            return true;
        }
        let number = |sql: &str| self.connection.query_row(sql, [], |row| row.get(0)).map(unsigned);
        let free = number("PRAGMA freelist_count").and_then(|pages| {
            let size = number("PRAGMA page_size")?;
            Ok(pages.saturating_mul(size))
        });
        free.is_ok_and(|free| free >= BALLAST)
    }

    /// Opens the file again, as there may be room now for more than there was. Without the file nothing is read or written any
    /// more: then a write finds no tables, and fails.
    fn reopen(&mut self) {
        let Ok(nothing) = Connection::open_in_memory() else { return };
        // The connection has the file for itself, so it is closed first.
        self.connection = nothing;
        match connection::open(&self.path, || false) {
            Ok((connection, access)) => {
                self.connection = connection;
                if self.access != access {
                    tracing::info!("{FILE} is opened again: {:?}, then {access:?}", self.access);
                }
                self.access = access;
            }
            Err(why) => tracing::error!("cannot open the store again: {why}"),
        }
    }

    /// Writes rows, all or none of them.
    ///
    /// # Errors
    /// When they are not on the disk.
    pub fn write<'a>(&mut self, rows: impl Iterator<Item = &'a Row>) -> Result<(), WriteError> {
        let sealed = rows.map(|row| self.sealed(row)).collect::<Result<Vec<_>, _>>();
        let sealed = sealed.map_err(WriteError::Sealing)?;
        self.in_transaction(|transaction| {
            let sql = "INSERT INTO log (revision, collection, name, value) VALUES (?1, ?2, ?3, ?4)";
            let mut statement = transaction.prepare_cached(sql)?;
            for Sealed { number, collection, name, value } in sealed {
                statement.execute(params![signed(number), collection, name, value])?;
            }
            Ok(())
        })
    }

    fn sealed(&self, row: &Row) -> Result<Sealed, String> {
        let (collection, name) = (row.collection.to_string(), row.key.to_string());
        let number = row.revision.number();
        let value = self.sealing.seal(number, &collection, &name, row.object())?;
        Ok(Sealed { number, collection, name, value })
    }

    /// Removes rows, and with them what happened up to `oldest`.
    ///
    /// # Errors
    /// When that is not on the disk.
    pub fn compact(
        &mut self,
        oldest: Revision,
        rows: impl Iterator<Item = Revision>,
    ) -> Result<(), WriteError> {
        self.in_transaction(|transaction| {
            transaction.execute("UPDATE history SET oldest = ?1", [signed(oldest.number())])?;
            let mut statement =
                transaction.prepare_cached("DELETE FROM log WHERE revision = ?1")?;
            for row in rows {
                statement.execute([signed(row.number())])?;
            }
            Ok(())
        })
    }

    /// Writes rows again, as they would be written now.
    ///
    /// # Errors
    /// When that is not on the disk.
    pub fn rewrite(&mut self, revisions: &[Revision], renewed: &Renewed<'_>) -> Result<(), String> {
        let mut rows = self.rows_at(revisions)?;
        for Row { collection, value, .. } in &mut rows {
            if let Value::Object(object) = value
                && let Some(renewed) = renewed(collection, object)
            {
                *object = renewed;
            }
        }
        let sealed = rows.iter().map(|row| self.sealed(row)).collect::<Result<Vec<_>, _>>()?;
        let written = self.in_transaction(|transaction| {
            let sql = "UPDATE log SET value = ?2 WHERE revision = ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            for Sealed { number, value, .. } in sealed {
                statement.execute(params![signed(number), value])?;
            }
            Ok(())
        });
        written.map_err(|error| match error {
            WriteError::NoRoom => format!("{FILE} cannot be written: {NO_ROOM}"),
            WriteError::Sealing(why) | WriteError::Failed(why) => why,
        })
    }

    /// The rows of revisions that are there.
    fn rows_at(&self, revisions: &[Revision]) -> Result<Vec<Row>, String> {
        let unreadable = |error| format!("{FILE} cannot be read: {error}");
        let sql = "SELECT revision, collection, name, value FROM log WHERE revision = ?1";
        let mut statement = self.connection.prepare(sql).map_err(unreadable)?;
        let mut found = Vec::with_capacity(revisions.len());
        for revision in revisions {
            let rows = statement.query([signed(revision.number())]).map_err(unreadable)?;
            rows::take_rows(rows, &self.sealing, |row| found.push(row))?;
        }
        Ok(found)
    }

    /// Makes the file anew, so that nothing is left in it of what was replaced or removed.
    ///
    /// # Errors
    /// When there is no room for that; the file is as it was then.
    pub fn vacuum(&mut self) -> Result<(), String> {
        // What is made beside the file is as large as that: it belongs in the folder, and not in memory.
        let folder = self.path.parent().and_then(Path::to_str).unwrap_or(".").replace('\'', "''");
        let sql = format!(
            "PRAGMA temp_store_directory = '{folder}'; PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY"
        );
        let vacuumed = self.connection.execute_batch(&sql).and_then(|()| {
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            self.connection.query_row(sql, [], |row| row.get::<_, bool>(0))
        });
        let why = match vacuumed {
            Ok(false) => return Ok(()),
            Ok(true) => "another process reads it".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(format!(
            "{FILE} cannot be made anew, so what it held before may still be read there: {why}"
        ))
    }

    fn in_transaction(
        &mut self,
        write: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), WriteError> {
        if self.access == Access::ReadOnly {
            self.reopen();
        }
        if self.access == Access::ReadOnly {
            return Err(WriteError::NoRoom);
        }
        let all = || {
            let transaction = self.connection.transaction()?;
            if let Some((start, newest)) = self.unnoted_run {
                note_run(&transaction, start, newest)?;
            }
            write(&transaction)?;
            transaction.commit()
        };
        all().map_err(|error| match is_no_room(&error) {
            true => WriteError::NoRoom,
            false => WriteError::Failed(format!("{FILE} cannot be written: {error}")),
        })?;
        self.unnoted_run = None;
        self.has_truncated = false;
        Ok(())
    }
}

/// Notes a process that begins with a number, after a newest revision.
fn note_run(
    transaction: &rusqlite::Transaction<'_>,
    start: u64,
    newest: Revision,
) -> rusqlite::Result<()> {
    let row = params![signed(start), signed(newest.number())];
    transaction.execute("INSERT INTO run (start, newest_before) VALUES (?1, ?2)", row)?;
    if newest == Revision::NONE {
        transaction.execute("UPDATE history SET oldest = ?1", [signed(start)])?;
    }
    let least =
        "DELETE FROM run WHERE start NOT IN (SELECT start FROM run ORDER BY start DESC LIMIT ?1)";
    transaction.execute(least, [RUNS])?;
    Ok(())
}

/// The file system of a folder, if it is one of those that other machines share, and that say of what
/// was synced and locked what is not so.
#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> Option<&'static str> {
    match rustix::fs::statfs(folder).ok()?.f_type {
        0x6969 => Some("NFS"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB"),
        _ => None,
    }
}

/// Elsewhere they are not told apart.
#[cfg(not(target_os = "linux"))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

/// Takes the folder for this process. The system gives it back when the process ends.
fn lock(folder: &Path) -> Result<File, String> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(folder.join(LOCK))
        .map_err(|error| format!("cannot be written: {error}"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err("is in use by another process".to_owned()),
        Err(TryLockError::Error(error)) => Err(format!("cannot be locked: {error}")),
    }
}

/// Revisions fit: they are microseconds of some centuries.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
