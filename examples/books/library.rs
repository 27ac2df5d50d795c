//! The kind `Book`, and a stream of the changes of Books.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;

use futures::{Stream, StreamExt, stream};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::program::cause;

/// A book.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.technosophos.com",
    version = "v1",
    kind = "Book",
    namespaced,
    printcolumn(name = "Title", type_ = "string", json_path = ".spec.title")
)]
pub struct BookSpec {
    /// The title.
    pub title: String,
    /// The names of its authors.
    #[serde(default)]
    pub authors: Vec<String>,
}

/// A book that was added or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Added { name: String, title: String },
    Deleted { name: String },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { name, title } => write!(f, "Added a book {name} with title '{title}'"),
            Self::Deleted { name } => write!(f, "Deleted a book {name}"),
        }
    }
}

/// Streams every existing book and every later change. Each change is reported once, even if the watch connection
/// breaks.
pub fn changes(books: Api<Book>) -> impl Stream<Item = Change> {
    let mut library = Library::default();
    let events = watcher(books, Config::default()).default_backoff();
    events.flat_map(move |event| stream::iter(library.take(event)))
}

/// The reported books, and those of a list that is in progress. Names and titles are stored by uid, because another
/// book can later have the same name.
#[derive(Default)]
struct Library {
    told: BTreeMap<String, (String, String)>,
    listed: BTreeMap<String, (String, String)>,
}

impl Library {
    fn take(&mut self, event: watcher::Result<Event<Book>>) -> Vec<Change> {
        match event {
            Ok(Event::Init) => self.listed.clear(),
            Ok(Event::InitApply(book)) => {
                self.listed.insert(book.uid().unwrap_or_default(), entry(book));
            }
            Ok(Event::InitDone) => return self.compare(),
            Ok(Event::Apply(book)) => {
                let uid = book.uid().unwrap_or_default();
                let (name, title) = entry(book);
                if self.told.insert(uid, (name.clone(), title.clone())).is_none() {
                    return vec![Change::Added { name, title }];
                }
            }
            Ok(Event::Delete(book)) => {
                let gone = self.told.remove(&book.uid().unwrap_or_default());
                return gone.map(|(name, _)| Change::Deleted { name }).into_iter().collect();
            }
            Err(error) => warn!("the watch goes on after a pause: {}", cause(&error)),
        }
        Vec::new()
    }

    /// The changes that happened while there was no watch: the difference between the previous state and a new list.
    fn compare(&mut self) -> Vec<Change> {
        let before = mem::replace(&mut self.told, mem::take(&mut self.listed));
        let gone = before.iter().filter(|(uid, _)| !self.told.contains_key(*uid));
        let gone = gone.map(|(_, (name, _))| Change::Deleted { name: name.clone() });
        let new = self.told.iter().filter(|(uid, _)| !before.contains_key(*uid));
        let new = new.map(|(_, (name, title))| (name.clone(), title.clone()));
        gone.chain(new.map(|(name, title)| Change::Added { name, title })).collect()
    }
}

fn entry(book: Book) -> (String, String) {
    (book.name_any(), book.spec.title)
}
