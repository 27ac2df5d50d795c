//! Sums over pairs: each object of a group is paired with the object of another type that has the same name.
//!
//! The contribution of a pair is not stored; it is computed again when it has to be subtracted. The other objects are
//! therefore stored as they were at the last update.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Notify;

use super::indexed_objects::IndexFunction;
use super::sums::{Aggregate, Measure, Sums};
use crate::cluster::{ChangedKeys, SourceInformer, SourceObjects, SourceType};
use crate::object::Key;

/// The objects that a sum is joined with.
pub(super) struct JoinedObjects<O> {
    /// The objects as of the last update of the sums.
    known: SourceObjects<O>,
    /// The objects as of the time when the changed keys were taken.
    taken: SourceObjects<O>,
    /// The informer of the objects; `None` for the objects of tests.
    followed: Option<Followed<O>>,
}

struct Followed<O> {
    informer: Arc<SourceInformer<O>>,
    changed: Arc<ChangedKeys>,
    is_measured: bool,
    /// Whether the informer was synced when the keys were last taken.
    is_synced: bool,
}

impl<O> JoinedObjects<O> {
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

/// Returns the measure of a pair.
type PairFunction<K, O, T> = Box<dyn Fn(&K, &O) -> T + Send + Sync>;

/// A measure of pairs.
pub(super) struct PairMeasure<K, O, T> {
    measure: PairFunction<K, O, T>,
    others: JoinedObjects<O>,
}

impl<K: SourceType, O: SourceType, T: Aggregate> Sums<K, PairMeasure<K, O, T>> {
    /// The sums of a measure of pairs.
    pub fn of_pairs(
        index_function: IndexFunction<K>,
        measure: impl Fn(&K, &O) -> T + Send + Sync + 'static,
        others: JoinedObjects<O>,
    ) -> Self {
        Self::new(index_function, PairMeasure { measure: Box::new(measure), others })
    }
}

impl<K, O: SourceType, T: Aggregate> Measure<K> for PairMeasure<K, O, T> {
    type Sum = T;

    fn of(&self, key: &Key, object: &K) -> Option<T> {
        let other = self.others.known.get(key)?;
        Some((self.measure)(object, other))
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

    fn join(&mut self, key: &Key) {
        self.others.known.copy_from(key, &self.others.taken);
    }

    fn end_join(&mut self) {
        // Both collections are equal now and share their memory.
        self.others.known = self.others.taken.clone();
    }
}
