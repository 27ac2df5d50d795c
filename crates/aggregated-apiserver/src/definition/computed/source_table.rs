//! The state of each source, by its key and by its number.

use std::collections::HashMap;

use super::unpublished::Hold;
use crate::definition::lookup::{QueryId, SourceNumber};
use crate::definition::numbered_values::Numbered;
use crate::object::Key;

/// A query that a computation has made: the index of the lookup, and the id of the query.
pub(super) type Dependency = (u16, QueryId);

/// The state of one source object.
pub(super) struct SourceEntry {
    key: Key,
    /// The keys of the published objects.
    pub shown: Shown,
    /// The queries that its computation has made: by lookup, and in order.
    pub dependencies: Box<[Dependency]>,
    /// The held-back measurements; `None` if the source was never computed because of a measurement.
    pub hold: Option<Box<Hold>>,
}

/// The keys of the published objects of a source, sorted. Most sources have one object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Shown {
    #[default]
    None,
    One(Key),
    Several(Box<[Key]>),
}

impl Shown {
    /// These keys, which are sorted.
    pub fn of(mut keys: Vec<Key>) -> Self {
        match keys.len() {
            0 | 1 => keys.pop().map_or(Self::None, Self::One),
            _ => Self::Several(keys.into()),
        }
    }

    /// The keys.
    pub fn keys(&self) -> &[Key] {
        match self {
            Self::None => &[],
            Self::One(key) => std::slice::from_ref(key),
            Self::Several(keys) => keys,
        }
    }
}

/// The states of all sources.
#[derive(Default)]
pub(super) struct SourceTable {
    numbers: HashMap<Key, SourceNumber>,
    all: Numbered<SourceEntry>,
}

impl SourceTable {
    /// The number of a source; a new source is added.
    pub fn number_of(&mut self, key: &Key) -> SourceNumber {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let (key, shown, dependencies) = (key.clone(), Shown::None, Box::default());
        let entry = SourceEntry { key: key.clone(), shown, dependencies, hold: None };
        let number = SourceNumber(self.all.add(entry));
        self.numbers.insert(key, number);
        number
    }

    /// The state of the source object with this number.
    pub fn get_mut(&mut self, SourceNumber(number): SourceNumber) -> Option<&mut SourceEntry> {
        self.all.get_mut(number)
    }

    /// The key of the source with a number. Numbers are reused: if the caller means an earlier source that was deleted,
    /// the current one is computed again without need.
    pub fn key(&self, SourceNumber(number): SourceNumber) -> Option<&Key> {
        self.all.get(number).map(|entry| &entry.key)
    }

    /// Removes a source. Returns its state.
    pub fn remove(&mut self, key: &Key) -> Option<SourceEntry> {
        let SourceNumber(number) = self.numbers.remove(key)?;
        self.all.remove(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_numbers_are_unique_and_reused_after_removal() {
        let mut table = SourceTable::default();
        let [a, b, c] = ["a", "b", "c"].map(Key::of_text);
        let (of_a, of_b) = (table.number_of(&a), table.number_of(&b));
        assert_eq!((table.number_of(&a), table.numbers.len()), (of_a, 2));
        assert_eq!((table.key(of_a), table.key(of_b)), (Some(&a), Some(&b)));
        if let Some(entry) = table.get_mut(of_a) {
            entry.shown = Shown::One(c.clone());
        }
        assert_eq!(table.remove(&a).map(|entry| entry.shown), Some(Shown::One(c.clone())));
        assert_eq!(table.key(of_a), None);
        assert!(table.remove(&a).is_none());
        assert_eq!((table.number_of(&c), table.key(of_a)), (of_a, Some(&c)));
        assert!(table.get_mut(of_a).is_some_and(|entry| entry.shown == Shown::None));
    }
}
