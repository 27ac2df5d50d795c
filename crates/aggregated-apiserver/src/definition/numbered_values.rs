//! A collection of values by number. A reference to a value needs only four bytes.

use std::collections::BTreeSet;

/// The number of slots that are allocated at once, and the divisor of the existing slots that are allocated in
/// addition. `Vec` would double its capacity.
const SPARE: usize = 8;

/// Values by number. A new value gets the smallest free number; the number of a removed value is used again.
pub(in crate::definition) struct Numbered<T> {
    all: Vec<Option<T>>,
    free: BTreeSet<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: BTreeSet::new() }
    }
}

impl<T> Numbered<T> {
    /// Adds a value. Returns its number.
    pub fn add(&mut self, one: T) -> u32 {
        if let Some(number) = self.free.pop_first() {
            if let Some(place) = self.all.get_mut(number as usize) {
                *place = Some(one);
            }
            return number;
        }
        if self.all.len() == self.all.capacity() {
            self.all.reserve_exact(SPARE + self.all.len() / SPARE);
        }
        // The memory limit of sources is reached long before this overflows.
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(Some(one));
        number
    }

    pub fn get(&self, number: u32) -> Option<&T> {
        self.all.get(number as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    /// Removes the value with a number. Slots after the largest number in use are released.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let removed = self.all.get_mut(number as usize)?.take()?;
        self.free.insert(number);
        while self.all.pop_if(|last| last.is_none()).is_some() {
            self.free.pop_last();
        }
        if self.all.capacity() > 2 * (SPARE + self.all.len()) {
            self.all.shrink_to(SPARE + self.all.len());
        }
        Some(removed)
    }

    /// All values, in the order of their numbers.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// After any sequence of additions and removals each value has its number, and unused slots are released.
    #[test]
    fn numbered_values_are_found_by_their_number() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut numbered = Numbered::default();
        let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
        for round in 0..20_000 {
            // The collection grows and shrinks in turns.
            let grows = round / 4_000 % 2 == 0;
            if (random.u8(0..4) > 0) == grows {
                let thing = random.u64(..);
                let number = numbered.add(thing);
                assert_eq!(expected.insert(number, thing), None);
            } else {
                // Values with large numbers are removed first, because each number is drawn up to the largest one in
                // use.
                let number = random.u32(0..=expected.last_key_value().map_or(0, |(last, _)| *last));
                assert_eq!(numbered.remove(number), expected.remove(&number));
            }
            let number = random.u32(0..4_000);
            assert_eq!(numbered.get(number), expected.get(&number));
            assert_eq!(numbered.get_mut(number), expected.get_mut(&number));
            assert!(numbered.iter().eq(expected.values()));
            let places = expected.last_key_value().map_or(0, |(last, _)| *last as usize + 1);
            assert_eq!(
                (numbered.all.len(), numbered.free.len()),
                (places, places - expected.len())
            );
            assert!(numbered.all.capacity() <= 2 * (SPARE + places), "{places}");
        }
    }

    #[test]
    fn numbered_values_release_the_memory_of_a_peak() {
        let mut numbered = Numbered::default();
        let numbers: Vec<u32> = (0..10_000).map(|thing: u64| numbered.add(thing)).collect();
        assert!(numbered.all.capacity() < 10_000 + 10_000 / 4);
        for number in &numbers[10..] {
            assert_eq!(numbered.remove(*number), Some(u64::from(*number)));
        }
        assert!(numbered.all.capacity() < 100);
        assert_eq!((numbered.get(9), numbered.get(10), numbered.free.len()), (Some(&9), None, 0));
    }
}
