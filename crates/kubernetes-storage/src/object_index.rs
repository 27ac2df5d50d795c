//! The objects of a store in memory, their readers, and the recent history for the first reader of a collection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::namespace_usage::NamespaceUsage;
use super::{
    Collection, Commit, LogEntry, LogReader, NamespaceLimit, Precondition, Revision, StoreError,
    Versioned,
};
use crate::object::{Key, Object};

/// The default limit of replaced and removed objects that are held for the first reader of a collection, in bytes.
const PAST_LIMIT: usize = 16 << 20;
/// The memory of a change besides its objects, in bytes.
const CHANGE: usize = 200;

/// All collections of a store, and the memory that they use.
pub struct ObjectIndex {
    by_collection: HashMap<Collection, CollectionIndex>,
    shares: NamespaceUsage,
    /// The revision at which the history begins that the first reader of a collection receives.
    past_begins: Option<Revision>,
    past_bytes: usize,
    past_limit: usize,
}

#[derive(Default)]
struct CollectionIndex {
    objects: HashMap<Key, Versioned>,
    readers: Vec<Arc<dyn LogReader>>,
    /// Keys whose objects cannot be read, with the revision since which they cannot.
    damaged: HashMap<Key, Revision>,
    /// The recent history, for the first reader.
    past: Option<Past>,
}

/// The recent history of a collection. Undoing its changes turns the current objects into those at the beginning of the
/// history.
struct Past {
    begins: Revision,
    changes: VecDeque<Change>,
    bytes: usize,
}

struct Change {
    revision: Revision,
    key: Key,
    before: Option<Versioned>,
    after: Option<Arc<Object>>,
}

impl Past {
    fn since(begins: Revision) -> Self {
        Self { begins, changes: VecDeque::new(), bytes: 0 }
    }

    /// The objects that have changed since the beginning, in their state at the beginning.
    fn earlier(&self) -> HashMap<&Key, Option<&Versioned>> {
        let mut earlier = HashMap::new();
        for change in &self.changes {
            earlier.entry(&change.key).or_insert(change.before.as_ref());
        }
        earlier
    }
}

impl Change {
    /// The memory that only this change uses, in bytes. The object after the change is not counted, because it is the
    /// current object, or the earlier object of a later change.
    fn size(&self) -> usize {
        CHANGE + size(self.before.as_ref().map(|before| &before.object))
    }
}

impl ObjectIndex {
    /// Creates an index without objects, with a limit in bytes.
    pub fn new(limit: usize, share: NamespaceLimit) -> Self {
        Self {
            by_collection: HashMap::new(),
            shares: NamespaceUsage::new(limit, share),
            past_begins: None,
            past_bytes: 0,
            past_limit: PAST_LIMIT,
        }
    }

    /// Sets the limit of replaced and removed objects that are held for first readers, in bytes.
    #[must_use]
    pub fn with_past_limit(self, past_limit: usize) -> Self {
        Self { past_limit, ..self }
    }

    /// The used bytes and the limit, in bytes.
    pub fn extent(&self) -> (usize, usize) {
        self.shares.extent()
    }

    /// Returns the object under a key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the object cannot be read.
    pub fn get(
        &self,
        collection: &Collection,
        key: &Key,
    ) -> Result<Option<&Versioned>, StoreError> {
        let Some(collection_index) = self.by_collection.get(collection) else { return Ok(None) };
        if collection_index.damaged.contains_key(key) {
            return Err(StoreError::Damaged);
        }
        Ok(collection_index.objects.get(key))
    }

    /// Reserves memory for a write that replaces the object `kept`. If the write does not happen, the memory must be
    /// [released](Self::give_back).
    ///
    /// # Errors
    /// If the precondition does not hold, or a limit would be exceeded.
    pub fn take_room(
        &mut self,
        commit: &Commit,
        kept: Option<&Versioned>,
    ) -> Result<(), StoreError> {
        commit.expected.check(kept)?;
        self.check_room(commit, kept)?;
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        self.shares.replace(commit.key.namespace(), old, new);
        Ok(())
    }

    /// Checks that the limits have capacity for a write that replaces the object `kept`.
    ///
    /// # Errors
    /// If a limit would be exceeded.
    pub fn check_room(&self, commit: &Commit, kept: Option<&Versioned>) -> Result<(), StoreError> {
        if commit.makes_room() {
            return Ok(());
        }
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        self.shares.check(commit.key.namespace(), old, new)
    }

    /// Releases the memory that was reserved for a write that does not happen. Several writes are released in the
    /// reverse order of their reservations.
    pub fn give_back(&mut self, commit: &Commit, kept: Option<&Versioned>) {
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        self.shares.replace(commit.key.namespace(), new, old);
    }

    /// Reserves the bytes by which a write makes the object `kept` grow, in a store that other processes write to, too.
    /// Returns these bytes. They must be [released](Self::release) once this process receives the write, or the write
    /// has failed.
    ///
    /// # Errors
    /// If a limit would be exceeded.
    #[cfg(feature = "etcd")]
    pub(super) fn reserve(
        &mut self,
        commit: &Commit,
        kept: Option<&Versioned>,
    ) -> Result<usize, StoreError> {
        self.check_room(commit, kept)?;
        let (old, new) = (size(kept.map(|kept| &kept.object)), size(commit.object.as_ref()));
        let growth = new.saturating_sub(old);
        self.shares.replace(commit.key.namespace(), 0, growth);
        Ok(growth)
    }

    /// Releases reserved bytes of a namespace.
    #[cfg(feature = "etcd")]
    pub(super) fn release(&mut self, namespace: Option<&str>, bytes: usize) {
        self.shares.replace(namespace, bytes, 0);
    }

    /// Stores the object of a write whose memory is reserved, and sends the change to all readers. Returns the revision
    /// of the replaced object.
    pub fn keep(&mut self, revision: Revision, commit: Commit) -> Option<Revision> {
        let Commit { collection, key, object, .. } = commit;
        let collection_index =
            collection_index(&mut self.by_collection, self.past_begins, &collection);
        let before = collection_index.put(revision, &key, object.as_ref());
        let replaced = before.as_ref().map(|before| before.revision);
        self.tell(&collection, Change { revision, key, before, after: object });
        replaced
    }

    /// Stores an object that another process has written, regardless of limits, and sends the change to all readers.
    /// Returns the revision of the replaced object.
    pub fn take(
        &mut self,
        collection: &Collection,
        key: Key,
        (revision, object): (Revision, Option<Arc<Object>>),
    ) -> Option<Revision> {
        let collection_index =
            collection_index(&mut self.by_collection, self.past_begins, collection);
        let kept = collection_index.objects.get(&key);
        if object.is_some() && kept.is_some_and(|kept| kept.revision == revision) {
            // This revision of the object is stored already.
            return None;
        }
        let damaged_since = collection_index.damaged.remove(&key);
        let before = collection_index.put(revision, &key, object.as_ref());
        let replaced = before.as_ref().map(|before| before.revision).or(damaged_since);
        if replaced.is_none() && object.is_none() {
            return None;
        }
        let old = size(before.as_ref().map(|before| &before.object));
        self.shares.replace(key.namespace(), old, size(object.as_ref()));
        self.tell(collection, Change { revision, key, before, after: object });
        replaced
    }

    /// Marks the object under a key as damaged since this revision. The change cannot be sent to watchers, so the
    /// history of the collection begins after it. Returns the revision of the replaced object.
    pub fn take_damaged(
        &mut self,
        collection: &Collection,
        key: Key,
        revision: Revision,
    ) -> Option<Revision> {
        let collection_index =
            collection_index(&mut self.by_collection, self.past_begins, collection);
        let before = collection_index.put(Revision::NONE, &key, None);
        let old = size(before.as_ref().map(|before| &before.object));
        self.shares.replace(key.namespace(), old, 0);
        self.past_bytes -= collection_index.past.take().map_or(0, |past| past.bytes);
        for reader in &collection_index.readers {
            reader.damage(key.clone());
            reader.begin(revision);
        }
        let replaced = before.map(|before| before.revision);
        collection_index.damaged.insert(key, revision).or(replaced)
    }

    /// Declares that the current objects are the state at a revision, and that every later change will be sent. The
    /// first reader of a collection receives all of these changes, until they are [discarded](Self::forget_past) or
    /// exceed their limit.
    pub fn begin_past(&mut self, oldest: Revision) {
        self.past_begins = Some(oldest);
        self.past_bytes = 0;
        for collection_index in self.by_collection.values_mut() {
            collection_index.readers.iter().for_each(|reader| reader.begin(oldest));
            let is_followed = !collection_index.readers.is_empty();
            collection_index.past = (!is_followed).then(|| Past::since(oldest));
        }
    }

    /// The collections that have stored objects.
    pub fn collections(&self) -> Vec<Collection> {
        let filled = self.by_collection.iter().filter(|(_, collection_index)| {
            !collection_index.objects.is_empty() || !collection_index.damaged.is_empty()
        });
        filled.map(|(collection, _)| collection.clone()).collect()
    }

    /// The keys of all stored objects, including damaged ones.
    pub fn keys(&self) -> impl Iterator<Item = (&Collection, &Key)> {
        self.by_collection.iter().flat_map(|(collection, collection_index)| {
            let keys = collection_index.objects.keys().chain(collection_index.damaged.keys());
            keys.map(move |key| (collection, key))
        })
    }

    /// Sends the objects of a collection to the reader, and then every change. The first reader also receives the
    /// changes since the history began.
    pub fn follow(&mut self, collection: &Collection, reader: Arc<dyn LogReader>) {
        let collection_index =
            collection_index(&mut self.by_collection, self.past_begins, collection);
        collection_index.damaged.keys().for_each(|key| reader.damage(key.clone()));
        match collection_index.past.take() {
            Some(past) => {
                self.past_bytes -= past.bytes;
                let earlier = past.earlier();
                let same =
                    collection_index.objects.iter().filter(|(key, _)| !earlier.contains_key(*key));
                let others = earlier.iter().filter_map(|(key, kept)| kept.map(|kept| (*key, kept)));
                hand_over(same.chain(others).collect(), &*reader);
                reader.begin(past.begins);
                past.changes.into_iter().for_each(|change| reader.append(change.into()));
            }
            None => hand_over(collection_index.objects.iter().collect(), &*reader),
        }
        collection_index.readers.push(reader);
    }

    /// Stops sending changes of a collection to this reader.
    pub fn leave(&mut self, collection: &Collection, reader: &Arc<dyn LogReader>) {
        let Some(collection_index) = self.by_collection.get_mut(collection) else { return };
        collection_index.readers.retain(|other| !Arc::ptr_eq(other, reader));
        let is_empty = collection_index.objects.is_empty() && collection_index.damaged.is_empty();
        // While the history since the start is held, a new `CollectionIndex` would claim that the collection was empty then.
        let is_forgettable = collection_index.past.is_none() && self.past_begins.is_none();
        if is_empty && collection_index.readers.is_empty() && is_forgettable {
            self.by_collection.remove(collection);
        }
    }

    /// Discards the history that is held for first readers.
    pub fn forget_past(&mut self) {
        self.past_begins = None;
        self.past_bytes = 0;
        self.by_collection.values_mut().for_each(|collection_index| collection_index.past = None);
    }

    /// Sends a change to all readers. If the collection has had no reader yet, the change is also held for the first
    /// one.
    fn tell(&mut self, collection: &Collection, change: Change) {
        let collection_index =
            collection_index(&mut self.by_collection, self.past_begins, collection);
        for reader in &collection_index.readers {
            reader.append((&change).into());
        }
        if let Some(past) = &mut collection_index.past {
            let bytes = change.size();
            past.bytes += bytes;
            past.changes.push_back(change);
            self.past_bytes += bytes;
            self.shorten_past();
        }
    }

    /// Drops the oldest changes of the collections with the largest history, until all histories fit the limit.
    fn shorten_past(&mut self) {
        while self.past_bytes > self.past_limit {
            let pasts = self
                .by_collection
                .values_mut()
                .filter_map(|collection_index| collection_index.past.as_mut());
            let Some(largest) = pasts.max_by_key(|past| past.bytes) else { return };
            let Some(oldest) = largest.changes.pop_front() else { return };
            largest.begins = oldest.revision;
            let bytes = oldest.size();
            largest.bytes -= bytes;
            self.past_bytes -= bytes;
        }
    }
}

impl Precondition {
    /// Checks the precondition against the stored object.
    ///
    /// # Errors
    /// If the precondition does not hold.
    pub fn check(self, kept: Option<&Versioned>) -> Result<(), StoreError> {
        match (self, kept) {
            (Self::Absent, Some(_)) => Err(StoreError::Exists),
            (Self::At(_), None) => Err(StoreError::Absent),
            (Self::At(expected), Some(kept)) if kept.revision != expected => {
                Err(StoreError::Changed { current: kept.revision })
            }
            _ => Ok(()),
        }
    }
}

impl From<&Change> for LogEntry {
    fn from(change: &Change) -> Self {
        Self {
            revision: change.revision,
            key: change.key.clone(),
            before: change.before.as_ref().map(|before| Arc::clone(&before.object)),
            object: change.after.clone(),
        }
    }
}

impl From<Change> for LogEntry {
    fn from(Change { revision, key, before, after }: Change) -> Self {
        Self { revision, key, before: before.map(|before| before.object), object: after }
    }
}

/// Returns the index of a collection. A new one starts with an empty history, because the collection had no objects.
fn collection_index<'a>(
    by_collection: &'a mut HashMap<Collection, CollectionIndex>,
    past_begins: Option<Revision>,
    collection: &Collection,
) -> &'a mut CollectionIndex {
    by_collection.entry(collection.clone()).or_insert_with(|| {
        let past = past_begins.map(Past::since);
        CollectionIndex { past, ..CollectionIndex::default() }
    })
}

impl CollectionIndex {
    /// Stores or removes an object, and returns the previous one.
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

fn hand_over(mut kept: Vec<(&Key, &Versioned)>, reader: &dyn LogReader) {
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

    /// A reader that records the entries it receives.
    #[derive(Default)]
    struct Noted(std::sync::Mutex<Vec<String>>);

    impl LogReader for Noted {
        fn begin(&self, oldest: Revision) {
            self.0.lock().unwrap().push(format!("since {oldest}"));
        }

        fn append(&self, LogEntry { revision, key, before, object }: LogEntry) {
            let mark = |object: Option<_>| if object.is_some() { "+" } else { "-" };
            let line = format!("{revision} {key} {}{}", mark(before), mark(object));
            self.0.lock().unwrap().push(line);
        }
    }

    fn object(size: usize) -> Arc<Object> {
        let tree = json!({"metadata": {"name": "a", "uid": "u"}, "text": "x".repeat(size)});
        Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
    }

    #[test]
    fn the_first_reader_receives_history_up_to_the_limit() {
        let received = |limit: usize| {
            let mut object_index =
                ObjectIndex::new(1 << 30, NamespaceLimit::WHOLE).with_past_limit(limit);
            let (busy, quiet) = (Collection::new("busy"), Collection::new("quiet"));
            let mut number = 0;
            let mut take = |object_index: &mut ObjectIndex,
                            collection: &Collection,
                            name: &str,
                            object| {
                number += 1;
                object_index.take(collection, Key::of_text(name), (Revision::new(number), object));
            };
            for name in ["a", "b"] {
                take(&mut object_index, &busy, name, Some(object(1_000)));
            }
            object_index.begin_past(Revision::new(2));
            take(&mut object_index, &quiet, "a", Some(object(10)));
            for _ in 0..3 {
                take(&mut object_index, &busy, "a", Some(object(1_000)));
            }
            take(&mut object_index, &busy, "b", None);
            assert!(object_index.past_bytes <= limit);
            [busy, quiet].map(|collection| {
                let reader = Arc::new(Noted::default());
                object_index.follow(&collection, reader.clone());
                let lines = std::mem::take(&mut *reader.0.lock().unwrap());
                lines.join(", ")
            })
        };
        let quiet = "since 2, 3 a -+";
        let all = "1 a -+, 2 b -+, since 2, 4 a ++, 5 a ++, 6 a ++, 7 b +-";
        assert_eq!(received(1 << 20), [all, quiet]);
        let two = "2 b -+, 5 a -+, since 5, 6 a ++, 7 b +-";
        assert_eq!(received(4_000), [two, quiet]);
        assert_eq!(received(0), ["6 a -+, since 7", "3 a -+, since 3"]);
    }

    #[test]
    fn an_empty_collection_without_readers_is_removed() {
        let mut object_index = ObjectIndex::new(1 << 20, NamespaceLimit::WHOLE);
        let collection = Collection::new("foos.example.com");
        let reader: Arc<dyn LogReader> = Arc::new(Noted::default());
        object_index.follow(&collection, Arc::clone(&reader));
        object_index.leave(&collection, &reader);
        assert!(object_index.by_collection.is_empty());
    }

    #[test]
    fn a_write_to_the_object_index_returns_the_replaced_revision() {
        let mut object_index = ObjectIndex::new(1 << 20, NamespaceLimit::WHOLE);
        let (collection, key) = (Collection::new("foos.example.com"), Key::of_text("a"));
        let tree = json!({"metadata": {"name": "a", "uid": "u"}});
        let object = Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap());
        let mut number = 0;
        let mut check = |is_damaged: bool, object: Option<&Arc<Object>>, expected: Option<u64>| {
            number += 1;
            let revision = Revision::new(number);
            let replaced = match is_damaged {
                true => object_index.take_damaged(&collection, key.clone(), revision),
                false => object_index.take(&collection, key.clone(), (revision, object.cloned())),
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
        let keep = |object_index: &mut ObjectIndex, number, commit| {
            object_index.keep(Revision::new(number), commit)
        };
        assert_eq!(keep(&mut object_index, 10, commit(&object, Precondition::Absent)), None);
        let at = Revision::new(10);
        assert_eq!(keep(&mut object_index, 11, commit(&object, Precondition::At(at))), Some(at));
        let at = Revision::new(11);
        assert_eq!(keep(&mut object_index, 12, commit(&None, Precondition::At(at))), Some(at));
    }
}
