//! Everything that a store of this process holds, and who follows it.

use std::collections::HashMap;
use std::sync::Arc;

use super::shares::Shares;
use super::{
    Collection, Commit, Expected, LogEntry, LogReader, NamespaceShare, Revision, StoreError,
    Versioned,
};
use crate::object::{Key, Object};

/// Collections, with the room that they take.
pub struct Shelves {
    by_collection: HashMap<Collection, Shelf>,
    shares: Shares,
    /// Where the past begins that whoever follows first is told.
    past_begins: Option<Revision>,
}

#[derive(Default)]
struct Shelf {
    objects: HashMap<Key, Versioned>,
    readers: Vec<Arc<dyn LogReader>>,
    /// Where something is kept that cannot be read, and since which revision.
    damaged: HashMap<Key, Revision>,
    /// The recent past, for the first who follows.
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
        Self { by_collection: HashMap::new(), shares: Shares::new(limit, share), past_begins: None }
    }

    /// The bytes that are taken, and how many there are.
    pub fn extent(&self) -> (usize, usize) {
        self.shares.extent()
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
        if shelf.damaged.contains_key(key) {
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
        self.check_room(commit, kept)?;
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        self.shares.replace(commit.key.namespace(), old, new);
        Ok(())
    }

    /// Whether there is room for a write, where this is kept.
    ///
    /// # Errors
    /// When there is none.
    pub fn check_room(&self, commit: &Commit, kept: Option<&Versioned>) -> Result<(), StoreError> {
        if commit.makes_room() {
            return Ok(());
        }
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        self.shares.check(commit.key.namespace(), old, new)
    }

    /// Gives back what a write has taken that does not happen, in the reverse order.
    pub fn give_back(&mut self, commit: &Commit, kept: Option<&Versioned>) {
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        self.shares.replace(commit.key.namespace(), new, old);
    }

    /// Keeps what has room, and tells everybody who follows. Answers with the revision of what it
    /// replaces.
    pub fn keep(&mut self, revision: Revision, commit: Commit) -> Option<Revision> {
        let Commit { collection, key, object, .. } = commit;
        let shelf = shelf(&mut self.by_collection, self.past_begins, &collection);
        let (replaced, before) = apart(shelf.put(revision, &key, object.as_ref()));
        shelf.tell(LogEntry { revision, key, before, object });
        replaced
    }

    /// Takes what was written by another process, whatever room there is, and tells everybody who
    /// follows. Answers with the revision of what it replaces.
    pub fn take(
        &mut self,
        collection: &Collection,
        key: Key,
        (revision, object): (Revision, Option<Arc<Object>>),
    ) -> Option<Revision> {
        let shelf = shelf(&mut self.by_collection, self.past_begins, collection);
        let kept = shelf.objects.get(&key);
        if object.is_some() && kept.is_some_and(|kept| kept.revision == revision) {
            // It is known already.
            return None;
        }
        let damaged_since = shelf.damaged.remove(&key);
        let (replaced, before) = apart(shelf.put(revision, &key, object.as_ref()));
        let replaced = replaced.or(damaged_since);
        if replaced.is_none() && object.is_none() {
            return None;
        }
        self.shares.replace(key.namespace(), size(before.as_ref()), size(object.as_ref()));
        shelf.tell(LogEntry { revision, key, before, object });
        replaced
    }

    /// Marks what is kept under a key as damaged, since this revision. Watchers cannot be sent this change:
    /// the history of the collection begins after it. Answers with the revision of what it replaces.
    pub fn take_damaged(
        &mut self,
        collection: &Collection,
        key: Key,
        revision: Revision,
    ) -> Option<Revision> {
        let shelf = shelf(&mut self.by_collection, self.past_begins, collection);
        let (replaced, before) = apart(shelf.put(Revision::NONE, &key, None));
        self.shares.replace(key.namespace(), size(before.as_ref()), 0);
        shelf.past = None;
        for reader in &shelf.readers {
            reader.damage(key.clone());
            reader.begin(revision);
        }
        shelf.damaged.insert(key, revision).or(replaced)
    }

    /// Says that what is here now was there at a revision, and that every change since will be told.
    /// Who follows first is told them all, until they are [forgotten](Self::forget_past).
    pub fn begin_past(&mut self, oldest: Revision) {
        self.past_begins = Some(oldest);
        for shelf in self.by_collection.values_mut() {
            shelf.readers.iter().for_each(|reader| reader.begin(oldest));
            let is_followed = !shelf.readers.is_empty();
            shelf.past = (!is_followed)
                .then(|| Past { objects: shelf.objects.clone(), changes: Vec::new() });
        }
    }

    /// Every collection of which something is kept.
    pub fn collections(&self) -> Vec<Collection> {
        let filled = self
            .by_collection
            .iter()
            .filter(|(_, shelf)| !shelf.objects.is_empty() || !shelf.damaged.is_empty());
        filled.map(|(collection, _)| collection.clone()).collect()
    }

    /// The keys of all that is kept.
    pub fn keys(&self) -> impl Iterator<Item = (&Collection, &Key)> {
        self.by_collection.iter().flat_map(|(collection, shelf)| {
            let keys = shelf.objects.keys().chain(shelf.damaged.keys());
            keys.map(move |key| (collection, key))
        })
    }

    /// Hands over what a collection holds, and from then on every change. Who is the first is told
    /// what happened since the past began.
    pub fn follow(&mut self, collection: &Collection, reader: Arc<dyn LogReader>) {
        let shelf = shelf(&mut self.by_collection, self.past_begins, collection);
        shelf.damaged.keys().for_each(|key| reader.damage(key.clone()));
        match (shelf.past.take(), self.past_begins) {
            (Some(Past { objects, changes }), Some(oldest)) => {
                hand_over(&objects, &*reader);
                reader.begin(oldest);
                changes.into_iter().for_each(|change| reader.append(change));
            }
            _ => hand_over(&shelf.objects, &*reader),
        }
        shelf.readers.push(reader);
    }

    /// Lets go of what happened before anybody has asked for it.
    pub fn forget_past(&mut self) {
        self.past_begins = None;
        self.by_collection.values_mut().for_each(|shelf| shelf.past = None);
    }
}

/// The shelf of a collection. A new one has the past of all: nothing was there.
fn shelf<'a>(
    by_collection: &'a mut HashMap<Collection, Shelf>,
    past_begins: Option<Revision>,
    collection: &Collection,
) -> &'a mut Shelf {
    by_collection.entry(collection.clone()).or_insert_with(|| {
        let past = past_begins.map(|_| Past::default());
        Shelf { past, ..Shelf::default() }
    })
}

impl Shelf {
    /// Tells everybody who follows, and who will follow first.
    fn tell(&mut self, entry: LogEntry) {
        if let Some(past) = &mut self.past {
            past.changes.push(entry.clone());
        }
        for reader in &self.readers {
            reader.append(entry.clone());
        }
    }

    /// Answers with what was there.
    fn put(
        &mut self,
        revision: Revision,
        key: &Key,
        object: Option<&Arc<Object>>,
    ) -> Option<Versioned> {
        match object {
            Some(object) => {
                let versioned = Versioned { revision, object: Arc::clone(object) };
                self.objects.insert(key.clone(), versioned)
            }
            None => self.objects.remove(key),
        }
    }
}

/// The revision of what was kept, and the object.
fn apart(kept: Option<Versioned>) -> (Option<Revision>, Option<Arc<Object>>) {
    kept.map(|kept| (kept.revision, kept.object)).unzip()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_taken_says_what_it_replaces() {
        let mut shelves = Shelves::new(1 << 20, NamespaceShare::WHOLE);
        let (collection, key) = (Collection::new("foos.example.com"), Key::of_text("a"));
        let tree = json!({"metadata": {"name": "a", "uid": "u"}});
        let object = Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap());
        let mut number = 0;
        let mut check = |is_damaged: bool, object: Option<&Arc<Object>>, expected: Option<u64>| {
            number += 1;
            let revision = Revision::new(number);
            let replaced = match is_damaged {
                true => shelves.take_damaged(&collection, key.clone(), revision),
                false => shelves.take(&collection, key.clone(), (revision, object.cloned())),
            };
            assert_eq!(replaced, expected.map(Revision::new), "at {number}");
        };
        check(false, None, None);
        check(false, Some(&object), None);
        check(false, Some(&object), Some(2));
        check(true, None, Some(3));
        check(true, None, Some(4));
        check(false, Some(&object), Some(5));
        check(true, None, Some(6));
        check(false, None, Some(7));
        check(false, None, None);
        let object = Some(object);
        let commit = |object: &Option<Arc<Object>>, expected| Commit {
            collection: collection.clone(),
            key: key.clone(),
            expected,
            object: object.clone(),
            marks: false,
        };
        let keep =
            |shelves: &mut Shelves, number, commit| shelves.keep(Revision::new(number), commit);
        assert_eq!(keep(&mut shelves, 10, commit(&object, Expected::Absent)), None);
        let at = Revision::new(10);
        assert_eq!(keep(&mut shelves, 11, commit(&object, Expected::At(at))), Some(at));
        let at = Revision::new(11);
        assert_eq!(keep(&mut shelves, 12, commit(&None, Expected::At(at))), Some(at));
    }
}
