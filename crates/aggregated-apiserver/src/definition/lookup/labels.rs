//! Indexes for labels and label selectors, so that either can be found by the other without a scan.
//!
//! Objects are found by a selector, and selectors by the labels of an object. Both directions are used twice: for the
//! objects of a lookup, and for the recorded queries.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use kube::core::{Expression, Selector};

use super::small_set::SmallSet;
use crate::object::Labels;

/// The memory overhead of an entry besides its strings, in bytes.
const ENTRY: usize = 64;

/// The range of positions that is searched.
pub(super) type Range<P> = (Bound<P>, Bound<P>);

/// The terms of a label selector, sorted and without duplicates, so that equivalent selectors are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Terms(Arc<[Expression]>);

/// The part of the label index where matches of a selector can be.
enum Anchor<'a> {
    /// At these values of a label.
    Values(&'a str, Vec<&'a str>),
    /// At any value of a label.
    AnyValue(&'a str),
    /// Anywhere: the selector has only negative terms.
    Everywhere,
}

impl Terms {
    pub fn of(selector: Selector) -> Self {
        let terms: BTreeSet<Expression> = selector.into_iter().collect();
        Self(terms.into_iter().collect())
    }

    /// Whether the labels fulfil every term.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|term| match term {
            Expression::In(key, values) => {
                labels.get(key).is_some_and(|value| values.contains(value))
            }
            Expression::NotIn(key, values) => {
                labels.get(key).is_none_or(|value| !values.contains(value))
            }
            Expression::Equal(key, wanted) => labels.get(key) == Some(wanted),
            Expression::NotEqual(key, unwanted) => labels.get(key) != Some(unwanted),
            Expression::Exists(key) => labels.get(key).is_some(),
            Expression::DoesNotExist(key) => labels.get(key).is_none(),
        })
    }

    /// The approximate memory of the terms, in bytes.
    pub fn size(&self) -> usize {
        let of_term = |term: &Expression| match term {
            Expression::In(key, values) | Expression::NotIn(key, values) => {
                key.len() + values.iter().map(|value| ENTRY + value.len()).sum::<usize>()
            }
            Expression::Equal(key, value) | Expression::NotEqual(key, value) => {
                key.len() + value.len()
            }
            Expression::Exists(key) | Expression::DoesNotExist(key) => key.len(),
        };
        self.0.iter().map(|term| ENTRY + of_term(term)).sum()
    }

    /// The place that is expected to contain the fewest candidates, judged by the terms alone.
    fn anchor<'a>(&'a self) -> Anchor<'a> {
        let of_term = |term: &'a Expression| match term {
            Expression::Equal(key, value) => Some((1, Anchor::Values(key, vec![value]))),
            Expression::In(key, values) => {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                Some((values.len(), Anchor::Values(key, values)))
            }
            Expression::Exists(key) => Some((usize::MAX, Anchor::AnyValue(key))),
            Expression::NotIn(..) | Expression::NotEqual(..) | Expression::DoesNotExist(_) => None,
        };
        let anchors = self.0.iter().filter_map(of_term);
        let best = anchors.min_by_key(|(values, _)| *values);
        best.map_or(Anchor::Everywhere, |(_, anchor)| anchor)
    }
}

/// The memory of the first entry of a key besides the key itself, in bytes: its entry in a map, and the first node of
/// the map of its values.
const OF_KEY: usize = 600;
/// The memory of the first entry of a value besides the value itself, in bytes: its entry in that map.
const OF_VALUE: usize = 96;

/// The places that have a label, by the label's value.
type ByValue<P> = BTreeMap<Box<str>, SmallSet<P>>;

/// An index of places by their labels.
#[derive(Debug)]
pub(super) struct ByLabels<P> {
    by_key: HashMap<Box<str>, ByValue<P>>,
    all: SmallSet<P>,
    bytes: usize,
}

impl<P> Default for ByLabels<P> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), all: SmallSet::default(), bytes: 0 }
    }
}

impl<P: Ord + Clone> ByLabels<P> {
    pub fn insert(&mut self, place: &P, labels: &Labels) {
        if !self.all.insert(place.clone()) {
            return;
        }
        self.bytes += ENTRY;
        for (key, value) in labels.iter() {
            let by_value = self.by_key.entry(key.into()).or_default();
            if by_value.is_empty() {
                self.bytes += OF_KEY + key.len();
            }
            let places = by_value.entry(value.into()).or_default();
            if places.is_empty() {
                self.bytes += OF_VALUE + value.len();
            }
            places.insert(place.clone());
            self.bytes += ENTRY;
        }
    }

    pub fn remove(&mut self, place: &P, labels: &Labels) {
        if !self.all.remove(place) {
            return;
        }
        self.bytes -= ENTRY;
        for (key, value) in labels.iter() {
            let Some(by_value) = self.by_key.get_mut(key) else { continue };
            remove(by_value, value, place);
            self.bytes -= ENTRY;
            if !by_value.contains_key(value) {
                self.bytes -= OF_VALUE + value.len();
            }
            if by_value.is_empty() {
                self.by_key.remove(key);
                self.bytes -= OF_KEY + key.len();
            }
        }
    }

    /// The approximate memory of the index, in bytes; unique labels use the most.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the places in a range that may fulfil these terms. The result can contain places that do not.
    pub fn candidates(&self, terms: &Terms, range: &Range<P>) -> Vec<&P> {
        let sets: Vec<&SmallSet<P>> = match terms.anchor() {
            Anchor::Everywhere => vec![&self.all],
            Anchor::AnyValue(key) => {
                self.by_key.get(key).into_iter().flat_map(BTreeMap::values).collect()
            }
            Anchor::Values(key, values) => {
                let by_value = self.by_key.get(key);
                let sets = values.into_iter().filter_map(|value| by_value?.get(value));
                sets.collect()
            }
        };
        // A label has one value, so no place is in two sets.
        sets.into_iter().flat_map(|set| set.range(range.clone())).collect()
    }
}

/// The places with a selector, by a string in it.
type ByText<P> = HashMap<Box<str>, SmallSet<P>>;

/// An index of places by their label selectors.
#[derive(Debug)]
pub(super) struct BySelector<P> {
    /// The places by the key and value that a selector requires.
    by_value: HashMap<Box<str>, ByValue<P>>,
    /// The positions of selectors that require a key with any value, by that key.
    by_key: ByText<P>,
    /// The positions of selectors that have only negative terms.
    anywhere: SmallSet<P>,
}

impl<P> Default for BySelector<P> {
    fn default() -> Self {
        Self { by_value: HashMap::new(), by_key: HashMap::new(), anywhere: SmallSet::default() }
    }
}

impl<P: Ord + Clone> BySelector<P> {
    pub fn insert(&mut self, place: &P, terms: &Terms) {
        match terms.anchor() {
            Anchor::Everywhere => {
                self.anywhere.insert(place.clone());
            }
            Anchor::AnyValue(key) => {
                self.by_key.entry(key.into()).or_default().insert(place.clone());
            }
            Anchor::Values(key, values) => {
                // A selector without values matches nothing, so it is not indexed.
                for value in values {
                    let by_value = self.by_value.entry(key.into()).or_default();
                    by_value.entry(value.into()).or_default().insert(place.clone());
                }
            }
        }
    }

    pub fn remove(&mut self, place: &P, terms: &Terms) {
        match terms.anchor() {
            Anchor::Everywhere => {
                self.anywhere.remove(place);
            }
            Anchor::AnyValue(key) => {
                if let Some(places) = self.by_key.get_mut(key) {
                    places.remove(place);
                    if places.is_empty() {
                        self.by_key.remove(key);
                    }
                }
            }
            Anchor::Values(key, values) => {
                let Some(by_value) = self.by_value.get_mut(key) else { return };
                values.into_iter().for_each(|value| remove(by_value, value, place));
                if by_value.is_empty() {
                    self.by_value.remove(key);
                }
            }
        }
    }

    /// Returns the places in a range whose selectors these labels may fulfil. The result can contain places whose
    /// selectors they do not fulfil.
    pub fn candidates(&self, labels: &Labels, range: &Range<P>) -> Vec<&P> {
        // A selector is stored once for each of its values, and a label has one value.
        let asking = labels.iter().flat_map(|(key, value)| {
            let by_value = self.by_value.get(key).and_then(|by_value| by_value.get(value));
            by_value.into_iter().chain(self.by_key.get(key))
        });
        let sets = asking.chain([&self.anywhere]);
        sets.flat_map(|set| set.range(range.clone())).collect()
    }
}

fn remove<P: Ord>(by_value: &mut ByValue<P>, value: &str, place: &P) {
    if let Some(places) = by_value.get_mut(value) {
        places.remove(place);
        if places.is_empty() {
            by_value.remove(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(random: &mut fastrand::Rng) -> Labels {
        let keys = ["a", "b", "c", "d"].into_iter().filter(|_| random.bool()).collect::<Vec<_>>();
        keys.into_iter().map(|key| (key.into(), random.u8(0..3).to_string().into())).collect()
    }

    fn terms(random: &mut fastrand::Rng) -> Terms {
        let count = random.usize(0..4);
        let terms = (0..count).map(|_| {
            let key = random.choice(["a", "b", "c", "d"]).unwrap().to_owned();
            let mut value = || random.u8(0..3).to_string();
            let values = BTreeSet::from([value(), value()]);
            let one = value();
            match random.u8(0..7) {
                0 => Expression::In(key, values),
                1 => Expression::NotIn(key, values),
                2 => Expression::Equal(key, one),
                3 => Expression::NotEqual(key, one),
                4 => Expression::Exists(key),
                5 => Expression::DoesNotExist(key),
                _ => Expression::In(key, BTreeSet::new()),
            }
        });
        Terms::of(terms.collect())
    }

    /// The index finds the same places as a scan of all places, in both directions.
    #[test]
    fn label_indexes_find_matching_objects_and_drop_removed_ones() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut labelled, mut selecting) = (ByLabels::default(), BySelector::default());
        let (mut things, mut selectors) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..4_000 {
            let place = random.u8(0..20);
            let label_set = labels(&mut random);
            if let Some(old) = things.remove(&place) {
                labelled.remove(&place, &old);
            }
            if random.bool() {
                labelled.insert(&place, &label_set);
                things.insert(place, label_set.clone());
            }
            let selector = terms(&mut random);
            let place = random.u8(0..20);
            if let Some(old) = selectors.remove(&place) {
                selecting.remove(&place, &old);
            }
            if random.bool() {
                selecting.insert(&place, &selector);
                selectors.insert(place, selector.clone());
            }
            let (from, to) = (random.u8(0..10), random.u8(10..20));
            let range = (Bound::Included(from), Bound::Included(to));
            let mut found = labelled.candidates(&selector, &range);
            found.retain(|place| selector.matches(&things[*place]));
            found.sort_unstable();
            let scanned = things
                .iter()
                .filter(|(place, labels)| (from..=to).contains(*place) && selector.matches(labels));
            assert_eq!(found, scanned.map(|(place, _)| place).collect::<Vec<_>>());
            let mut found = selecting.candidates(&label_set, &range);
            found.retain(|place| selectors[*place].matches(&label_set));
            found.sort_unstable();
            let scanned = selectors.iter().filter(|(place, selector)| {
                (from..=to).contains(*place) && selector.matches(&label_set)
            });
            assert_eq!(found, scanned.map(|(place, _)| place).collect::<Vec<_>>());
        }
        things.iter().for_each(|(place, labels)| labelled.remove(place, labels));
        selectors.iter().for_each(|(place, selector)| selecting.remove(place, selector));
        assert!(labelled.by_key.is_empty() && labelled.all.is_empty());
        assert!(selecting.by_value.is_empty() && selecting.by_key.is_empty());
        assert!(selecting.anywhere.is_empty());
    }
}
