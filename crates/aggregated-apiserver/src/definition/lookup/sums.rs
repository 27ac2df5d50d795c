//! Sums over groups of objects. A change of one object updates a sum without visiting the others.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use super::groups::{ByNamespace, Group};
use super::indexed_objects::{IndexFunction, catch_user_panic};
use crate::cluster::{SourceObjects, SourceType, resource_name};
use crate::object::Key;

/// A value that can be summed up over a group of objects and subtracted from the sum again. The default is the empty
/// sum. Subtracting a value that was added restores the earlier sum.
///
/// ```
/// use aggregated_apiserver::computed::Aggregate;
///
/// /// What Pods ask for.
/// #[derive(Clone, Default, PartialEq)]
/// pub struct Requests {
///     pub pods: i64,
///     pub millicores: i64,
/// }
///
/// impl Aggregate for Requests {
///     fn add(&mut self, other: &Self) {
///         self.pods.add(&other.pods);
///         self.millicores.add(&other.millicores);
///     }
///
///     fn subtract(&mut self, other: &Self) {
///         self.pods.subtract(&other.pods);
///         self.millicores.subtract(&other.millicores);
///     }
/// }
/// ```
///
/// Implemented for integers (sums wrap around and recover when values are subtracted), for pairs, and for maps, which
/// sum up by key. A map of counts can find the worst of a group: it is the greatest key.
pub trait Aggregate: Clone + Default + PartialEq + Send + Sync + 'static {
    /// Adds the contribution of an object.
    fn add(&mut self, other: &Self);
    /// Subtracts the contribution of an object.
    fn subtract(&mut self, other: &Self);
    /// The approximate memory besides `size_of` in bytes: the contents of boxes and maps. Sums count towards the memory
    /// of the objects. This is called for each change, so it should be cheap. The size of a map counts its entries but
    /// not the heap memory of its keys and values, so these should be short.
    fn size(&self) -> usize {
        0
    }
}

macro_rules! total {
    ($($number:ty)*) => {
        $(impl Aggregate for $number {
            fn add(&mut self, other: &Self) {
                *self = self.wrapping_add(*other);
            }

            fn subtract(&mut self, other: &Self) {
                *self = self.wrapping_sub(*other);
            }
        })*
    };
}

total!(i32 i64 i128 u32 u64 u128 usize);

impl<A: Aggregate, B: Aggregate> Aggregate for (A, B) {
    fn add(&mut self, other: &Self) {
        self.0.add(&other.0);
        self.1.add(&other.1);
    }

    fn subtract(&mut self, other: &Self) {
        self.0.subtract(&other.0);
        self.1.subtract(&other.1);
    }

    fn size(&self) -> usize {
        self.0.size() + self.1.size()
    }
}

/// The capacity of a `BTreeMap` node, and the average number of entries that are in use.
const NODE: usize = 11;
const NODE_IN_USE: usize = 7;

impl<K: Ord + Clone + Send + Sync + 'static, T: Aggregate> Aggregate for BTreeMap<K, T> {
    fn add(&mut self, other: &Self) {
        for (key, value) in other {
            change(self, key, |total| total.add(value));
        }
    }

    fn subtract(&mut self, other: &Self) {
        for (key, value) in other {
            change(self, key, |total| total.subtract(value));
        }
    }

    fn size(&self) -> usize {
        self.len().div_ceil(NODE_IN_USE) * NODE * (size_of::<K>() + size_of::<T>())
    }
}

/// Changes a value of a map. Entries with the default value are removed.
fn change<K: Ord + Clone, T: Aggregate>(
    map: &mut BTreeMap<K, T>,
    key: &K,
    change: impl FnOnce(&mut T),
) {
    let mut total = map.remove(key).unwrap_or_default();
    change(&mut total);
    if total != T::default() {
        map.insert(key.clone(), total);
    }
}

/// The index values (groups) of an object, and its contribution to each.
pub(super) type Contribution<T> = (Vec<Box<str>>, T);

/// Logs the object that is omitted from all sums.
fn log_omitted<K: SourceType>(key: &Key) {
    let what = resource_name::<K>();
    tracing::error!(source = %what, object = %key, "panic in a sum; the object is omitted from it");
}

/// The sums of one measure over the groups of one index.
pub(super) trait AnySums<K>: Send + Sync {
    /// Processes a change of an object. Returns the groups whose sums have changed.
    fn change(&mut self, key: &Key, before: Option<&K>, after: Option<&K>) -> Vec<Box<str>>;
    /// The groups that an object belongs to.
    fn values(&self, key: &Key, object: Option<&K>) -> Vec<Box<str>>;
    /// Computes all sums again without the object `without` and without any other object at which the user's code
    /// panics. These objects are logged, and tried again when they change.
    fn rebuild(&mut self, objects: &SourceObjects<K>, without: &Key);
    /// Takes the keys whose joined objects have changed since the last call, and whether the changes are measurements.
    /// Each key must be joined before anything else changes.
    fn take_joined(&mut self) -> (HashSet<Key>, bool);
    /// Processes the change of a joined object. Returns the groups whose sums have changed.
    fn join(&mut self, key: &Key, object: Option<&K>) -> Vec<Box<str>>;
    /// Called when all taken keys have been joined.
    fn end_join(&mut self);
    /// The sum of a group.
    fn of(&self, namespace: Option<&str>, value: &str) -> Option<&dyn Any>;
    /// The approximate memory of the sums, in bytes.
    fn bytes(&self) -> usize;
}

/// The memory overhead of a group besides its sums and its index value, in bytes.
const GROUP: usize = 96;

/// The sum of each group. The key of a group is its value in the index.
pub(super) struct GroupSums<T> {
    by_value: HashMap<Box<str>, ByNamespace<T>>,
    /// Objects that are omitted from all sums because the user's code panics at them.
    omitted: HashSet<Key>,
    /// The memory of the sums, in bytes.
    bytes: usize,
}

impl<T> Default for GroupSums<T> {
    fn default() -> Self {
        Self { by_value: HashMap::new(), omitted: HashSet::new(), bytes: 0 }
    }
}

fn size<T: Aggregate>(value: &str, groups: &ByNamespace<T>) -> usize {
    GROUP + value.len() + groups.size()
}

impl<T: Aggregate> GroupSums<T> {
    /// Replaces the contribution of an object. The groups of both contributions are sorted. Returns the groups whose
    /// sums have changed.
    pub fn replace(
        &mut self,
        key: &Key,
        (before_in, before): &Contribution<T>,
        (after_in, after): &Contribution<T>,
    ) -> Vec<Box<str>> {
        let is_same = before == after;
        let mut changed = Vec::new();
        for value in after_in {
            if is_same && before_in.binary_search(value).is_ok() {
                continue;
            }
            self.change(key, value, |group| {
                group.total.add(after);
                group.members += 1;
            });
            changed.push(value.clone());
        }
        for value in before_in {
            let stays = after_in.binary_search(value).is_ok();
            if is_same && stays {
                continue;
            }
            self.change(key, value, |group| {
                group.total.subtract(before);
                group.members = group.members.saturating_sub(1);
            });
            if !stays {
                changed.push(value.clone());
            }
        }
        changed
    }

    /// Whether an object was omitted from the sums. The object is no longer marked as omitted, because it is tried
    /// again now. A new object can have the key of one that was omitted.
    pub fn was_omitted(&mut self, key: &Key) -> bool {
        self.omitted.remove(key)
    }

    /// Computes all sums again without the object `without` and without any other object at which the user's code
    /// panics. These objects are logged.
    pub fn rebuild<K: SourceType>(
        &mut self,
        objects: &SourceObjects<K>,
        without: &Key,
        contribution: impl Fn(&Key, &K) -> Contribution<T>,
    ) {
        self.clear();
        if objects.get(without).is_some() {
            self.omitted.insert(without.clone());
        }
        log_omitted::<K>(without);
        for (key, object) in objects.iter().filter(|(key, _)| *key != without) {
            if !self.try_add(key, &contribution(key, object)) {
                self.omitted.insert(key.clone());
                log_omitted::<K>(key);
            }
        }
    }

    /// Adds the contribution of an object. If the user's code panics, for example because a sum overflows, nothing is
    /// added and the result is false.
    fn try_add(&mut self, key: &Key, contribution: &Contribution<T>) -> bool {
        let saved =
            contribution.0.iter().map(|value| (value, self.by_value.get(&**value).cloned()));
        let (saved, bytes): (Vec<_>, usize) = (saved.collect(), self.bytes);
        let add = || self.replace(key, &Contribution::default(), contribution);
        let is_added = catch_unwind(AssertUnwindSafe(add)).is_ok();
        if !is_added {
            self.bytes = bytes;
            for (value, groups) in saved {
                match groups {
                    Some(groups) => drop(self.by_value.insert(value.clone(), groups)),
                    None => drop(self.by_value.remove(&**value)),
                }
            }
        }
        is_added
    }

    /// Changes the sums of a group.
    fn change(&mut self, key: &Key, value: &str, change: impl Fn(&mut Group<T>)) {
        let groups = match self.by_value.entry(value.into()) {
            Entry::Occupied(entry) => {
                self.bytes -= size(value, entry.get());
                entry.into_mut()
            }
            Entry::Vacant(entry) => entry.insert(ByNamespace::of(key.namespace())),
        };
        if groups.change(key.namespace(), change) {
            self.by_value.remove(value);
        } else {
            self.bytes += size(value, groups);
        }
    }

    /// The sum of a group.
    pub fn of(&self, namespace: Option<&str>, value: &str) -> Option<&dyn Any> {
        self.by_value.get(value)?.of_namespace(namespace)
    }

    /// Removes all sums.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The approximate memory of the sums, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Computes the contribution of an object to the sums of its groups.
pub(super) trait Measure<K>: Send + Sync {
    /// The sum of contributions.
    type Sum: Aggregate;
    /// The contribution of an object, or `None` if the object is in no group, because it has no counterpart.
    fn of(&self, key: &Key, object: &K) -> Option<Self::Sum>;
    /// See [`AnySums::take_joined`].
    fn take_joined(&mut self) -> (HashSet<Key>, bool) {
        (HashSet::new(), false)
    }
    /// Uses the current counterpart of the object with this key from now on.
    fn join(&mut self, _key: &Key) {}
    /// See [`AnySums::end_join`].
    fn end_join(&mut self) {}
}

/// A measure of single objects.
pub(super) type ObjectMeasure<K, T> = Box<dyn Fn(&K) -> T + Send + Sync>;

impl<K, T: Aggregate> Measure<K> for ObjectMeasure<K, T> {
    type Sum = T;

    fn of(&self, _: &Key, object: &K) -> Option<T> {
        Some(self(object))
    }
}

/// The [`AnySums`] of one index and one measure, with their types.
pub(super) struct Sums<K, M: Measure<K>> {
    index_function: IndexFunction<K>,
    measure: M,
    has_logged: AtomicBool,
    groups: GroupSums<M::Sum>,
}

impl<K: SourceType, T: Aggregate> Sums<K, ObjectMeasure<K, T>> {
    /// The sums of a measure of single objects.
    pub fn of_objects(
        index_function: IndexFunction<K>,
        measure: impl Fn(&K) -> T + Send + Sync + 'static,
    ) -> Self {
        Self::new(index_function, Box::new(measure))
    }
}

impl<K: SourceType, M: Measure<K>> Sums<K, M> {
    pub fn new(index_function: IndexFunction<K>, measure: M) -> Self {
        Self {
            index_function,
            measure,
            has_logged: AtomicBool::new(false),
            groups: GroupSums::default(),
        }
    }

    /// The groups of an object in order without duplicates, and its contribution to each. Both are empty if the user's
    /// code panics. An object without groups is not measured.
    fn contribution(&self, key: &Key, object: Option<&K>) -> Contribution<M::Sum> {
        let Some(object) = object else { return Contribution::default() };
        let contributed = catch_user_panic::<K, _>(&self.has_logged, key, || {
            let mut values = (self.index_function)(object);
            values.sort_unstable();
            values.dedup();
            let sum = if values.is_empty() { None } else { self.measure.of(key, object) };
            sum.map(|sum| (values, sum))
        });
        contributed.flatten().unwrap_or_default()
    }

    /// Replaces the contribution of an object. `join` is called between the old contribution and the new one.
    fn replace(
        &mut self,
        key: &Key,
        before: Option<&K>,
        after: Option<&K>,
        join: impl FnOnce(&mut M),
    ) -> Vec<Box<str>> {
        let was_omitted = self.groups.was_omitted(key);
        let before = self.contribution(key, before.filter(|_| !was_omitted));
        join(&mut self.measure);
        let after = self.contribution(key, after);
        self.groups.replace(key, &before, &after)
    }
}

impl<K: SourceType, M: Measure<K>> AnySums<K> for Sums<K, M> {
    fn change(&mut self, key: &Key, before: Option<&K>, after: Option<&K>) -> Vec<Box<str>> {
        self.replace(key, before, after, |_| ())
    }

    fn values(&self, key: &Key, object: Option<&K>) -> Vec<Box<str>> {
        let values = object.and_then(|object| {
            catch_user_panic::<K, _>(&self.has_logged, key, || (self.index_function)(object))
        });
        values.unwrap_or_default()
    }

    fn rebuild(&mut self, objects: &SourceObjects<K>, without: &Key) {
        let mut groups = std::mem::take(&mut self.groups);
        groups.rebuild(objects, without, |key, object| self.contribution(key, Some(object)));
        self.groups = groups;
    }

    fn take_joined(&mut self) -> (HashSet<Key>, bool) {
        self.measure.take_joined()
    }

    fn join(&mut self, key: &Key, object: Option<&K>) -> Vec<Box<str>> {
        self.replace(key, object, object, |measure| measure.join(key))
    }

    fn end_join(&mut self) {
        self.measure.end_join();
    }

    fn of(&self, namespace: Option<&str>, value: &str) -> Option<&dyn Any> {
        self.groups.of(namespace, value)
    }

    fn bytes(&self) -> usize {
        self.groups.bytes()
    }
}
