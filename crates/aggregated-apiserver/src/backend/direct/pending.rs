//! The creates that are running. A quota counts them with the objects that the backend lists, because the backend may
//! list such an object or not.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::object::Key;

/// The keys of the objects that are being created, each with the number of its creates.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingCreates(Arc<Mutex<HashMap<Key, usize>>>);

/// A create that is running until this is dropped.
#[derive(Debug)]
pub(super) struct PendingCreate {
    all: PendingCreates,
    key: Key,
}

impl PendingCreates {
    /// Begins a create.
    pub(super) fn begin(&self, key: &Key) -> PendingCreate {
        *self.lock().entry(key.clone()).or_default() += 1;
        PendingCreate { all: self.clone(), key: key.clone() }
    }

    /// The keys in a namespace.
    pub(super) fn of(&self, namespace: &str) -> HashSet<Key> {
        let all = self.lock();
        all.keys().filter(|key| key.namespace() == Some(namespace)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingCreate {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        match all.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(all.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creates_are_pending_until_the_last_one_ends() {
        let all = PendingCreates::default();
        let (one, other) = (Key::new(Some("n"), "a"), Key::new(Some("m"), "a"));
        let both = (all.begin(&one), all.begin(&one));
        let elsewhere = all.begin(&other);
        assert_eq!(all.of("n"), HashSet::from([one.clone()]));
        drop((both.0, elsewhere));
        assert_eq!(all.of("n"), HashSet::from([one]));
        drop(both.1);
        assert!(all.of("n").is_empty() && all.lock().is_empty());
    }
}
