//! The connection to the database file. On a full disk, the file is opened in a way that needs less space.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::database::{FILE, NO_ROOM};

/// The application identifier of the database files of this program: `farm` in ASCII.
const APPLICATION: i32 = 0x6661_726d;
/// The version of the tables. Later versions are rejected.
const FORM: i32 = 1;
/// The bytes that are escaped in the path of a URI.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');
/// The longest time that SQLite waits for another process that has locked the file.
const BUSY: Duration = Duration::from_secs(5);

/// The way in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Other processes can copy the file.
    Shared,
    /// No other process can read the file. The index of its log is in memory and needs no disk space.
    Alone,
    /// The file is only read. No log can be created next to it.
    ReadOnly,
}

/// Opens a file in the first of these ways that the free disk space allows. `make_room` is called at most once, and
/// returns whether it has freed any space.
///
/// # Errors
/// If the file cannot be used.
pub(super) fn open(
    path: &Path,
    make_room: impl FnOnce() -> bool,
) -> Result<(Connection, Access), String> {
    let mut opened = open_as(path, Access::Shared);
    // Reading the log of an earlier process needs disk space, too.
    if lacks_room(path, &opened) && make_room() {
        opened = open_as(path, Access::Shared);
    }
    for access in [Access::Alone, Access::ReadOnly] {
        if lacks_room(path, &opened) && (access != Access::ReadOnly || is_complete(path)) {
            opened = open_as(path, access);
        }
    }
    if lacks_room(path, &opened) {
        return Err(format!("{FILE} cannot be used: {NO_ROOM}"));
    }
    opened.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => format!("{FILE} is not a database of SQLite"),
        Some(ErrorCode::DatabaseCorrupt) => format!("{FILE} is damaged: {error}"),
        _ => format!("{FILE} cannot be used: {error}"),
    })
}

fn open_as(path: &Path, access: Access) -> rusqlite::Result<(Connection, Access)> {
    let connection = match access {
        Access::Shared | Access::Alone => {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(path, flags)?
        }
        Access::ReadOnly => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
        }
    };
    prepare(&connection, access)?;
    Ok((connection, access))
}

/// The URI of a file that does not change while it is open.
fn uri(path: &Path) -> String {
    format!("file:{}?immutable=1", percent_encode(path.as_os_str().as_bytes(), ESCAPED))
}

/// Configures a connection before anything is read.
fn prepare(connection: &Connection, access: Access) -> rusqlite::Result<()> {
    // Other processes may copy the file. The lock file prevents other processes from writing to it.
    connection.busy_timeout(BUSY)?;
    // This pragma precedes those that open the log, because opening it decides where its index is.
    if access == Access::Alone {
        connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    }
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "cache_size", -8_192)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    if access == Access::ReadOnly {
        return Ok(());
    }
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.query_row("PRAGMA wal_autocheckpoint = 8000", [], |_| Ok(()))?;
    Ok(())
}

/// Whether an operation had no effect because the disk is full.
pub(super) fn is_no_room(error: &rusqlite::Error) -> bool {
    let of_index = |error: &ffi::Error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE;
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error.sqlite_error().is_some_and(of_index)
}

/// Whether a file was not opened because the disk is full. SQLite does not report why it cannot create a file.
fn lacks_room<T>(path: &Path, opened: &rusqlite::Result<T>) -> bool {
    let Err(error) = opened else { return false };
    let cannot_open = error.sqlite_error_code() == Some(ErrorCode::CannotOpen);
    is_no_room(error)
        || (cannot_open && ["-wal", "-shm"].iter().any(|end| !fits(&beside(path, end))))
}

/// Whether the disk has space for a file, which is created.
fn fits(file: &Path) -> bool {
    let mut options = OpenOptions::new();
    let created = options.create(true).append(true).mode(0o600).open(file);
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    !created.is_err_and(|error| full.contains(&error.kind()))
}

/// Whether a file exists, and its log is empty.
fn is_complete(path: &Path) -> bool {
    let size = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
    size(path) > 0 && size(&beside(path, "-wal")) == 0
}

/// The path of a file that SQLite creates next to the database file.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Rejects a file of another program or of a later version. If `may_be_new`, the tables of a new file are created.
pub(super) fn check(connection: &Connection, may_be_new: bool) -> Result<(), String> {
    let unusable = |error: rusqlite::Error| format!("{FILE} cannot be used: {error}");
    let number = |sql: &str| -> Result<i32, String> {
        connection.query_row(sql, [], |row| row.get(0)).map_err(unusable)
    };
    let (application, form) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    match (tables, application, form) {
        (0, 0, 0) if may_be_new => connection
            .execute_batch(&format!(
                "BEGIN;
                PRAGMA application_id = {APPLICATION};
                PRAGMA user_version = {FORM};
                CREATE TABLE log (revision INTEGER PRIMARY KEY, collection TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL) STRICT;
                CREATE TABLE run (start INTEGER PRIMARY KEY, newest_before INTEGER NOT NULL) STRICT;
                CREATE TABLE history (oldest INTEGER NOT NULL) STRICT;
                INSERT INTO history VALUES (0);
                COMMIT;"
            ))
            .map_err(unusable),
        (_, APPLICATION, FORM) => Ok(()),
        (_, APPLICATION, later) => Err(format!(
            "{FILE} was written by a later release in format {later}, and this release reads format {FORM}; use the later release"
        )),
        _ => Err(format!("{FILE} is a database of another program")),
    }
}
