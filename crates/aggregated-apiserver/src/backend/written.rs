//! The keys that were written lately. Lists and events that are older than these writes must not undo them.

use std::collections::HashMap;

use crate::object::Key;

/// The largest number of remembered keys.
const LIMIT: usize = 1 << 16;

/// Recently written keys, each with the logical time of its last write: the number of writes that had ended by then.
#[derive(Debug, Default)]
pub(super) struct WrittenKeys {
    times: HashMap<Key, u64>,
    now: u64,
    /// The time at which the full map was cleared. Every key counts as written at this time.
    forgotten: u64,
}

impl WrittenKeys {
    /// The time now.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Remembers a write that has ended now.
    pub(super) fn add(&mut self, key: &Key) {
        self.now += 1;
        if self.times.len() >= LIMIT {
            self.times.clear();
            self.forgotten = self.now;
        }
        self.times.insert(key.clone(), self.now);
    }

    /// Whether a key was written after this time.
    pub(super) fn contains_since(&self, key: &Key, time: u64) -> bool {
        self.forgotten > time || self.times.get(key).is_some_and(|written| *written > time)
    }

    /// Forgets the writes until this time, because everything that arrives from now on is newer.
    pub(super) fn forget_until(&mut self, time: u64) {
        self.times.retain(|_, written| *written > time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_until_they_are_forgotten() {
        let key = |name: &str| Key::new(None, name);
        let mut written = WrittenKeys::default();
        let before = written.now();
        written.add(&key("a"));
        let between = written.now();
        written.add(&key("b"));
        assert!(written.contains_since(&key("a"), before));
        assert!(!written.contains_since(&key("a"), between));
        written.forget_until(between);
        assert!(!written.contains_since(&key("a"), before));
        assert!(written.contains_since(&key("b"), before));
    }

    #[test]
    fn the_number_of_keys_is_limited_and_no_write_is_lost() {
        let mut written = WrittenKeys::default();
        let before = written.now();
        for number in 0..=LIMIT {
            written.add(&Key::new(None, &number.to_string()));
        }
        assert!(written.times.len() <= LIMIT);
        assert!(
            (0..=LIMIT)
                .all(|one| written.contains_since(&Key::new(None, &one.to_string()), before))
        );
        let later = written.now();
        assert!(!written.contains_since(&Key::new(None, "0"), later));
    }
}
