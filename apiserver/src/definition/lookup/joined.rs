//! Sums over pairs: each object of a group, with the object of another type that has its name.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use super::totals::{Groups, Total, Totals, tell_left_out};
use super::view::{TextsOf, guarded};
use crate::cluster::{Changed, SourceInformer, SourceType};
use crate::object::Key;

/// What is kept of an object besides its texts and what it contributes, in bytes: its place in a map.
const CONTRIBUTION: usize = 128;

/// What objects are joined with.
pub(super) enum Others<O> {
    /// What the cluster shows.
    Followed { informer: Arc<SourceInformer<O>>, changed: Arc<Changed>, is_measured: bool },
    /// What a test has given.
    Given(HashMap<Key, Arc<O>>),
}

impl<O> Others<O> {
    pub fn followed(
        informer: &Arc<SourceInformer<O>>,
        notify: &Arc<Notify>,
        is_measured: bool,
    ) -> Self {
        let (informer, changed) = (Arc::clone(informer), informer.follow(Arc::clone(notify)));
        // All there is will be looked at; what comes from now on is a change.
        changed.take();
        Self::Followed { informer, changed, is_measured }
    }

    fn get(&self, key: &Key) -> Option<Arc<O>> {
        match self {
            Self::Followed { informer, .. } => informer.get(key),
            Self::Given(objects) => objects.get(key).cloned(),
        }
    }
}

/// The texts of groups, as those keep them, in order: nearly always of one.
enum Texts {
    One(Arc<str>),
    Several(Box<[Arc<str>]>),
}

impl Texts {
    fn of<T: Total>(texts: &[Box<str>], groups: &Groups<T>) -> Self {
        match texts {
            [one] => Self::One(groups.text(one)),
            several => Self::Several(several.iter().map(|text| groups.text(text)).collect()),
        }
    }
}

impl Deref for Texts {
    type Target = [Arc<str>];

    fn deref(&self) -> &[Arc<str>] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// What an object contributes, and to which groups.
type Contribution<T> = (Vec<Box<str>>, T);
/// Says what a pair contributes.
type MeasureOf<K, O, T> = Box<dyn Fn(&K, &O) -> T + Send + Sync>;

/// The sums of one measure of pairs over the groups of one index.
pub(super) struct JoinedTotals<K, O, T> {
    texts_of: TextsOf<K>,
    measure: MeasureOf<K, O, T>,
    told: AtomicBool,
    others: Others<O>,
    /// What each object contributes, and to which groups: when it changes, what it was joined with may be gone.
    contributions: HashMap<Key, (Texts, T)>,
    groups: Groups<T>,
    /// What the contributions take, in bytes.
    bytes: usize,
}

impl<K: SourceType, O, T: Total> JoinedTotals<K, O, T> {
    pub fn new(texts_of: TextsOf<K>, measure: MeasureOf<K, O, T>, others: Others<O>) -> Self {
        Self {
            texts_of,
            measure,
            told: AtomicBool::new(false),
            others,
            contributions: HashMap::new(),
            groups: Groups::default(),
            bytes: 0,
        }
    }

    fn contribution(&self, key: &Key, object: &K) -> Option<Contribution<T>> {
        let other = self.others.get(key)?;
        let contributed = guarded::<K, _>(&self.told, key, || {
            let mut texts = (self.texts_of)(object);
            texts.sort_unstable();
            texts.dedup();
            let total = (!texts.is_empty()).then(|| (self.measure)(object, &other))?;
            Some((texts, total))
        });
        contributed.flatten()
    }

    /// Keeps what an object contributes to groups that have it.
    fn keep(&mut self, key: &Key, texts: &[Box<str>], total: T) {
        let texts = Texts::of(texts, &self.groups);
        self.bytes += size::<T>(&texts);
        self.contributions.insert(key.clone(), (texts, total));
    }
}

fn size<T>(texts: &[Arc<str>]) -> usize {
    CONTRIBUTION + size_of::<T>() + size_of_val(texts)
}

impl<K: SourceType, O: SourceType, T: Total> Totals<K> for JoinedTotals<K, O, T> {
    fn change(&mut self, key: &Key, _: Option<&K>, after: Option<&K>) -> Vec<Box<str>> {
        let after = after.and_then(|object| self.contribution(key, object));
        let before = self.contributions.remove(key);
        let nothing = T::default();
        let (before_in, before): (&[Arc<str>], &T) =
            before.as_ref().map_or((&[], &nothing), |(texts, before)| (texts, before));
        let (after_in, contributed): (&[Box<str>], &T) =
            after.as_ref().map_or((&[], &nothing), |(texts, after)| (texts, after));
        if !before_in.is_empty() {
            self.bytes = self.bytes.saturating_sub(size::<T>(before_in));
        }
        let changed = self.groups.replace(key, (before_in, before), (after_in, contributed));
        if let Some((texts, after)) = after {
            self.keep(key, &texts, after);
        }
        changed
    }

    fn take_joined(&mut self) -> (HashSet<Key>, bool) {
        match &self.others {
            Others::Followed { changed, is_measured, .. } => (changed.take(), *is_measured),
            Others::Given(_) => (HashSet::new(), false),
        }
    }

    fn texts(&self, key: &Key, object: Option<&K>) -> Vec<Box<str>> {
        let texts =
            object.and_then(|object| guarded::<K, _>(&self.told, key, || (self.texts_of)(object)));
        texts.unwrap_or_default()
    }

    fn make_anew(&mut self, objects: &BTreeMap<Key, Arc<K>>, without: &Key) {
        self.clear();
        tell_left_out::<K>(without);
        for (key, object) in objects.iter().filter(|(key, _)| *key != without) {
            let Some((texts, total)) = self.contribution(key, object) else { continue };
            if self.groups.try_add(key, &texts, &total) {
                self.keep(key, &texts, total);
            } else {
                tell_left_out::<K>(key);
            }
        }
    }

    fn clear(&mut self) {
        self.contributions.clear();
        self.groups.clear();
        self.bytes = 0;
    }

    fn of(&self, namespace: Option<&str>, text: &str) -> Option<&dyn Any> {
        self.groups.of(namespace, text)
    }

    fn bytes(&self) -> usize {
        self.bytes + self.groups.bytes()
    }
}
