//! A backend: rows of a table that other programs change, too. It does as the test says.

mod reads;

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
    /// The number of changes of the table until the last change of the row.
    pub version: u64,
    /// The uid, if the backend has one.
    pub uid: Option<String>,
}

/// A failure of the backend in its next call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It fails with a message that clients must not see.
    Fail(String),
    /// It rejects the request with this message.
    Reject(String),
    /// It rejects the request for this reason.
    RejectAs(Reason),
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
    /// The number of changes.
    version: u64,
    faults_of_lists: Vec<Fault>,
    faults_of_writes: Vec<Fault>,
    /// The failures of direct reads of one object.
    faults_of_reads: Vec<Fault>,
    /// Whether lists have only the first half of the rows.
    is_partial: bool,
    /// Objects that are listed besides the rows.
    strange: Vec<Book>,
    calls: Vec<String>,
    /// The audit ID of the last write.
    audit_id: String,
    /// The changes that are sent later; `None` if they are sent at once.
    held: Option<Vec<Change<Book>>>,
    /// Whether the backend has uids and creation times of its own.
    has_identity: bool,
    /// Whether the objects of direct reads have etags.
    shows_etags: bool,
    /// Whether the backend has no etags.
    has_no_etags: bool,
}

impl State {
    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn new_uid(&mut self) -> Option<String> {
        let number = self.next_version();
        self.has_identity.then(|| format!("uid-{number}"))
    }
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
        self.put_all(&[(name, title)]);
    }

    /// Changes rows, and no list has a state between the changes.
    pub fn put_all(&self, rows: &[(&str, Option<&str>)]) {
        let mut state = self.state.lock().unwrap();
        for (name, title) in rows {
            let key = ("n".to_owned(), (*name).to_owned());
            let row = title.map(|title| Row {
                title: title.to_owned(),
                copies: 1,
                version: state.next_version(),
                uid: state
                    .rows
                    .get(&key)
                    .and_then(|row| row.uid.clone())
                    .or_else(|| state.new_uid()),
            });
            self.change(&mut state, key, row);
        }
    }

    /// Changes a row, and sends the change.
    fn change(&self, state: &mut State, key: (String, String), row: Option<Row>) {
        let change = match row {
            Some(row) => {
                state.rows.insert(key.clone(), row.clone());
                Change::Applied(item(&key, &row))
            }
            None => {
                state.rows.remove(&key);
                Change::Deleted { namespace: Some(key.0), name: key.1 }
            }
        };
        match &mut state.held {
            Some(held) => held.push(change),
            None => drop(self.changes.send(change)),
        }
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        self.changes.receiver_count()
    }

    /// Holds the changes back from now on, or sends those that were held back.
    pub fn hold_changes(&self, are_held: bool) {
        let mut state = self.state.lock().unwrap();
        for change in state.held.take().into_iter().flatten() {
            let _ = self.changes.send(change);
        }
        state.held = are_held.then(Vec::new);
    }

    /// Ends all failures.
    pub fn heal(&self) {
        self.hold_changes(false);
        let mut state = self.state.lock().unwrap();
        state.faults_of_lists.clear();
        state.faults_of_writes.clear();
        state.is_partial = false;
    }

    /// Gives rows uids and creation times of their own from now on.
    pub fn identify(&self) {
        self.state.lock().unwrap().has_identity = true;
    }

    /// A table whose direct reads have etags.
    pub fn with_etags() -> Arc<Self> {
        let shelf = Self::new();
        shelf.state.lock().unwrap().shows_etags = true;
        shelf
    }

    /// A table that does not notice outdated writes.
    pub fn without_etags() -> Arc<Self> {
        let shelf = Self::new();
        shelf.state.lock().unwrap().has_no_etags = true;
        shelf
    }

    pub fn has_etags(&self) -> bool {
        !self.state.lock().unwrap().has_no_etags
    }

    pub fn fail_read(&self, fault: Fault) {
        self.state.lock().unwrap().faults_of_reads.push(fault);
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

    /// The calls that were writes.
    pub fn writes(&self) -> Vec<String> {
        let is_write = |call: &String| !call.starts_with("get") && !call.starts_with("list");
        self.calls().into_iter().filter(is_write).collect()
    }

    /// The audit ID of the last write.
    pub fn audit_id(&self) -> String {
        self.state.lock().unwrap().audit_id.clone()
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
            Some(Fault::RejectAs(reason)) => Err(BackendError::rejected(reason, "no")),
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
        state.audit_id.clone_from(&context.audit_id);
        let changed = change(state.rows.get(&key))?;
        if context.is_dry_run() {
            state.calls.push("nothing is stored".to_owned());
            return Ok(changed.map(|row| item(&key, &row)));
        }
        let changed = changed.map(|row| Row {
            version: state.next_version(),
            uid: row.uid.clone().or_else(|| state.new_uid()),
            ..row
        });
        self.change(&mut state, key.clone(), changed.clone());
        let has_etags = !state.has_no_etags;
        Ok(changed.map(|row| item(&key, &row)).map(|item| match has_etags {
            true => item,
            false => Item::new(item.object),
        }))
    }

    /// Takes the failure of this write. Some failures happen before the write, and some after it.
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
    if let Some(uid) = &row.uid {
        book.metadata.uid = Some(uid.clone());
        let created = serde_json::from_str(r#""2020-01-01T00:00:00Z""#);
        book.metadata.creation_timestamp = created.unwrap();
    }
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

    async fn get(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Item<Book>>, BackendError> {
        let key = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        let state = self.state.lock().unwrap();
        Ok(state.rows.get(&key).map(|row| item(&key, row)))
    }
}

impl Create for Shelf {
    async fn create(&self, context: &WriteContext, book: Book) -> Result<Item<Book>, BackendError> {
        let fault = self.before_write().await?;
        let created = self.write(("create", context), &book, |row| match row {
            Some(_) => Err(BackendError::AlreadyExists),
            None => {
                let (title, copies) = (book.spec.title.clone(), book.spec.copies);
                Ok(Some(Row { title, copies, version: 0, uid: None }))
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
        let has_etags = self.has_etags();
        let updated = self.write(("update", context), &book, |row| match row {
            None => Err(BackendError::NotFound),
            Some(row) if has_etags && old.etag != Some(row.version.to_string()) => {
                Err(BackendError::Conflict)
            }
            Some(row) => {
                let (title, copies) = (book.spec.title.clone(), book.spec.copies);
                Ok(Some(Row { title, copies, ..row.clone() }))
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
        let has_etags = self.has_etags();
        self.write(("delete", context), &old.object, |row| match row {
            None => Err(BackendError::NotFound),
            Some(row) if has_etags && old.etag != Some(row.version.to_string()) => {
                Err(BackendError::Conflict)
            }
            Some(_) => Ok(None),
        })?;
        self.act(fault).await
    }
}
