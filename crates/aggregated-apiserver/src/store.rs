//! The interface of stores, and how to implement a store of your own.
//!
//! A server stores the objects of its [`Stored`](super::Stored) kinds in memory, in a directory (the feature `sqlite`,
//! `--data-dir`), in etcd (the feature `etcd`, `--etcd-servers`), or in any other implementation of [`Store`], which
//! [`ApiServer::with_store`](super::ApiServer::with_store) sets. Lists, watches, selectors, conflicts and quotas do not
//! depend on the store.
//!
//! # What a store must do
//!
//! - **Order.** Each write gets a [`Revision`] that is larger than all earlier ones, over all collections. Clients see
//!   the revision as `resourceVersion`. A revision is never reused, not even by the next process.
//! - **Compare and set.** A [`Commit`] is written only if its [precondition](Precondition) holds. Of two commits with the
//!   same precondition, one succeeds.
//! - **Publish, then acknowledge.** Every reader that [follows](Store::follow) a collection is notified of a write
//!   before the write is acknowledged, in the order of revisions. Then the [`RevisionSequencer`] [reaches](RevisionSequencer::reach) the
//!   revision. A read that starts after an acknowledgement therefore sees the write.
//! - **Report the outcome.** [`StoreError::Unavailable`] means that nothing was written; the client is asked to retry.
//!   [`StoreError::Unknown`] means that the outcome is not known; the client is informed of that. A damaged object is
//!   reported as [`StoreError::Damaged`], never as absent, because the garbage collector deletes the dependents of an
//!   absent object.
//!
//! With any store, the objects are in memory, because the caches share them with the store. [`ObjectIndex`] contain the
//! objects, notify the readers that follow a collection, check the preconditions of commits, and sum the sizes of
//! namespaces. An implementation only needs to make writes durable, and to supply revisions: a [`RevisionSequencer`] that
//! [continues](RevisionSequencer::continuing) after the last revision of the previous process, or one that several processes
//! [share](RevisionSequencer::shared).
//!
//! # A store in a file
//!
//! This store appends each change to a file, and reads the file when it starts.
//!
//! ```
//! use std::fs::{File, OpenOptions};
//! use std::io::{self, BufRead, BufReader, Write};
//! use std::path::Path;
//! use std::sync::{Arc, Mutex};
//!
//! use aggregated_apiserver::store::NamespaceLimit;
//! use aggregated_apiserver::store::{
//!     Collection, Commit, Key, LogReader, Object, Revision, ObjectIndex, Store, StoreError, RevisionSequencer,
//!     Versioned,
//! };
//! use futures::future::BoxFuture;
//!
//! struct FileStore {
//!     sequencer: Arc<RevisionSequencer>,
//!     object_index: Mutex<ObjectIndex>,
//!     /// Locked by each write, so that writes are sequential. `None` after a failed write, because only the next
//!     /// process can read what is on the disk.
//!     file: Mutex<Option<File>>,
//! }
//!
//! /// A line of the file: the revision, the collection, the key, and the object unless it was deleted.
//! type Line = (u64, String, String, Option<Vec<u8>>);
//!
//! impl FileStore {
//!     fn open(path: &Path) -> io::Result<Self> {
//!         let mut object_index = ObjectIndex::new(64 << 20, NamespaceLimit::WHOLE);
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
//!                     object_index.take(&collection, key, (Revision::new(revision), object));
//!                 }
//!                 // A damaged object must not be treated as deleted.
//!                 Err(_) => {
//!                     object_index.take_damaged(&collection, key, Revision::new(revision));
//!                 }
//!             }
//!         }
//!         // This store issued all revisions up to `newest`, and the next revision follows them.
//!         let sequencer = Arc::new(RevisionSequencer::continuing(vec![1..=newest], newest + 1));
//!         // Watches from before the restart must relist, because earlier changes are not replayed.
//!         object_index.begin_past(sequencer.current());
//!         Ok(Self { sequencer, object_index: Mutex::new(object_index), file: Mutex::new(Some(file)) })
//!     }
//!
//!     fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
//!         let mut locked = self.file.lock().map_err(|_| StoreError::Failed)?;
//!         let file = locked.as_mut().ok_or(StoreError::Failed)?;
//!         let revision = self.sequencer.after(self.sequencer.current());
//!         let before = {
//!             let mut object_index = self.object_index.lock().map_err(|_| StoreError::Failed)?;
//!             let before = object_index.get(&commit.collection, &commit.key)?.cloned();
//!             object_index.take_room(&commit, before.as_ref())?;
//!             before
//!         };
//!         // During the write to the file, other requests read the previous object.
//!         let kept = commit.object.as_ref().map(|object| object.to_kept());
//!         let (collection, key) = (commit.collection.to_string(), commit.key.to_string());
//!         let line = serde_json::to_string(&(revision.number(), collection, key, kept));
//!         let written = line.map_err(io::Error::from).and_then(|line| {
//!             writeln!(file, "{line}")?;
//!             file.sync_data()
//!         });
//!         let mut object_index = self.object_index.lock().map_err(|_| StoreError::Unknown)?;
//!         if written.is_err() {
//!             *locked = None;
//!             object_index.give_back(&commit, before.as_ref());
//!             return Err(StoreError::Unknown);
//!         }
//!         object_index.keep(revision, commit);
//!         self.sequencer.reach(revision);
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
//!             let object_index = self.object_index.lock().map_err(|_| StoreError::Failed)?;
//!             Ok(object_index.get(collection, key)?.cloned())
//!         })
//!     }
//!
//!     fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
//!         // A store for many clients would use its own thread and write several changes at a time.
//!         Box::pin(async { tokio::task::block_in_place(|| self.write(commit)) })
//!     }
//!
//!     fn follow(
//!         &self,
//!         collection: &Collection,
//!         reader: Arc<dyn LogReader>,
//!     ) -> BoxFuture<'_, Result<(), StoreError>> {
//!         let followed = self.object_index.lock().map_err(|_| StoreError::Failed);
//!         let followed = followed.map(|mut object_index| object_index.follow(collection, reader));
//!         Box::pin(async move { followed })
//!     }
//!
//!     fn collections(&self) -> Vec<Collection> {
//!         self.object_index.lock().map(|object_index| object_index.collections()).unwrap_or_default()
//!     }
//!
//!     fn sequencer(&self) -> Arc<RevisionSequencer> {
//!         Arc::clone(&self.sequencer)
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
//! // The test suite that every store must pass.
//! aggregated_apiserver::store::suite::run(async || {
//!     Arc::new(FileStore::open(&next()).unwrap())
//! })
//! .await;
//! # let path = next();
//! # use aggregated_apiserver::store::Precondition;
//! # let tree = serde_json::json!({"metadata": {"name": "a", "uid": "u"}});
//! # let object = Some(Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap()));
//! # let (collection, key) = (Collection::new("foos.example.com"), Key::new(None, "a"));
//! # let commit = Commit { collection: collection.clone(), key: key.clone(), expected: Precondition::Absent, object, marks: false };
//! # let revision = FileStore::open(&path).unwrap().commit(commit).await.unwrap();
//! # let again = FileStore::open(&path).unwrap();
//! # let kept = again.get(&collection, &key).await.unwrap().unwrap();
//! # assert_eq!((kept.revision, kept.object.uid()), (revision, "u"));
//! # assert!(again.sequencer().current() > revision);
//! # }
//! ```
//!
//! After a crash in the middle of a write, this store does not start again. It also never removes replaced objects from
//! the file. The store in a directory has neither problem.

pub use crate::object::{Key, Object, ObjectError};
pub use crate::storage::{
    Collection, Commit, LogEntry, LogReader, NamespaceLimit, ObjectIndex, Precondition, Revision,
    RevisionSequencer, Store, StoreError, Versioned, suite,
};
