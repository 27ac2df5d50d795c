//! The objects of a lookup as its computations see them, and their indexes.
//!
//! Both change only between computations, so indexes and objects are always consistent.

use std::any::TypeId;
use std::collections::HashMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::core::Selector;

use super::labels::{ByLabels, BySelector, Range, Terms};
use super::small_set::SmallSet;
use super::sums::{Aggregate, AnySums};
use crate::cluster::{SourceObjects, SourceType, resource_name};
use crate::object::{Key, Labels};

/// The memory overhead of an index entry besides its value, in bytes.
const ENTRY: usize = 96;

/// The identity of an index: the type of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct IndexId(TypeId);

impl IndexId {
    pub fn of<F: 'static>() -> Self {
        Self(TypeId::of::<F>())
    }

    /// The identity of a function of the user. A closure with captured values would be several indexes of one type.
    pub fn of_function<F: 'static>() -> Self {
        const {
            assert!(
                size_of::<F>() == 0,
                "indexes, selectors and measures are functions, not values"
            );
        };
        Self::of::<F>()
    }
}

/// Returns the values by which an object is found.
pub(super) type IndexFunction<K> = Box<dyn Fn(&K) -> Vec<Box<str>> + Send + Sync>;
/// Returns the label selector of an object, if it has one.
pub(super) type SelectorFunction<K> = Box<dyn Fn(&K) -> Option<Selector> + Send + Sync>;

struct Index<K> {
    index_function: IndexFunction<K>,
    /// Whether a panic has been logged.
    has_logged: AtomicBool,
    found: HashMap<Box<str>, SmallSet<Key>>,
}

impl<K: SourceType> Index<K> {
    fn values(&self, key: &Key, object: &K) -> Vec<Box<str>> {
        let values =
            catch_user_panic::<K, _>(&self.has_logged, key, || (self.index_function)(object));
        let mut values = values.unwrap_or_default();
        values.sort_unstable();
        values.dedup();
        values
    }
}

struct SelectorIndex<K> {
    selector_function: SelectorFunction<K>,
    has_logged: AtomicBool,
    selecting: BySelector<Key>,
}

impl<K: SourceType> SelectorIndex<K> {
    fn terms(&self, key: &Key, object: &K) -> Option<Terms> {
        catch_user_panic::<K, _>(&self.has_logged, key, || (self.selector_function)(object))
            .flatten()
            .map(Terms::of)
    }
}

/// The index values, labels and selectors by which an object is found.
#[derive(Default)]
pub(super) struct IndexEntries {
    values: Vec<(IndexId, Vec<Box<str>>)>,
    labels: Option<Labels>,
    selectors: Vec<(IndexId, Terms)>,
}

impl IndexEntries {
    /// The values of each index.
    pub fn indexed(&self) -> impl Iterator<Item = (IndexId, &[Box<str>])> {
        self.values.iter().map(|(index, values)| (*index, &**values))
    }

    /// The labels, if the lookup has a label index.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// The selector of each selector index.
    pub fn selectors(&self) -> impl Iterator<Item = (IndexId, &Terms)> {
        self.selectors.iter().map(|(index, terms)| (*index, terms))
    }

    /// The approximate memory of the index entries, in bytes.
    fn size(&self) -> usize {
        let values =
            self.values.iter().flat_map(|(_, values)| values).map(|value| ENTRY + value.len());
        let selectors = self.selectors.iter().map(|(_, terms)| ENTRY + terms.size());
        values.sum::<usize>() + selectors.sum::<usize>()
    }
}

/// A measure over the groups of an index.
pub(super) type SumId = (IndexId, IndexId);

/// The index entries and sums that a change of an object affects.
#[derive(Default)]
pub(super) struct IndexChange {
    /// The entries of the object before and after the change.
    pub entries: Vec<IndexEntries>,
    /// The groups whose sums have changed.
    pub groups: Vec<(SumId, Box<str>)>,
}

/// The objects of a lookup, with the indexes that have been used.
pub(super) struct IndexedObjects<K> {
    objects: SourceObjects<K>,
    indexes: HashMap<IndexId, Index<K>>,
    by_labels: Option<ByLabels<Key>>,
    selectors: HashMap<IndexId, SelectorIndex<K>>,
    sums: HashMap<SumId, Box<dyn AnySums<K>>>,
    /// The memory of the indexes, in bytes.
    bytes: usize,
}

impl<K: SourceType> IndexedObjects<K> {
    pub fn new(objects: SourceObjects<K>) -> Self {
        Self {
            objects,
            indexes: HashMap::new(),
            by_labels: None,
            selectors: HashMap::new(),
            sums: HashMap::new(),
            bytes: 0,
        }
    }

    /// The memory of the indexes and sums in bytes, without the objects.
    pub fn bytes(&self) -> usize {
        let sums = self.sums.values().map(|sums| sums.bytes());
        let by_labels = self.by_labels.as_ref().map_or(0, ByLabels::bytes);
        self.bytes + by_labels + sums.sum::<usize>()
    }

    /// The object with a key, and the stored key.
    pub fn get(&self, key: &Key) -> Option<(Key, Arc<K>)> {
        let (key, object) = self.objects.get_keyed(key)?;
        Some((key.clone(), Arc::clone(object)))
    }

    /// Updates the object with this key to its state in `objects`. Returns the affected entries and groups.
    pub fn apply_change(&mut self, key: &Key, objects: &SourceObjects<K>) -> IndexChange {
        let before = self.objects.get(key).map(Arc::clone);
        let after = objects.get(key);
        let mut affected = IndexChange::default();
        self.objects.copy_from(key, objects);
        for (id, sums) in &mut self.sums {
            let (before, after) = (before.as_deref(), after.map(|after| &**after));
            let change = |sums: &mut dyn AnySums<K>| sums.change(key, before, after);
            let changed =
                change_or_rebuild(&mut **sums, &self.objects, key, (before, after), change);
            affected.groups.extend(changed.into_iter().map(|value| (*id, value)));
        }
        if let Some(before) = before {
            let entries = self.entries(key, &before);
            self.bytes = self.bytes.saturating_sub(entries.size());
            self.remove_entries(key, &entries);
            affected.entries.push(entries);
        }
        if let Some(after) = after {
            affected.entries.push(self.add(key, after));
        }
        affected
    }

    /// Adds an object to the indexes. Returns its entries.
    fn add(&mut self, key: &Key, object: &K) -> IndexEntries {
        let entries = self.entries(key, object);
        self.bytes += entries.size();
        self.add_entries(key, &entries);
        entries
    }

    /// Replaces the objects with an equal collection, so that both share their memory. Every change must have been
    /// taken over before.
    pub fn share_objects(&mut self, objects: SourceObjects<K>) {
        self.objects = objects;
    }

    /// Processes the changes of joined objects. Calls `tell` for each group whose sum has changed, with whether the
    /// change is a measurement.
    pub fn join(&mut self, mut tell: impl FnMut(&Key, bool, &(SumId, Box<str>))) {
        for (id, sums) in &mut self.sums {
            let (keys, is_measured) = sums.take_joined();
            for key in keys {
                let object = self.objects.get(&key).map(|object| &**object);
                let join = |sums: &mut dyn AnySums<K>| sums.join(&key, object);
                for value in
                    change_or_rebuild(&mut **sums, &self.objects, &key, (object, object), join)
                {
                    tell(&key, is_measured, &(*id, value));
                }
            }
            sums.end_join();
        }
    }

    /// The objects.
    pub fn objects(&self) -> &SourceObjects<K> {
        &self.objects
    }

    /// The objects of a namespace, or all of them, in order.
    pub fn all(&self, namespace: Option<&str>) -> Vec<Arc<K>> {
        self.objects.range(keys(namespace)).map(Arc::clone).collect()
    }

    /// The objects that an index finds by a value, in order. The index is built if it does not exist.
    pub fn indexed(
        &mut self,
        index: IndexId,
        index_function: impl FnOnce() -> IndexFunction<K>,
        namespace: Option<&str>,
        value: &str,
    ) -> impl Iterator<Item = &Arc<K>> {
        if !self.indexes.contains_key(&index) {
            let index_function = index_function();
            self.rebuild(|indexed| {
                indexed.indexes.insert(
                    index,
                    Index {
                        index_function,
                        has_logged: AtomicBool::new(false),
                        found: HashMap::new(),
                    },
                );
            });
        }
        let found = self.indexes.get(&index).and_then(|index| index.found.get(value));
        let found = found.into_iter().flat_map(move |found| found.range(keys(namespace)));
        found.filter_map(|key| self.objects.get(key))
    }

    /// The objects whose labels fulfil these terms, in order.
    pub fn matching(&mut self, namespace: Option<&str>, terms: &Terms) -> Vec<Arc<K>> {
        if self.by_labels.is_none() {
            self.rebuild(|indexed| indexed.by_labels = Some(ByLabels::default()));
        }
        let by_labels = self.by_labels.iter();
        let candidates = by_labels.flat_map(|all| all.candidates(terms, &keys(namespace)));
        let found = candidates.filter_map(|key| Some((key, self.objects.get(key)?)));
        in_order(found.filter(|(_, object)| terms.matches(&labels_of(&***object))))
    }

    /// The objects whose selectors these labels fulfil, in order.
    pub fn selecting(
        &mut self,
        index: IndexId,
        selector_function: impl FnOnce() -> SelectorFunction<K>,
        namespace: Option<&str>,
        labels: &Labels,
    ) -> Vec<Arc<K>> {
        if !self.selectors.contains_key(&index) {
            let selector_function = selector_function();
            self.rebuild(|indexed| {
                let (has_logged, selecting) = (AtomicBool::new(false), BySelector::default());
                indexed
                    .selectors
                    .insert(index, SelectorIndex { selector_function, has_logged, selecting });
            });
        }
        let Some(index) = self.selectors.get(&index) else { return Vec::new() };
        let candidates = index.selecting.candidates(labels, &keys(namespace)).into_iter();
        let found = candidates.filter_map(|key| Some((key, self.objects.get(key)?)));
        in_order(found.filter(|(key, object)| {
            index.terms(key, object).is_some_and(|terms| terms.matches(labels))
        }))
    }

    /// The sum of a measure over a group.
    pub fn sum<T: Aggregate, S: AnySums<K> + 'static>(
        &mut self,
        id: SumId,
        sums_of: impl FnOnce() -> S,
        namespace: Option<&str>,
        value: &str,
    ) -> T {
        let sums = self.sums.entry(id).or_insert_with(|| {
            let mut sums = sums_of();
            for (key, object) in self.objects.iter() {
                let add = AssertUnwindSafe(|| sums.change(key, None, Some(object)));
                if catch_unwind(add).is_err() {
                    sums.rebuild(&self.objects, key);
                    break;
                }
            }
            Box::new(sums)
        });
        let total = sums.of(namespace, value).and_then(|total| total.downcast_ref::<T>());
        total.cloned().unwrap_or_default()
    }

    /// Adds an index, and all objects to it.
    fn rebuild(&mut self, add: impl FnOnce(&mut Self)) {
        // All indexes are filled again from the objects; sums do not depend on indexes.
        self.indexes.values_mut().for_each(|index| index.found.clear());
        self.selectors.values_mut().for_each(|index| index.selecting = BySelector::default());
        self.by_labels = self.by_labels.take().map(|_| ByLabels::default());
        self.bytes = 0;
        add(self);
        for (key, object) in self.objects.clone().iter() {
            self.add(key, object);
        }
    }

    fn entries(&self, key: &Key, object: &K) -> IndexEntries {
        let values = self.indexes.iter().map(|(id, index)| (*id, index.values(key, object)));
        let selectors = self.selectors.iter();
        let selectors = selectors.filter_map(|(id, index)| Some((*id, index.terms(key, object)?)));
        IndexEntries {
            values: values.collect(),
            labels: self.by_labels.as_ref().map(|_| labels_of(object)),
            selectors: selectors.collect(),
        }
    }

    fn add_entries(&mut self, key: &Key, entries: &IndexEntries) {
        for (id, values) in &entries.values {
            let Some(index) = self.indexes.get_mut(id) else { continue };
            for value in values {
                index.found.entry(value.clone()).or_default().insert(key.clone());
            }
        }
        if let (Some(by_labels), Some(labels)) = (&mut self.by_labels, &entries.labels) {
            by_labels.insert(key, labels);
        }
        for (id, terms) in &entries.selectors {
            if let Some(index) = self.selectors.get_mut(id) {
                index.selecting.insert(key, terms);
            }
        }
    }

    fn remove_entries(&mut self, key: &Key, entries: &IndexEntries) {
        for (id, values) in &entries.values {
            let Some(index) = self.indexes.get_mut(id) else { continue };
            for value in values {
                if let Some(keys) = index.found.get_mut(value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.found.remove(value);
                    }
                }
            }
        }
        if let (Some(by_labels), Some(labels)) = (&mut self.by_labels, &entries.labels) {
            by_labels.remove(key, labels);
        }
        for (id, terms) in &entries.selectors {
            if let Some(index) = self.selectors.get_mut(id) {
                index.selecting.remove(key, terms);
            }
        }
    }
}

/// Applies a change of an object to sums. Returns the groups whose sums may have changed. If the user's code panics, it
/// can leave a sum half updated; then all sums are computed again without this object.
fn change_or_rebuild<K: SourceType>(
    sums: &mut dyn AnySums<K>,
    objects: &SourceObjects<K>,
    key: &Key,
    (before, after): (Option<&K>, Option<&K>),
    change: impl FnOnce(&mut dyn AnySums<K>) -> Vec<Box<str>>,
) -> Vec<Box<str>> {
    let changed = catch_unwind(AssertUnwindSafe(|| change(sums)));
    changed.unwrap_or_else(|_| {
        let mut groups = sums.values(key, before);
        groups.extend(sums.values(key, after));
        sums.rebuild(objects, key);
        groups
    })
}

/// The range of keys in a namespace, or of all keys.
fn keys(namespace: Option<&str>) -> Range<Key> {
    let Some(namespace) = namespace else { return (Bound::Unbounded, Bound::Unbounded) };
    // `0` is the character after the slash.
    let end = Key::of_text(&format!("{namespace}0"));
    (Bound::Included(Key::first_of_namespace(namespace)), Bound::Excluded(end))
}

fn in_order<'a, K: 'a>(found: impl Iterator<Item = (&'a Key, &'a Arc<K>)>) -> Vec<Arc<K>> {
    let mut found: Vec<_> = found.collect();
    found.sort_unstable_by_key(|(key, _)| *key);
    found.into_iter().map(|(_, object)| Arc::clone(object)).collect()
}

/// The labels of an object.
fn labels_of<K: SourceType>(object: &K) -> Labels {
    let mut labels = Vec::new();
    object.each_label(&mut |key, value| labels.push((key.into(), value.into())));
    labels.into_iter().collect()
}

/// Runs the user's code, which may panic: an object at which it panics is in no index and no sum. The first panic is
/// logged.
pub(super) fn catch_user_panic<K: SourceType, T>(
    has_logged: &AtomicBool,
    key: &Key,
    of: impl FnOnce() -> T,
) -> Option<T> {
    let made = catch_unwind(AssertUnwindSafe(of));
    if made.is_err() && !has_logged.swap(true, Ordering::Relaxed) {
        let what = resource_name::<K>();
        tracing::error!(
            source = %what,
            object = %key,
            "panic in an index or a measure; the object is omitted from it"
        );
    }
    made.ok()
}
