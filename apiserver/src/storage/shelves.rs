//! Everything that a store of this process holds, and who follows it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::shares::Shares;
use super::{
    Collection, Commit, Expected, LogEntry, LogReader, NamespaceShare, Revision, StoreError,
    Versioned,
};
use crate::object::{Key, Object};

/// Collections, with the room that they take.
pub(super) struct Shelves {
    by_collection: HashMap<Collection, Shelf>,
    shares: Shares,
}

#[derive(Default)]
struct Shelf {
    objects: HashMap<Key, Versioned>,
    readers: Vec<Arc<dyn LogReader>>,
    /// Where something is kept that cannot be read.
    damaged: HashSet<Key>,
    /// What happened before the process began, for the first who follows.
    past: Option<Past>,
}

/// The recent past of a collection.
#[derive(Default)]
struct Past {
    /// What was there when it began.
    objects: HashMap<Key, Versioned>,
    /// What has changed since.
    changes: Vec<LogEntry>,
}

impl Shelves {
    /// Nothing, and room for so many bytes.
    pub fn new(limit: usize, share: NamespaceShare) -> Self {
        Self { by_collection: HashMap::new(), shares: Shares::new(limit, share) }
    }

    /// What is kept under a key.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(
        &self,
        collection: &Collection,
        key: &Key,
    ) -> Result<Option<&Versioned>, StoreError> {
        let Some(shelf) = self.by_collection.get(collection) else { return Ok(None) };
        if shelf.damaged.contains(key) {
            return Err(StoreError::Damaged);
        }
        Ok(shelf.objects.get(key))
    }

    /// Takes room for a write, where this is kept. It must be [given back](Self::give_back) if the
    /// write does not happen.
    ///
    /// # Errors
    /// When what is expected is not so, or there is no room.
    pub fn take_room(
        &mut self,
        commit: &Commit,
        kept: Option<&Versioned>,
    ) -> Result<(), StoreError> {
        match (commit.expected, kept) {
            (Expected::Absent, Some(_)) => return Err(StoreError::Exists),
            (Expected::At(_), None) => return Err(StoreError::Absent),
            (Expected::At(expected), Some(kept)) if kept.revision != expected => {
                return Err(StoreError::Changed { current: kept.revision });
            }
            _ => {}
        }
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        let namespace = commit.key.namespace();
        if !commit.marks {
            self.shares.check(namespace, old, new)?;
        }
        self.shares.replace(namespace, old, new);
        Ok(())
    }

    /// Gives back what a write has taken that does not happen, in the reverse order.
    pub fn give_back(&mut self, commit: &Commit, kept: Option<&Versioned>) {
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        self.shares.replace(commit.key.namespace(), new, old);
    }

    /// Keeps what has room, and tells everybody who follows.
    pub fn keep(&mut self, revision: Revision, commit: Commit) {
        let Commit { collection, key, object, .. } = commit;
        let shelf = self.by_collection.entry(collection).or_default();
        let before = shelf.put(revision, &key, object.as_ref());
        let entry = LogEntry { revision, key, before, object };
        if let Some(past) = &mut shelf.past {
            past.changes.push(entry.clone());
        }
        for reader in &shelf.readers {
            reader.append(entry.clone());
        }
    }

    /// Puts back what was kept before the process began; what is older than the past that followers
    /// are told of has no `history`.
    pub fn restore(
        &mut self,
        collection: &Collection,
        key: Key,
        (revision, object): (Revision, Option<Arc<Object>>),
        is_history: bool,
    ) {
        let shelf = self.by_collection.entry(collection.clone()).or_default();
        shelf.damaged.remove(&key);
        let before = shelf.put(revision, &key, object.as_ref());
        self.shares.replace(key.namespace(), size(before.as_ref()), size(object.as_ref()));
        let past = shelf.past.get_or_insert_default();
        match (is_history, object) {
            (true, object) => past.changes.push(LogEntry { revision, key, before, object }),
            (false, Some(object)) => drop(past.objects.insert(key, Versioned { revision, object })),
            (false, None) => drop(past.objects.remove(&key)),
        }
    }

    /// Marks what is kept under a key as damaged. The history begins after it, because watchers cannot be
    /// sent this change.
    pub fn restore_damaged(&mut self, collection: &Collection, key: Key) {
        let shelf = self.by_collection.entry(collection.clone()).or_default();
        let before = shelf.put(Revision::NONE, &key, None);
        self.shares.replace(key.namespace(), size(before.as_ref()), 0);
        shelf.damaged.insert(key);
        for shelf in self.by_collection.values_mut() {
            shelf.past = Some(Past { objects: shelf.objects.clone(), changes: Vec::new() });
        }
    }

    /// Hands over what a collection holds, and from then on every change. Who is the first is told
    /// what happened before the process began, after `oldest`.
    pub fn follow(
        &mut self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
        (oldest, current): (Revision, Revision),
    ) {
        let shelf = self.by_collection.entry(collection.clone()).or_default();
        shelf.damaged.iter().for_each(|key| reader.damage(key.clone()));
        match shelf.past.take() {
            Some(Past { objects, changes }) => {
                hand_over(&objects, &*reader);
                reader.begin(oldest);
                changes.into_iter().for_each(|change| reader.append(change));
            }
            None => {
                hand_over(&shelf.objects, &*reader);
                reader.begin(current);
            }
        }
        shelf.readers.push(reader);
    }

    /// Lets go of what happened before the process began and nobody has asked for.
    pub fn forget_past(&mut self) {
        self.by_collection.values_mut().for_each(|shelf| shelf.past = None);
    }
}

impl Shelf {
    /// Answers with what was there.
    fn put(
        &mut self,
        revision: Revision,
        key: &Key,
        object: Option<&Arc<Object>>,
    ) -> Option<Arc<Object>> {
        let before = match object {
            Some(object) => {
                let versioned = Versioned { revision, object: Arc::clone(object) };
                self.objects.insert(key.clone(), versioned)
            }
            None => self.objects.remove(key),
        };
        before.map(|before| before.object)
    }
}

fn hand_over(objects: &HashMap<Key, Versioned>, reader: &dyn LogReader) {
    let mut kept: Vec<_> = objects.iter().collect();
    kept.sort_by_key(|(_, versioned)| versioned.revision);
    for (key, Versioned { revision, object }) in kept {
        let (key, object) = (key.clone(), Some(Arc::clone(object)));
        reader.append(LogEntry { revision: *revision, key, before: None, object });
    }
}

fn size(object: Option<&Arc<Object>>) -> usize {
    object.map_or(0, |object| object.size())
}
