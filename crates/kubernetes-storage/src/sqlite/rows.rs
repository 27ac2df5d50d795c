//! Reads the rows of the log. If all rows are read, one thread reads the file and another one decodes the rows, because
//! a starting server waits for both.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use rusqlite::types::FromSqlError;
use rusqlite::{Connection, Rows};

use super::database::{FILE, Row, Value, unsigned};
use crate::encryption::Unknown;
use crate::object::Key;
use crate::stored_value::{Read, Sealing, Unreadable};
use crate::{Collection, Revision};

/// The largest number of rows in a batch. `BATCH_BYTES` is its size in bytes, and `BATCHES` is the number of waiting
/// batches.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 256 << 10;
const BATCHES: usize = 2;

const ALL: &str = "SELECT revision, collection, name, value FROM log ORDER BY revision";

/// Passes all rows to `take`, in the order of their revisions.
///
/// # Errors
/// If the file is damaged, or a value is encrypted with a plugin that does not respond.
pub(super) fn read_all(
    connection: &mut Connection,
    sealing: &Sealing,
    mut take: impl FnMut(Row),
) -> Result<(), String> {
    let (written, to_make_out) = sync_channel(BATCHES);
    let (made_out, to_take) = sync_channel(BATCHES);
    std::thread::scope(|scope| {
        let spawn = |name: &str| Builder::new().name(name.to_owned());
        let refused = |error| format!("no thread can be started: {error}");
        let reader = spawn("store reader")
            .spawn_scoped(scope, move || read(connection, &written))
            .map_err(refused)?;
        let maker = spawn("store rows")
            .spawn_scoped(scope, move || make_out(to_make_out, sealing, &made_out))
            .map_err(refused)?;
        // The threads end when their next send fails.
        let taken = to_take.into_iter().try_for_each(|rows: Result<Vec<Row>, String>| {
            rows.map(|rows| rows.into_iter().for_each(&mut take))
        });
        let panicked = |_| "a thread that reads has panicked".to_owned();
        let ended = reader.join().and_then(|()| maker.join()).map_err(panicked);
        taken.and(ended)
    })
}

/// Passes rows with the columns revision, collection, name and value to `take`.
///
/// # Errors
/// Same as [`read_all`].
pub(super) fn take_rows(
    rows: Rows<'_>,
    sealing: &Sealing,
    mut take: impl FnMut(Row),
) -> Result<(), String> {
    let mut failed = None;
    let read = written(rows, |row| match row.make_out(sealing) {
        Ok(row) => {
            take(row);
            true
        }
        Err(why) => {
            failed = Some(why);
            false
        }
    });
    failed.map_or(read, Err)
}

/// An encoded row of the file.
struct Written<'a> {
    number: u64,
    collection: Collection,
    key: Key,
    value: &'a [u8],
}

/// Encoded rows of the file. `bytes` holds all their values.
#[derive(Default)]
struct Batch {
    rows: Vec<(u64, Collection, Key, Range<usize>)>,
    bytes: Vec<u8>,
}

impl Batch {
    fn new() -> Self {
        Self { rows: Vec::with_capacity(BATCH), bytes: Vec::with_capacity(BATCH_BYTES) }
    }

    fn push(&mut self, Written { number, collection, key, value }: Written<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.rows.push((number, collection, key, start..self.bytes.len()));
    }

    /// Whether another row may exceed the size of the batch.
    fn is_full(&self) -> bool {
        self.rows.len() >= BATCH || self.bytes.len() >= BATCH_BYTES - (BATCH_BYTES >> 4)
    }

    fn rows(&self) -> impl Iterator<Item = Written<'_>> {
        self.rows.iter().map(|(number, collection, key, range)| Written {
            number: *number,
            collection: collection.clone(),
            key: key.clone(),
            value: &self.bytes[range.clone()],
        })
    }
}

/// Reads all rows of the file.
fn read(connection: &Connection, batches: &SyncSender<Result<Batch, String>>) {
    let mut batch = Batch::new();
    let mut read = || {
        let mut statement = connection.prepare(ALL).map_err(|error| unreadable(&error))?;
        let rows = statement.query([]).map_err(|error| unreadable(&error))?;
        written(rows, |row| {
            batch.push(row);
            match batch.is_full() {
                true => batches.send(Ok(std::mem::replace(&mut batch, Batch::new()))).is_ok(),
                false => true,
            }
        })
    };
    let read = read();
    // Rows before an error are sent, too. The receiver may have ended.
    let _ = batches.send(Ok(batch));
    if let Err(why) = read {
        let _ = batches.send(Err(why));
    }
}

/// Decodes rows, until the plugin of one of them does not respond.
fn make_out(
    batches: Receiver<Result<Batch, String>>,
    sealing: &Sealing,
    made_out: &SyncSender<Result<Vec<Row>, String>>,
) {
    for batch in batches {
        let mut rows = Vec::with_capacity(BATCH);
        let made = batch.and_then(|batch| {
            batch.rows().try_for_each(|row| {
                rows.push(row.make_out(sealing)?);
                Ok(())
            })
        });
        let is_wanted = made_out.send(Ok(rows)).is_ok();
        if let Err(why) = made {
            let _ = made_out.send(Err(why));
            return;
        }
        if !is_wanted {
            return;
        }
    }
}

/// Passes rows to `take` until it returns false.
fn written(mut rows: Rows<'_>, mut take: impl FnMut(Written<'_>) -> bool) -> Result<(), String> {
    let mut before = Collection::new("");
    while let Some(row) = rows.next().map_err(|error| unreadable(&error))? {
        let row = Written::of(row, &before).map_err(|error| unreadable(&error))?;
        before.clone_from(&row.collection);
        if !take(row) {
            break;
        }
    }
    Ok(())
}

fn unreadable(error: &rusqlite::Error) -> String {
    format!("{FILE} cannot be read: {error}")
}

impl<'a> Written<'a> {
    /// Reads a row. Its collection is usually the same as that of the row before.
    fn of(row: &'a rusqlite::Row<'_>, before: &Collection) -> rusqlite::Result<Self> {
        let number = unsigned(row.get(0)?);
        let collection = match text(row, 1)? {
            same if same == before.as_str() => before.clone(),
            other => Collection::new(other),
        };
        let key = Key::of_text(text(row, 2)?);
        let value = row.get_ref(3)?;
        let value = value.as_blob().map_err(|error| misfit(3, value, error))?;
        Ok(Self { number, collection, key, value })
    }

    /// Decodes the row.
    ///
    /// # Errors
    /// If the value is encrypted with a plugin that does not respond.
    fn make_out(self, sealing: &Sealing) -> Result<Row, String> {
        let Self { number, collection, key, value } = self;
        let of = collection.as_str();
        let learned = sealing.unknown(number, of, key.text(), value).map(Unknown::learn);
        let (value, is_stale) = match (sealing.open(number, of, &key, value), learned) {
            (Ok(Read { object: Some(object), is_stale }), _) => {
                (Value::Object(Arc::new(object)), is_stale)
            }
            (Ok(Read { object: None, .. }), _) => (Value::Nothing, false),
            // Calls of the plugin for all other values would fail, too.
            (Err(_), Some(Err(why))) => {
                let why = Unreadable::Locked(format!("it is encrypted by {why}"));
                return Err(format!("{collection} {key} at revision {number} {why}"));
            }
            (Err(why), _) => (Value::Unreadable(why), false),
        };
        Ok(Row { collection, key, revision: Revision::new(number), value, is_stale })
    }
}

fn text<'a>(row: &'a rusqlite::Row<'_>, column: usize) -> rusqlite::Result<&'a str> {
    let value = row.get_ref(column)?;
    value.as_str().map_err(|error| misfit(column, value, error))
}

/// The error that a column has an unexpected type.
fn misfit(
    column: usize,
    value: rusqlite::types::ValueRef<'_>,
    error: FromSqlError,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), Box::new(error))
}
