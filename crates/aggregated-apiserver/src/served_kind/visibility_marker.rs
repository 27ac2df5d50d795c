//! The marker of a visibility state in a store: an object that is written after each change of the state, so that the
//! change has a revision.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use crate::kind::Kind;
use crate::log_throttle::LogThrottle;
use crate::object::{Key, Object, Tree};
use crate::storage::{
    Collection, Commit, LogEntry, LogReader, Precondition, Revision, Store, StoreError,
};

/// Throttles the log about markers that cannot be stored.
static UNSTORED: LogThrottle = LogThrottle::at_most(5);

/// The name of the object.
const NAME: &str = "state";
/// The end of the name of its collection.
const SUFFIX: &str = ":visibility";

/// The marker of the visibility states of one kind.
pub struct Marker {
    store: Arc<dyn Store>,
    kind: String,
    collection: Collection,
    /// The uid of the markers of this process.
    uid: String,
    /// The newest revision of the markers of other processes.
    foreign: watch::Sender<Revision>,
}

impl LogReader for Marker {
    fn append(&self, entry: LogEntry) {
        if entry.object.is_some_and(|object| object.uid() != self.uid) {
            self.foreign.send_replace(entry.revision);
        }
    }
}

impl Marker {
    /// The marker of a kind. Follows the markers of other processes.
    ///
    /// # Errors
    /// If the store cannot be followed.
    pub async fn open(
        store: &Arc<dyn Store>,
        kind: &Kind,
        uid: Uuid,
    ) -> Result<Arc<Self>, StoreError> {
        let collection = Collection::new(&format!("{}{SUFFIX}", kind.collection()));
        let marker = Arc::new(Self {
            store: Arc::clone(store),
            kind: kind.qualified(),
            collection: collection.clone(),
            uid: uid.to_string(),
            foreign: watch::Sender::new(Revision::NONE),
        });
        if store.is_shared() {
            store.follow(&collection, marker.clone()).await?;
        }
        Ok(marker)
    }

    /// Whether a collection has markers. They are of no use in another store.
    pub fn are_in(collection: &Collection) -> bool {
        collection.as_str().ends_with(SUFFIX)
    }

    /// Stores the marker, and returns its revision. Reads show that revision already.
    ///
    /// # Errors
    /// The error of the store.
    pub(super) async fn store(&self) -> Result<Revision, StoreError> {
        let key = Key::new(None, NAME);
        // The content differs each time, because a store may ignore a write without a change.
        let metadata = json!({"name": NAME, "uid": self.uid});
        let write = Uuid::new_v4().to_string();
        let tree = Tree::from_iter([
            ("metadata".to_owned(), metadata),
            ("write".to_owned(), write.into()),
        ]);
        let object = Object::from_tree(&tree).map_err(|_| StoreError::Failed)?;
        let object = Arc::new(object);
        loop {
            let known = self.store.get(&self.collection, &key).await?;
            let expected =
                known.map_or(Precondition::Absent, |known| Precondition::At(known.revision));
            let commit = Commit {
                collection: self.collection.clone(),
                key: key.clone(),
                expected,
                marks: true,
                object: Some(Arc::clone(&object)),
            };
            match self.store.commit(commit).await {
                Ok(revision) => {
                    self.store.sequencer().wait_until(revision).await;
                    return Ok(revision);
                }
                // Another process has stored its marker.
                Err(StoreError::Exists | StoreError::Absent | StoreError::Changed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the revision of a marker of another process that is newer than this revision. Waits until there is one.
    pub(super) async fn foreign(&self, known: Revision) -> Revision {
        let mut foreign = self.foreign.subscribe();
        // The sender lives as long as `self`.
        match foreign.wait_for(|revision| *revision > known).await {
            Ok(revision) => *revision,
            Err(_) => known,
        }
    }

    pub(super) fn log(&self, error: &StoreError) {
        UNSTORED.log(|suppressed| {
            let kind = &self.kind;
            tracing::error!(suppressed, kind, %error, "cannot store a change of visibility");
        });
    }
}
