//! A store in memory: gone with the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::{
    Collection, Commit, Expected, LogEntry, LogReader, Revision, RevisionSequence, Store,
    StoreError, Versioned,
};
use crate::object::Key;

#[derive(Default)]
struct Shelf {
    objects: HashMap<Key, Versioned>,
    readers: Vec<Arc<dyn LogReader>>,
}

/// A store in memory: gone with the process.
pub struct MemoryStore {
    sequence: Arc<RevisionSequence>,
    shelves: Mutex<HashMap<Collection, Shelf>>,
}

impl MemoryStore {
    /// An empty store that takes its revisions from this sequence.
    pub fn new(sequence: Arc<RevisionSequence>) -> Self {
        Self { sequence, shelves: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Collection, Shelf>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.sequence.publish(|revision| {
            let mut shelves = self.lock();
            let shelf = shelves.entry(commit.collection).or_default();
            match (commit.expected, shelf.objects.get(&commit.key)) {
                (Expected::Absent, Some(_)) => return Err(StoreError::Exists),
                (Expected::At(_), None) => return Err(StoreError::Absent),
                (Expected::At(expected), Some(kept)) if kept.revision != expected => {
                    return Err(StoreError::Changed { current: kept.revision });
                }
                _ => {}
            }
            match &commit.object {
                Some(object) => {
                    let versioned = Versioned { revision, object: Arc::clone(object) };
                    shelf.objects.insert(commit.key.clone(), versioned);
                }
                None => {
                    shelf.objects.remove(&commit.key);
                }
            }
            let entry = LogEntry { revision, key: commit.key, object: commit.object };
            for reader in &shelf.readers {
                reader.append(entry.clone());
            }
            Ok(revision)
        })
    }
}

impl Store for MemoryStore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        let kept = self.lock().get(collection).and_then(|shelf| shelf.objects.get(key)).cloned();
        ready(Ok(kept)).boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        ready(self.write(commit)).boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let mut shelves = self.lock();
        let shelf = shelves.entry(collection.clone()).or_default();
        let mut kept: Vec<_> = shelf.objects.iter().collect();
        kept.sort_by_key(|(_, versioned)| versioned.revision);
        for (key, versioned) in kept {
            reader.append(LogEntry {
                revision: versioned.revision,
                key: key.clone(),
                object: Some(Arc::clone(&versioned.object)),
            });
        }
        shelf.readers.push(reader);
        ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;
    use jiff::Timestamp;

    #[tokio::test]
    async fn passes_the_suite() {
        suite::run(|| {
            let sequence = Arc::new(RevisionSequence::starting(Timestamp::now(), 7));
            Arc::new(MemoryStore::new(sequence))
        })
        .await;
    }
}
