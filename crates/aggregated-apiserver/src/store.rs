//! Bring your own store: where a server keeps its objects.
//!
//! A server keeps the objects of its [`Stored`](super::Stored) kinds in memory, in a folder (the
//! feature `sqlite`, `--data-dir`), in etcd (the feature `etcd`, `--etcd-servers`), or in whatever
//! implements [`Store`]: give it to [`ApiServer::with_store`](super::ApiServer::with_store). Everything
//! else stays as it is: lists, watches, selectors, conflicts and quotas do not know where objects are.
//!
//! # What a store must do
//!
//! - **Order.** Each write gets a [`Revision`], larger than all before it, over all collections. That is the
//!   `resourceVersion` that clients see. A number is never given twice, also by the next process.
//! - **Compare, and set.** A [`Commit`] happens if what it [expects](Expected) is so, and not otherwise. Of two
//!   that expect the same one wins.
//! - **Publish, then acknowledge.** Every reader that [follows](Store::follow) a collection is told of a write before
//!   the write is answered, in the order of revisions; then the [`Timeline`] has [reached](Timeline::reach) it. So a
//!   read that begins after an answer sees what was answered.
//! - **Say what is so.** [`StoreError::Unavailable`] means that nothing was written, and the client is told to
//!   try again. When that is not known, it is [`StoreError::Unknown`], and the client is told so. What is
//!   damaged is [`StoreError::Damaged`], never absent: a cluster collects what belongs to an object that is gone.
//!
//! Objects are in memory, whatever the store is: caches share them with it. [`Shelves`] hold them, tell
//! the readers that follow, hold commits against what is there, and count what namespaces take. What is left is to make
//! writes last, and to say where numbers come from: a [`Timeline`] that [continues](Timeline::continuing) where
//! the last process has stopped, or one that is [shared](Timeline::shared) by several.
//!
//! # A store in a file
//!
//! This one writes each change to the end of a file, and reads that when it starts.
//!
//! ```
//! use std::fs::{File, OpenOptions};
//! use std::io::{self, BufRead, BufReader, Write};
//! use std::path::Path;
//! use std::sync::{Arc, Mutex};
//!
//! use aggregated_apiserver::NamespaceShare;
//! use aggregated_apiserver::store::{
//!     Collection, Commit, Key, LogReader, Object, Revision, Shelves, Store, StoreError, Timeline,
//!     Versioned,
//! };
//! use futures::future::BoxFuture;
//!
//! struct FileStore {
//!     timeline: Arc<Timeline>,
//!     shelves: Mutex<Shelves>,
//!     /// Locked by each write, one after the other; none once one has failed, because then only the next
//!     /// process can say what is on the disk.
//!     file: Mutex<Option<File>>,
//! }
//!
//! /// A line: the revision, where, and the object, if it was not removed.
//! type Line = (u64, String, String, Option<Vec<u8>>);
//!
//! impl FileStore {
//!     fn open(path: &Path) -> io::Result<Self> {
//!         let mut shelves = Shelves::new(64 << 20, NamespaceShare::WHOLE);
//!         let mut newest = 0;
//!         let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
//!         for line in BufReader::new(&file).lines() {
//!             let (revision, collection, key, kept): Line = serde_json::from_str(&line?)?;
//!             let (collection, key) = (Collection::new(&collection), Key::of_text(&key));
//!             newest = revision;
//!             let read = kept.map(|kept| Object::from_kept(key.clone(), &kept)).transpose();
//!             match read {
//!                 Ok(object) => {
//!                     let object = object.map(Arc::new);
//!                     shelves.take(&collection, key, (Revision::new(revision), object));
//!                 }
//!                 // Never taken for gone.
//!                 Err(_) => {
//!                     shelves.take_damaged(&collection, key, Revision::new(revision));
//!                 }
//!             }
//!         }
//!         // All revisions up to now were given by this store, and the next one comes after them.
//!         let timeline = Arc::new(Timeline::continuing(vec![1..=newest], newest + 1));
//!         // Watches of before begin anew: what happened before is not told.
//!         shelves.begin_past(timeline.current());
//!         Ok(Self { timeline, shelves: Mutex::new(shelves), file: Mutex::new(Some(file)) })
//!     }
//!
//!     fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
//!         let mut locked = self.file.lock().map_err(|_| StoreError::Failed)?;
//!         let file = locked.as_mut().ok_or(StoreError::Failed)?;
//!         let revision = self.timeline.after(self.timeline.current());
//!         let before = {
//!             let mut shelves = self.shelves.lock().map_err(|_| StoreError::Failed)?;
//!             let before = shelves.get(&commit.collection, &commit.key)?.cloned();
//!             shelves.take_room(&commit, before.as_ref())?;
//!             before
//!         };
//!         // Others read meanwhile what was there before.
//!         let kept = commit.object.as_ref().map(|object| object.to_kept());
//!         let (collection, key) = (commit.collection.to_string(), commit.key.to_string());
//!         let line = serde_json::to_string(&(revision.number(), collection, key, kept));
//!         let written = line.map_err(io::Error::from).and_then(|line| {
//!             writeln!(file, "{line}")?;
//!             file.sync_data()
//!         });
//!         let mut shelves = self.shelves.lock().map_err(|_| StoreError::Unknown)?;
//!         if written.is_err() {
//!             *locked = None;
//!             shelves.give_back(&commit, before.as_ref());
//!             return Err(StoreError::Unknown);
//!         }
//!         shelves.keep(revision, commit);
//!         self.timeline.reach(revision);
//!         Ok(revision)
//!     }
//! }
//!
//! impl Store for FileStore {
//!     fn get<'a>(
//!         &'a self,
//!         collection: &'a Collection,
//!         key: &'a Key,
//!     ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
//!         Box::pin(async {
//!             let shelves = self.shelves.lock().map_err(|_| StoreError::Failed)?;
//!             Ok(shelves.get(collection, key)?.cloned())
//!         })
//!     }
//!
//!     fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
//!         // One for many clients writes on a thread of its own, several changes at a time.
//!         Box::pin(async { tokio::task::block_in_place(|| self.write(commit)) })
//!     }
//!
//!     fn follow(
//!         &self,
//!         collection: &Collection,
//!         reader: Arc<dyn LogReader>,
//!     ) -> BoxFuture<'_, Result<(), StoreError>> {
//!         let followed = self.shelves.lock().map_err(|_| StoreError::Failed);
//!         let followed = followed.map(|mut shelves| shelves.follow(collection, reader));
//!         Box::pin(async move { followed })
//!     }
//!
//!     fn collections(&self) -> Vec<Collection> {
//!         self.shelves.lock().map(|shelves| shelves.collections()).unwrap_or_default()
//!     }
//!
//!     fn timeline(&self) -> Arc<Timeline> {
//!         Arc::clone(&self.timeline)
//!     }
//!
//!     fn outlives_process(&self) -> bool {
//!         true
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! # let folder = tempfile::tempdir().unwrap();
//! # let number = std::sync::atomic::AtomicUsize::new(0);
//! # let next = || folder.path().join(number.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
//! // It must do all that the others do.
//! aggregated_apiserver::store::suite::run(async || {
//!     Arc::new(FileStore::open(&next()).unwrap())
//! })
//! .await;
//! # let path = next();
//! # use aggregated_apiserver::store::Expected;
//! # let tree = serde_json::json!({"metadata": {"name": "a", "uid": "u"}});
//! # let object = Some(Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap()));
//! # let (collection, key) = (Collection::new("foos.example.com"), Key::new(None, "a"));
//! # let commit = Commit { collection: collection.clone(), key: key.clone(), expected: Expected::Absent, object, marks: false };
//! # let revision = FileStore::open(&path).unwrap().commit(commit).await.unwrap();
//! # let again = FileStore::open(&path).unwrap();
//! # let kept = again.get(&collection, &key).await.unwrap().unwrap();
//! # assert_eq!((kept.revision, kept.object.uid()), (revision, "u"));
//! # assert!(again.timeline().current() > revision);
//! # }
//! ```
//!
//! After a crash in the middle of a write this one does not start, and what was replaced stays for ever. The
//! store in a folder does better.

pub use crate::object::{Key, Object, ObjectError};
pub use crate::storage::{
    Collection, Commit, Expected, LogEntry, LogReader, Revision, Shelves, Store, StoreError,
    Timeline, Versioned, suite,
};
