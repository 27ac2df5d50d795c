//! Copies of a store that another process may be writing to.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::connection::check;
use super::database::{FILE, Row, Value};
use super::rows::read_all;
use crate::stored_value::{Sealing, Unreadable};
use crate::{Copied, Revision};

/// Copies the store in a directory to a file, which must not exist. The copy is the state of the store at one moment.
/// Every row is read again before the file gets its name.
///
/// # Errors
/// If there is no store, the store is damaged, or the file cannot be written.
pub fn back_up(folder: &Path, file: &Path) -> Result<Copied, String> {
    if fs::exists(file).unwrap_or(true) {
        return Err(format!("{} is there already", file.display()));
    }
    let partial = Partial(with_suffix(file, ".partial"));
    let copied = copy(folder, &partial.0)?;
    let unwritable = |error: io::Error| format!("{}: {error}", file.display());
    File::open(&partial.0).and_then(|file| file.sync_all()).map_err(unwritable)?;
    fs::rename(&partial.0, file).map_err(unwritable)?;
    let parent = file.parent().filter(|parent| *parent != Path::new(""));
    let synced = File::open(parent.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    synced.map_err(unwritable)?;
    Ok(copied)
}

/// Copies the store in a directory to a stream. During the copy, a temporary file is in the directory.
///
/// # Errors
/// Same as [`back_up`].
pub fn back_up_to(folder: &Path, mut stream: impl io::Write) -> Result<Copied, String> {
    let partial = Partial(folder.join("backup.partial"));
    let copied = copy(folder, &partial.0)?;
    let unwritable = |error: io::Error| format!("the copy cannot be written: {error}");
    let mut file = File::open(&partial.0).map_err(unwritable)?;
    io::copy(&mut file, &mut stream).and_then(|_| stream.flush()).map_err(unwritable)?;
    Ok(copied)
}

/// A file that is deleted on drop.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn copy(folder: &Path, file: &Path) -> Result<Copied, String> {
    let source = folder.join(FILE);
    if !source.exists() {
        return Err(format!("{} is not there", source.display()));
    }
    let unreadable = |error: rusqlite::Error| format!("{FILE} cannot be copied: {error}");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&source, flags).map_err(unreadable)?;
    check(&connection, false)?;
    // Only its owner may read the file. The file of an interrupted copy is overwritten.
    OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let name = file.to_str().ok_or_else(|| format!("{} is no text", file.display()))?;
    connection.execute("VACUUM INTO ?1", [name]).map_err(unreadable)?;
    let made = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let mut made = made.map_err(unreadable)?;
    let (mut count, mut newest) = (0, Revision::NONE);
    let mut damaged = None;
    // Damage can be detected without encryption keys, because the checksum covers the encrypted bytes.
    read_all(&mut made, &Sealing::default(), |row| {
        count += 1;
        newest = row.revision;
        if let Value::Unreadable(why @ Unreadable::Damaged(_)) = row.value {
            let Row { collection, key, revision, .. } = row;
            damaged = Some(format!("{collection} {key} at revision {revision} {why}"));
        }
    })?;
    match damaged {
        Some(damaged) => Err(damaged),
        None => Ok(Copied { rows: count, newest }),
    }
}
