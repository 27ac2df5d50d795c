//! The backend: a table of SQLite, which other programs change, too.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aggregated_apiserver::backend::{
    Backend, BackendError, Create, Delete, Item, Listing, Poll, Update, WriteContext,
};
use kube::{CustomResource, KubeSchema, ResourceExt};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

/// A book of the library: a row of the table.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[kube(group = "library.example.com", version = "v1", kind = "Book", namespaced)]
#[kube(printcolumn(name = "Title", type_ = "string", json_path = ".spec.title"))]
#[kube(printcolumn(name = "Copies", type_ = "integer", json_path = ".spec.copies"))]
pub struct BookSpec {
    /// The title.
    pub title: String,
    /// The number of copies.
    #[schemars(range(min = 0))]
    pub copies: u32,
}

/// The table. The version of a row is unique in the whole table, so a row that was deleted and inserted again has
/// another one. Triggers set it, because other programs change the rows, too.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS changes (number INTEGER NOT NULL);
    INSERT INTO changes SELECT 0 WHERE NOT EXISTS (SELECT * FROM changes);
    CREATE TABLE IF NOT EXISTS books (
        namespace TEXT NOT NULL, name TEXT NOT NULL, title TEXT NOT NULL, copies INTEGER NOT NULL,
        version INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (namespace, name)
    );
    CREATE TRIGGER IF NOT EXISTS inserted AFTER INSERT ON books BEGIN
        UPDATE changes SET number = number + 1;
        UPDATE books SET version = (SELECT number FROM changes)
            WHERE namespace = new.namespace AND name = new.name;
    END;
    CREATE TRIGGER IF NOT EXISTS updated AFTER UPDATE OF title, copies ON books BEGIN
        UPDATE changes SET number = number + 1;
        UPDATE books SET version = (SELECT number FROM changes)
            WHERE namespace = new.namespace AND name = new.name;
    END;
";
const COLUMNS: &str = "namespace, name, title, copies, version";

/// The table of books.
#[derive(Clone)]
pub struct Table(Arc<Mutex<Connection>>);

impl Table {
    /// Opens the database, and creates the table if it does not exist.
    ///
    /// # Errors
    /// If the file is no database or cannot be written.
    pub fn open(file: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Runs a statement on another thread, because SQLite waits for the disk.
    async fn run<T: Send + 'static>(
        &self,
        statement: impl FnOnce(MutexGuard<'_, Connection>) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let connection = Arc::clone(&self.0);
        let run = move || statement(connection.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(run).await.map_err(BackendError::internal_from)?
    }
}

fn book(row: &Row<'_>) -> rusqlite::Result<Item<Book>> {
    let mut book =
        Book::new(&row.get::<_, String>(1)?, BookSpec { title: row.get(2)?, copies: row.get(3)? });
    book.metadata.namespace = Some(row.get(0)?);
    Ok(Item::new(book).with_etag(row.get::<_, i64>(4)?.to_string()))
}

fn get(connection: &Connection, namespace: &str, name: &str) -> Result<Item<Book>, BackendError> {
    let query = format!("SELECT {COLUMNS} FROM books WHERE namespace = ?1 AND name = ?2");
    let found = connection.query_row(&query, [namespace, name], book);
    found.map_err(|error| match error {
        rusqlite::Error::QueryReturnedNoRows => BackendError::NotFound,
        error => BackendError::internal_from(error),
    })
}

/// The error of a statement that has changed no row.
fn why_unchanged(connection: &Connection, namespace: &str, name: &str) -> BackendError {
    get(connection, namespace, name).err().unwrap_or(BackendError::Conflict)
}

impl Backend for Table {
    type Object = Book;
}

impl Poll for Table {
    async fn list(&self) -> Result<Listing<Book>, BackendError> {
        self.run(|connection| {
            let query = format!("SELECT {COLUMNS} FROM books");
            let mut query = connection.prepare(&query).map_err(BackendError::internal_from)?;
            let books = query.query_map([], book).map_err(BackendError::internal_from)?;
            let books: Result<Vec<_>, _> = books.collect();
            Ok(Listing::complete(books.map_err(BackendError::internal_from)?))
        })
        .await
    }
}

impl Create for Table {
    async fn create(&self, _: &WriteContext, book: Book) -> Result<Item<Book>, BackendError> {
        let (namespace, name) = (book.namespace().unwrap_or_default(), book.name_any());
        self.run(move |connection| {
            let insert = "INSERT INTO books (namespace, name, title, copies) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (namespace, name) DO NOTHING";
            let row = params![namespace, name, book.spec.title, book.spec.copies];
            match connection.execute(insert, row).map_err(BackendError::internal_from)? {
                0 => Err(BackendError::AlreadyExists),
                _ => get(&connection, &namespace, &name),
            }
        })
        .await
    }
}

impl Update for Table {
    async fn update(
        &self,
        _: &WriteContext,
        old: Item<Book>,
        book: Book,
    ) -> Result<Item<Book>, BackendError> {
        let (namespace, name) = (book.namespace().unwrap_or_default(), book.name_any());
        self.run(move |connection| {
            let update = "UPDATE books SET title = ?1, copies = ?2 WHERE namespace = ?3 AND name = ?4 AND version = ?5";
            let row = params![book.spec.title, book.spec.copies, namespace, name, old.etag.unwrap_or_default()];
            match connection.execute(update, row).map_err(BackendError::internal_from)? {
                0 => Err(why_unchanged(&connection, &namespace, &name)),
                _ => get(&connection, &namespace, &name),
            }
        })
        .await
    }
}

impl Delete for Table {
    async fn delete(&self, _: &WriteContext, old: Item<Book>) -> Result<(), BackendError> {
        let (namespace, name) = (old.object.namespace().unwrap_or_default(), old.object.name_any());
        self.run(move |connection| {
            let delete = "DELETE FROM books WHERE namespace = ?1 AND name = ?2 AND version = ?3";
            let row = params![namespace, name, old.etag.unwrap_or_default()];
            match connection.execute(delete, row).map_err(BackendError::internal_from)? {
                0 => Err(why_unchanged(&connection, &namespace, &name)),
                _ => Ok(()),
            }
        })
        .await
    }
}
