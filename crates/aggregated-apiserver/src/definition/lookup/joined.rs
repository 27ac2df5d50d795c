//! Sums over pairs: each object of a group, with the object of another type that has its name.
//!
//! What a pair has contributed is not kept, but computed again when it has to be taken out of a sum: so what objects are joined
//! with is known as it was until then.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use super::totals::{Contribution, Groups, Total, Totals, contribution_of};
use super::view::{TextsOf, guarded};
use crate::cluster::{Changed, SourceInformer, SourceObjects, SourceType};
use crate::object::Key;

/// What objects are joined with.
pub(super) struct Others<O> {
    /// As the sums know them.
    known: SourceObjects<O>,
    /// As they are since the keys were taken that are being joined.
    taken: SourceObjects<O>,
    /// What the cluster shows of them; those of tests are given.
    followed: Option<Followed<O>>,
}

struct Followed<O> {
    informer: Arc<SourceInformer<O>>,
    changed: Arc<Changed>,
    is_measured: bool,
    /// Whether everything there is had arrived when the keys were taken.
    is_synced: bool,
}

impl<O> Others<O> {
    pub fn followed(
        informer: &Arc<SourceInformer<O>>,
        notify: &Arc<Notify>,
        is_measured: bool,
    ) -> Self {
        let (informer, changed) = (Arc::clone(informer), informer.follow(Arc::clone(notify)));
        // All there is will be looked at; what comes from now on is a change.
        let now = informer.take(&changed);
        let (known, taken, is_synced) = (now.objects.clone(), now.objects, now.standing.is_synced);
        Self {
            known,
            taken,
            followed: Some(Followed { informer, changed, is_measured, is_synced }),
        }
    }

    /// Those that a test has given.
    pub fn given(known: SourceObjects<O>) -> Self {
        Self { taken: known.clone(), known, followed: None }
    }
}

/// Says what a pair contributes.
type MeasureOf<K, O, T> = Box<dyn Fn(&K, &O) -> T + Send + Sync>;

/// The sums of one measure of pairs over the groups of one index.
pub(super) struct JoinedTotals<K, O, T> {
    texts_of: TextsOf<K>,
    measure: MeasureOf<K, O, T>,
    told: AtomicBool,
    others: Others<O>,
    groups: Groups<T>,
}

impl<K: SourceType, O, T: Total> JoinedTotals<K, O, T> {
    pub fn new(texts_of: TextsOf<K>, measure: MeasureOf<K, O, T>, others: Others<O>) -> Self {
        Self { texts_of, measure, told: AtomicBool::new(false), others, groups: Groups::default() }
    }

    /// What an object contributes, joined with this one.
    fn contribution(
        &self,
        key: &Key,
        object: Option<&K>,
        other: Option<&Arc<O>>,
    ) -> Contribution<T> {
        let Some((object, other)) = object.zip(other) else { return Contribution::default() };
        let (texts, measure) = (|| (self.texts_of)(object), || (self.measure)(object, other));
        contribution_of::<K, T>(&self.told, key, texts, measure)
    }
}

impl<K: SourceType, O: SourceType, T: Total> Totals<K> for JoinedTotals<K, O, T> {
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
        // What comes back is news, and no measurement that may be held back: what was shown meanwhile may lack it.
        let comes_back = taken.standing.is_synced && !followed.is_synced;
        followed.is_synced = taken.standing.is_synced;
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
        // Both are the same now, and are there once.
        self.others.known = self.others.taken.clone();
    }

    fn texts(&self, key: &Key, object: Option<&K>) -> Vec<Box<str>> {
        let texts =
            object.and_then(|object| guarded::<K, _>(&self.told, key, || (self.texts_of)(object)));
        texts.unwrap_or_default()
    }

    fn make_anew(&mut self, objects: &SourceObjects<K>, without: &Key) {
        let mut groups = std::mem::take(&mut self.groups);
        groups.make_anew(objects, without, |key, object| {
            self.contribution(key, Some(object), self.others.known.get(key))
        });
        self.groups = groups;
    }

    fn of(&self, namespace: Option<&str>, text: &str) -> Option<&dyn Any> {
        self.groups.of(namespace, text)
    }

    fn bytes(&self) -> usize {
        self.groups.bytes()
    }
}
