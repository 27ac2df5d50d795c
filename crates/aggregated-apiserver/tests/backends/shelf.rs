//! A backend: rows of a table that other programs change, too. It does as the test says.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use aggregated_apiserver::backend::{
    Backend, BackendError, Change, Create, Delete, Item, Listing, Poll, Reason, Update, Watch,
    WriteContext,
};
use futures::Stream;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, broadcast};

/// A book.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "library.example.com",
    version = "v1",
    kind = "Book",
    namespaced,
    derive = "PartialEq",
    selectable = ".spec.title",
    printcolumn = r#"{"name": "Title", "type": "string", "jsonPath": ".spec.title"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BookSpec {
    pub title: String,
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub copies: i64,
}

fn one() -> i64 {
    1
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub title: String,
    pub copies: i64,
    /// The number of changes of the row.
    pub version: u64,
}

/// What the backend does in the next call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It fails with a message that clients must not see.
    Fail(String),
    /// It rejects the request with this message.
    Reject(String),
    /// It panics.
    Panic,
    /// It never returns.
    Hang,
    /// It returns another object than the one that was written.
    OtherObject,
    /// It waits for [`Shelf::release`], after it has read or written the table.
    Late,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<(String, String), Row>,
    faults_of_lists: Vec<Fault>,
    faults_of_writes: Vec<Fault>,
    /// Whether lists have only the first half of the rows.
    is_partial: bool,
    /// Objects that are listed besides the rows.
    strange: Vec<Book>,
    calls: Vec<String>,
}

/// The table.
pub struct Shelf {
    state: Mutex<State>,
    changes: broadcast::Sender<Change<Book>>,
    pub release: Notify,
    pub arrived: Notify,
}

impl Shelf {
    pub fn new() -> Arc<Self> {
        let changes = broadcast::Sender::new(1_000);
        let (state, release, arrived) = (Mutex::default(), Notify::new(), Notify::new());
        Arc::new(Self { state, changes, release, arrived })
    }

    /// Changes a row behind the back of the server; `None` deletes it.
    pub fn put(&self, name: &str, title: Option<&str>) {
        let key = ("n".to_owned(), name.to_owned());
        let mut state = self.state.lock().unwrap();
        let version = state.rows.get(&key).map_or(0, |row| row.version) + 1;
        let change = match title {
            Some(title) => {
                let row = Row { title: title.to_owned(), copies: 1, version };
                state.rows.insert(key.clone(), row.clone());
                Change::Applied(item(&key, &row))
            }
            None => {
                state.rows.remove(&key);
                Change::Deleted { namespace: Some(key.0), name: key.1 }
            }
        };
        let _ = self.changes.send(change);
    }

    pub fn fail_list(&self, fault: Fault) {
        self.state.lock().unwrap().faults_of_lists.push(fault);
    }

    pub fn fail_write(&self, fault: Fault) {
        self.state.lock().unwrap().faults_of_writes.push(fault);
    }

    pub fn set_partial(&self, is_partial: bool) {
        self.state.lock().unwrap().is_partial = is_partial;
    }

    pub fn list_strange(&self, books: Vec<Book>) {
        self.state.lock().unwrap().strange = books;
    }

    pub fn row(&self, name: &str) -> Option<Row> {
        self.state.lock().unwrap().rows.get(&("n".to_owned(), name.to_owned())).cloned()
    }

    pub fn titles(&self) -> BTreeMap<String, String> {
        let state = self.state.lock().unwrap();
        state.rows.iter().map(|((_, name), row)| (name.clone(), row.title.clone())).collect()
    }

    /// The writes so far, such as `create a as admin`.
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().unwrap().calls.clone()
    }

    fn listing(&self) -> Listing<Book> {
        let state = self.state.lock().unwrap();
        let mut items: Vec<_> = state.rows.iter().map(|(key, row)| item(key, row)).collect();
        items.extend(state.strange.iter().cloned().map(Item::new));
        match state.is_partial {
            true => Listing::partial(items.drain(..items.len() / 2)),
            false => Listing::complete(items),
        }
    }

    async fn act(&self, fault: Option<Fault>) -> Result<(), BackendError> {
        match fault {
            None | Some(Fault::OtherObject) => Ok(()),
            Some(Fault::Fail(message)) => Err(BackendError::internal(message)),
            Some(Fault::Reject(message)) => Err(BackendError::rejected(Reason::Forbidden, message)),
            Some(Fault::Panic) => panic!("the backend panics, as the test says"),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Late) => {
                self.arrived.notify_one();
                self.release.notified().await;
                Ok(())
            }
        }
    }

    fn write(
        &self,
        (verb, context): (&str, &WriteContext),
        book: &Book,
        change: impl FnOnce(Option<&Row>) -> Result<Option<Row>, BackendError>,
    ) -> Result<Option<Item<Book>>, BackendError> {
        let key = (book.namespace().unwrap(), book.name_any());
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("{verb} {} as {}", key.1, context.user.name));
        let changed = change(state.rows.get(&key))?;
        let sent = match &changed {
            Some(row) => {
                state.rows.insert(key.clone(), row.clone());
                Change::Applied(item(&key, row))
            }
            None => {
                state.rows.remove(&key);
                Change::Deleted { namespace: Some(key.0.clone()), name: key.1.clone() }
            }
        };
        let _ = self.changes.send(sent);
        Ok(changed.map(|row| item(&key, &row)))
    }

    /// Takes the fault of this write. Some faults come before the write, and some after it.
    async fn before_write(&self) -> Result<Option<Fault>, BackendError> {
        let fault = self.state.lock().unwrap().faults_of_writes.pop();
        match fault {
            Some(fault @ (Fault::Late | Fault::OtherObject)) => Ok(Some(fault)),
            fault => self.act(fault).await.map(|()| None),
        }
    }
}

fn item((namespace, name): &(String, String), row: &Row) -> Item<Book> {
    let mut book = Book::new(name, BookSpec { title: row.title.clone(), copies: row.copies });
    book.metadata.namespace = Some(namespace.clone());
    Item::new(book).with_etag(row.version.to_string())
}

impl Backend for Shelf {
    type Object = Book;
}

impl Poll for Shelf {
    async fn list(&self) -> Result<Listing<Book>, BackendError> {
        let fault = self.state.lock().unwrap().faults_of_lists.pop();
        let listing = self.listing();
        self.act(fault).await?;
        Ok(listing)
    }
}

impl Watch for Shelf {
    fn watch(&self) -> impl Stream<Item = Result<Change<Book>, BackendError>> + Send {
        let changes = self.changes.subscribe();
        let first = Ok(Change::Restarted(self.listing()));
        let rest = futures::stream::unfold(changes, |mut changes| async {
            let change = changes.recv().await.map_err(BackendError::internal_from);
            Some((change, changes))
        });
        futures::StreamExt::chain(futures::stream::iter([first]), rest)
    }
}

impl Create for Shelf {
    async fn create(&self, context: &WriteContext, book: Book) -> Result<Item<Book>, BackendError> {
        let fault = self.before_write().await?;
        let created = self.write(("create", context), &book, |row| match row {
            Some(_) => Err(BackendError::AlreadyExists),
            None => {
                let (title, copies) = (book.spec.title.clone(), book.spec.copies);
                Ok(Some(Row { title, copies, version: 1 }))
            }
        })?;
        self.after(fault, created).await
    }
}

impl Update for Shelf {
    async fn update(
        &self,
        context: &WriteContext,
        old: Item<Book>,
        book: Book,
    ) -> Result<Item<Book>, BackendError> {
        let fault = self.before_write().await?;
        let updated = self.write(("update", context), &book, |row| match row {
            None => Err(BackendError::NotFound),
            Some(row) if old.etag != Some(row.version.to_string()) => Err(BackendError::Conflict),
            Some(row) => {
                let (title, copies) = (book.spec.title.clone(), book.spec.copies);
                Ok(Some(Row { title, copies, version: row.version + 1 }))
            }
        })?;
        self.after(fault, updated).await
    }
}

impl Shelf {
    fn after(
        &self,
        fault: Option<Fault>,
        written: Option<Item<Book>>,
    ) -> impl Future<Output = Result<Item<Book>, BackendError>> + Send {
        let is_other = matches!(fault, Some(Fault::OtherObject));
        async move {
            self.act(fault).await?;
            let mut item = written.ok_or(BackendError::NotFound)?;
            if is_other {
                item.object.metadata.name = Some("other".to_owned());
            }
            Ok(item)
        }
    }
}

impl Delete for Shelf {
    async fn delete(&self, context: &WriteContext, old: Item<Book>) -> Result<(), BackendError> {
        let fault = self.before_write().await?;
        self.write(("delete", context), &old.object, |row| match row {
            None => Err(BackendError::NotFound),
            Some(row) if old.etag != Some(row.version.to_string()) => Err(BackendError::Conflict),
            Some(_) => Ok(None),
        })?;
        self.act(fault).await
    }
}
