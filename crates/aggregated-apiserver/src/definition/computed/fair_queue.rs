//! Sources that wait for a slot.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use crate::object::Key;

/// A queue of sources: round-robin over namespaces, and first in, first out within a namespace. So the sources of one
/// namespace do not delay those of another one.
#[derive(Default)]
pub(super) struct FairQueue {
    /// The sources of each namespace, by their position. Sources without a namespace have the empty one.
    namespaces: BTreeMap<String, BTreeMap<u64, Key>>,
    /// The position of each source, and whether only a measurement has changed.
    positions: HashMap<Key, (u64, bool)>,
    next_position: u64,
    /// The namespace of the source that was removed last.
    last: String,
}

impl FairQueue {
    /// Whether there is no source.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Adds a source as the last one of its namespace. A source that waits already keeps its position.
    pub fn push(&mut self, source: Key, is_measured: bool) {
        if let Some((_, waits_measured)) = self.positions.get_mut(&source) {
            *waits_measured &= is_measured;
            return;
        }
        let position = self.next_position;
        self.next_position += 1;
        self.positions.insert(source.clone(), (position, is_measured));
        let namespace = source.namespace().unwrap_or_default().to_owned();
        self.namespaces.entry(namespace).or_default().insert(position, source);
    }

    /// Removes and returns the next source, with whether only a measurement has changed.
    pub fn pop(&mut self) -> Option<(Key, bool)> {
        let mut following = self.namespaces.range::<str, _>((Excluded(&*self.last), Unbounded));
        let following = following.next().or_else(|| self.namespaces.first_key_value());
        let source = following?.1.first_key_value()?.1.clone();
        self.last = source.namespace().unwrap_or_default().to_owned();
        let is_measured = self.remove(&source)?;
        Some((source, is_measured))
    }

    /// Removes a source. Returns whether only a measurement has changed, if the source was in the queue.
    pub fn remove(&mut self, source: &Key) -> Option<bool> {
        let (position, is_measured) = self.positions.remove(source)?;
        let namespace = source.namespace().unwrap_or_default();
        if let Some(sources) = self.namespaces.get_mut(namespace) {
            sources.remove(&position);
            if sources.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        Some(is_measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        match text.split_once('/') {
            Some((namespace, name)) => Key::new(Some(namespace), name),
            None => Key::new(None, text),
        }
    }

    fn queue(sources: &[&str]) -> FairQueue {
        let mut queue = FairQueue::default();
        sources.iter().for_each(|source| queue.push(key(source), false));
        queue
    }

    fn rest(queue: &mut FairQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).map(|(source, _)| source.to_string()).collect()
    }

    #[test]
    fn namespaces_take_turns_and_sources_of_a_namespace_are_in_order() {
        let mut all = queue(&["a/3", "a/1", "a/2", "b/1", "c/1", "b/0", "node"]);
        let expected = ["a/3", "b/1", "c/1", "node", "a/1", "b/0", "a/2"];
        assert_eq!(rest(&mut all), expected);
        assert!(all.is_empty() && all.namespaces.is_empty());
    }

    #[test]
    fn sources_are_in_the_queue_once() {
        let mut all = queue(&["a/1", "a/2", "a/1"]);
        assert_eq!(all.remove(&key("a/2")), Some(false));
        assert_eq!(all.remove(&key("a/2")), None);
        all.push(key("a/3"), true);
        assert_eq!(all.pop(), Some((key("a/1"), false)));
        assert_eq!(all.pop(), Some((key("a/3"), true)));
        assert_eq!(all.pop(), None);
    }

    #[test]
    fn other_changes_count_more_than_measurements() {
        for (one, other) in [(true, false), (false, true)] {
            let mut all = FairQueue::default();
            all.push(key("a/1"), one);
            all.push(key("a/1"), other);
            assert_eq!(all.pop(), Some((key("a/1"), false)));
        }
    }
}
