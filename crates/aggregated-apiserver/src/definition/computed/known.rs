//! What is known of each source, by its key and by its number.

use std::collections::HashMap;

use super::Seen;
use super::held_back::Hold;
use crate::definition::lookup::SourceNumber;
use crate::definition::numbered::Numbered;
use crate::object::Key;

/// What is known of one source object.
pub(super) struct Known {
    key: Key,
    /// Under which key it is shown.
    pub shown: Option<Key>,
    /// What its computation has asked: by lookup, and in order.
    pub seen: Box<[Seen]>,
    /// If it was ever computed because of a measurement.
    pub hold: Option<Box<Hold>>,
}

/// All sources of which something is known.
#[derive(Default)]
pub(super) struct KnownSources {
    numbers: HashMap<Key, SourceNumber>,
    all: Numbered<Known>,
}

impl KnownSources {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a source, which is known from now on.
    pub fn number_of(&mut self, key: &Key) -> SourceNumber {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let (key, shown, seen) = (key.clone(), None, Box::default());
        let known = Known { key: key.clone(), shown, seen, hold: None };
        let number = SourceNumber(self.all.add(known));
        self.numbers.insert(key, number);
        number
    }

    /// What is known of the source of a number.
    pub fn get_mut(&mut self, SourceNumber(number): SourceNumber) -> Option<&mut Known> {
        self.all.get_mut(number)
    }

    /// The key of the source of a number. What had it before may be meant, which is gone: then this one is looked at in vain.
    pub fn key(&self, SourceNumber(number): SourceNumber) -> Option<&Key> {
        self.all.get(number).map(|known| &known.key)
    }

    /// Forgets a source. Answers what was known of it.
    pub fn remove(&mut self, key: &Key) -> Option<Known> {
        let SourceNumber(number) = self.numbers.remove(key)?;
        self.all.remove(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_that_of_one_source_at_a_time() {
        let mut known = KnownSources::default();
        let [a, b, c] = ["a", "b", "c"].map(Key::of_text);
        let (of_a, of_b) = (known.number_of(&a), known.number_of(&b));
        assert_eq!((known.number_of(&a), known.len()), (of_a, 2));
        assert_eq!((known.key(of_a), known.key(of_b)), (Some(&a), Some(&b)));
        if let Some(known) = known.get_mut(of_a) {
            known.shown = Some(c.clone());
        }
        assert_eq!(known.remove(&a).and_then(|known| known.shown), Some(c.clone()));
        assert_eq!(known.key(of_a), None);
        assert!(known.remove(&a).is_none());
        assert_eq!((known.number_of(&c), known.key(of_a)), (of_a, Some(&c)));
        assert!(known.get_mut(of_a).is_some_and(|known| known.shown.is_none()));
    }
}
