//! Sums over pairs: each object of a group is paired with the object of another type that has the same name.
//!
//! The contribution of a pair is not stored; it is computed again when it has to be subtracted. The other objects are
//! therefore stored as they were at the last update.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use super::aggregates::{Aggregate, Aggregates, Contribution, Groups, contribution_of};
use super::indexed_objects::{IndexFunction, guarded};
use crate::cluster::{Changed, SourceInformer, SourceObjects, SourceType};
use crate::object::Key;

/// The objects that a sum is joined with.
pub(super) struct Others<O> {
    /// The objects as of the last update of the sums.
    known: SourceObjects<O>,
    /// The objects as of the time when the changed keys were taken.
    taken: SourceObjects<O>,
    /// The informer of the objects; `None` for the objects of tests.
    followed: Option<Followed<O>>,
}

struct Followed<O> {
    informer: Arc<SourceInformer<O>>,
    changed: Arc<Changed>,
    is_measured: bool,
    /// Whether the informer was synced when the keys were last taken.
    is_synced: bool,
}

impl<O> Others<O> {
    pub fn followed(
        informer: &Arc<SourceInformer<O>>,
        notify: &Arc<Notify>,
        is_measured: bool,
    ) -> Self {
        let (informer, changed) = (Arc::clone(informer), informer.follow(Arc::clone(notify)));
        // All existing objects are read at once; only later events are changes.
        let now = informer.take(&changed);
        let (known, taken, is_synced) = (now.objects.clone(), now.objects, now.status.is_synced);
        Self {
            known,
            taken,
            followed: Some(Followed { informer, changed, is_measured, is_synced }),
        }
    }

    /// Objects that a test has given.
    pub fn given(known: SourceObjects<O>) -> Self {
        Self { taken: known.clone(), known, followed: None }
    }
}

/// Computes the contribution of a pair.
type MeasureOf<K, O, T> = Box<dyn Fn(&K, &O) -> T + Send + Sync>;

/// The sums of one measure of pairs over the groups of one index.
pub(super) struct JoinedTotals<K, O, T> {
    index_function: IndexFunction<K>,
    measure: MeasureOf<K, O, T>,
    told: AtomicBool,
    others: Others<O>,
    groups: Groups<T>,
}

impl<K: SourceType, O, T: Aggregate> JoinedTotals<K, O, T> {
    pub fn new(
        index_function: IndexFunction<K>,
        measure: MeasureOf<K, O, T>,
        others: Others<O>,
    ) -> Self {
        Self {
            index_function,
            measure,
            told: AtomicBool::new(false),
            others,
            groups: Groups::default(),
        }
    }

    /// The contribution of an object that is paired with `other`.
    fn contribution(
        &self,
        key: &Key,
        object: Option<&K>,
        other: Option<&Arc<O>>,
    ) -> Contribution<T> {
        let Some((object, other)) = object.zip(other) else { return Contribution::default() };
        let (values, measure) =
            (|| (self.index_function)(object), || (self.measure)(object, other));
        contribution_of::<K, T>(&self.told, key, values, measure)
    }
}

impl<K: SourceType, O: SourceType, T: Aggregate> Aggregates<K> for JoinedTotals<K, O, T> {
    fn change(&mut self, key: &Key, before: Option<&K>, after: Option<&K>) -> Vec<Box<str>> {
        let was_left_out = self.groups.was_left_out(key);
        let other = self.others.known.get(key);
        let before = self.contribution(key, before.filter(|_| !was_left_out), other);
        let after = self.contribution(key, after, other);
        self.groups.replace(key, &before, &after)
    }

    fn take_joined(&mut self) -> (HashSet<Key>, bool) {
        let Some(followed) = &mut self.others.followed else {
            return (HashSet::new(), false);
        };
        let taken = followed.informer.take(&followed.changed);
        self.others.taken = taken.objects;
        // Becoming synced again is a change that must not be held back as a measurement, because the objects published
        // before may lack these values.
        let comes_back = taken.status.is_synced && !followed.is_synced;
        followed.is_synced = taken.status.is_synced;
        (taken.keys, followed.is_measured && !comes_back)
    }

    fn join(&mut self, key: &Key, object: Option<&K>) -> Vec<Box<str>> {
        let before = self.others.known.take_over(key, &self.others.taken);
        let was_left_out = self.groups.was_left_out(key);
        let was_in = object.filter(|_| !was_left_out);
        let before = self.contribution(key, was_in, before.as_ref());
        let after = self.contribution(key, object, self.others.known.get(key));
        self.groups.replace(key, &before, &after)
    }

    fn end_join(&mut self) {
        // Both collections are equal now and share their memory.
        self.others.known = self.others.taken.clone();
    }

    fn values(&self, key: &Key, object: Option<&K>) -> Vec<Box<str>> {
        let values = object
            .and_then(|object| guarded::<K, _>(&self.told, key, || (self.index_function)(object)));
        values.unwrap_or_default()
    }

    fn make_anew(&mut self, objects: &SourceObjects<K>, without: &Key) {
        let mut groups = std::mem::take(&mut self.groups);
        groups.make_anew(objects, without, |key, object| {
            self.contribution(key, Some(object), self.others.known.get(key))
        });
        self.groups = groups;
    }

    fn of(&self, namespace: Option<&str>, value: &str) -> Option<&dyn Any> {
        self.groups.of(namespace, value)
    }

    fn bytes(&self) -> usize {
        self.groups.bytes()
    }
}
