//! The database file: its contents, and the operations on it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::connection::{self, Access, beside, check, is_no_room};
use super::reserved_space::{BYTES as BALLAST, ReservedSpace};
use super::rows;
use crate::object::{Key, Object};
use crate::stored_value::{Sealing, Unreadable};
use crate::{Collection, Renewed, Revision};

pub(super) const FILE: &str = "objects.db";
const LOCK: &str = "lock";
/// The longest time that a store waits for the lock of its directory, and the time between two attempts.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// The number of runs that are stored. Revisions of older runs are not recognized.
const RUNS: i64 = 1_000;
pub(super) const NO_ROOM: &str = "the disk is full";

/// A row of the log.
pub(super) struct Row {
    pub collection: Collection,
    pub key: Key,
    pub revision: Revision,
    pub value: Value,
    /// Whether the object would be encoded differently now.
    pub is_stale: bool,
}

impl Row {
    /// The object, if the row has one that can be read.
    fn object(&self) -> Option<&Object> {
        match &self.value {
            Value::Object(object) => Some(object),
            Value::Nothing | Value::Unreadable(_) => None,
        }
    }

    /// Whether the row is a removal.
    pub fn is_removal(&self) -> bool {
        matches!(self.value, Value::Nothing)
    }
}

/// An encoded row.
struct Sealed {
    number: u64,
    collection: String,
    name: String,
    value: Vec<u8>,
}

/// The value of a key since a revision.
pub(super) enum Value {
    Object(Arc<Object>),
    /// The object was removed.
    Nothing,
    Unreadable(Unreadable),
}

/// The state that earlier processes have left.
pub(super) struct Past {
    /// The ranges of revisions that these processes have issued.
    pub runs: Vec<RangeInclusive<u64>>,
    /// The revision since which every change is stored.
    pub oldest: Revision,
    /// The newest revision of all.
    pub newest: Revision,
}

/// The reason why rows were not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The disk is full. Nothing was written.
    NoRoom,
    /// An object cannot be encrypted at the moment. Nothing was written.
    Sealing(String),
    /// The rows may have been written or not.
    Failed(String),
}

/// The open database file. No other process writes to it.
pub(super) struct Database {
    connection: Connection,
    access: Access,
    path: PathBuf,
    sealing: Sealing,
    reserved_space: ReservedSpace,
    /// Whether truncating the log has freed space since the last successful transaction.
    has_truncated: bool,
    /// The first number of this process, until it has been recorded in the file.
    unnoted_run: Option<(u64, Revision)>,
    _lock: File,
}

impl Database {
    /// Opens the database file in a directory, with `sealing` as the encoding of objects. A missing directory or file
    /// is created.
    ///
    /// # Errors
    /// If the directory or the file cannot be used.
    pub fn open(folder: &Path, sealing: Sealing) -> Result<Self, String> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| format!("cannot be created: {error}"))?;
        if let Some(name) = network_file_system(folder) {
            return Err(format!(
                "is on a network file system ({name}), whose locks and syncs are not reliable; use a local disk"
            ));
        }
        let lock = lock(folder)?;
        let path = folder.join(FILE);
        // Only its owner may read the file.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| format!("{FILE} cannot be written: {error}"))?;
        let reserved_space = ReservedSpace::in_folder(folder);
        let (connection, access) = connection::open(&path, || reserved_space.give_up())?;
        check(&connection, true)?;
        // The names of new files are synced, too.
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| format!("cannot be synced: {error}"))?;
        Ok(Self {
            connection,
            access,
            path,
            sealing,
            reserved_space,
            unnoted_run: None,
            has_truncated: false,
            _lock: lock,
        })
    }

    /// Checks that objects of a collection can be encrypted at the moment.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn ensure_writes(&self, collection: &Collection) -> Result<(), String> {
        self.sealing.ensure_writes(collection.as_str())
    }

    /// Reads the state that earlier processes have left.
    ///
    /// # Errors
    /// If the file cannot be read.
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
            // A run without writes has issued only its first number.
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
    /// If the file is damaged, or a value is encrypted with a plugin that does not respond.
    pub fn read(&mut self, take: impl FnMut(Row)) -> Result<(), String> {
        rows::read_all(&mut self.connection, &self.sealing, take)
    }

    /// Records the first number of this process. On a full disk, the first write does that. Until then only readers
    /// receive the number.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin_run(&mut self, start: u64, newest: Revision) -> Result<(), String> {
        self.unnoted_run = Some((start, newest));
        loop {
            match self.in_transaction(|_| Ok(())) {
                Err(WriteError::NoRoom) if self.make_room() => {}
                Err(WriteError::NoRoom) => {
                    tracing::warn!(
                        file = FILE,
                        reason = NO_ROOM,
                        "cannot write the database; it is read-only"
                    );
                    return Ok(());
                }
                Err(WriteError::Sealing(why) | WriteError::Failed(why)) => return Err(why),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Frees disk space for writes that free memory: it truncates the log, or else releases the reserved space. Returns
    /// whether space was freed. A failed transaction makes the log grow again. So the log is truncated only once, and
    /// the reserved space is released only once.
    pub fn make_room(&mut self) -> bool {
        let log = || fs::metadata(beside(&self.path, "-wal")).map_or(0, |log| log.len());
        let before = log();
        // The log is truncated as far as possible. If that fails, nothing is lost.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if !self.has_truncated && log() < before {
            self.has_truncated = true;
            return true;
        }
        self.reserved_space.give_up()
    }

    /// Reserves disk space, so that deletions can be written when the disk is full. Returns whether the space is
    /// reserved; free space within the database file counts too.
    pub fn hold_room(&mut self) -> bool {
        if self.reserved_space.take().is_ok() {
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

    /// Opens the file again, because the disk may have more space now. If this fails, nothing is read or written any
    /// more: writes find no tables, and fail.
    fn reopen(&mut self) {
        let Ok(nothing) = Connection::open_in_memory() else { return };
        // The connection may have exclusive access to the file, so it is closed first.
        self.connection = nothing;
        match connection::open(&self.path, || false) {
            Ok((connection, access)) => {
                self.connection = connection;
                if self.access != access {
                    tracing::info!(
                        file = FILE,
                        before = ?self.access,
                        ?access,
                        "reopened the database"
                    );
                }
                self.access = access;
            }
            Err(why) => tracing::error!(error = %why, "cannot reopen the database"),
        }
    }

    /// Writes all rows in one transaction.
    ///
    /// # Errors
    /// If the rows are not on the disk.
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

    /// Removes rows, and with them the history up to `oldest`.
    ///
    /// # Errors
    /// If the removal is not on the disk.
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

    /// Rewrites rows in the current encoding.
    ///
    /// # Errors
    /// If the rows are not on the disk.
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

    /// Reads the rows of these revisions, as far as they exist.
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

    /// Rebuilds the file, so that it contains nothing of replaced or removed objects.
    ///
    /// # Errors
    /// If the disk has too little space. Then the file is unchanged.
    pub fn vacuum(&mut self) -> Result<(), String> {
        // The temporary file is as large as the database, so it is created in the directory and not in memory.
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
            "{FILE} cannot be compacted, so earlier contents may still be readable in it: {why}"
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

/// Records a process with its first number and the newest revision before it.
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

/// The name of the file system of a directory, if it is a network file system. Such file systems report writes as
/// synced and files as locked when they are not.
#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> Option<&'static str> {
    match rustix::fs::statfs(folder).ok()?.f_type {
        0x6969 => Some("NFS"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB"),
        _ => None,
    }
}

/// Network file systems are recognized only on Linux.
#[cfg(not(target_os = "linux"))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

/// Locks the directory for this process. The operating system releases the lock when the process ends. A store that was
/// closed just now holds the lock for a moment, and so does a child process between its fork and its exec.
fn lock(folder: &Path) -> Result<File, String> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(folder.join(LOCK))
        .map_err(|error| format!("cannot be written: {error}"))?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => return Err("is in use by another process".to_owned()),
            Err(TryLockError::Error(error)) => return Err(format!("cannot be locked: {error}")),
        }
    }
}

/// Revisions fit in an `i64`: they are microseconds of some centuries.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
