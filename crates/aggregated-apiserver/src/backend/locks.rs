//! One lock for each key: the writes of one object run sequentially.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::object::Key;

/// The locks that are held or awaited.
#[derive(Debug, Default)]
pub(super) struct KeyLocks(Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>);

impl KeyLocks {
    /// Waits for the lock of a key. Waiters get it in the order of their calls.
    pub(super) async fn lock(&self, key: &Key) -> OwnedMutexGuard<()> {
        self.of(key).lock_owned().await
    }

    /// Takes the lock of a key, unless it is held.
    pub(super) fn try_lock(&self, key: &Key) -> Option<OwnedMutexGuard<()>> {
        self.of(key).try_lock_owned().ok()
    }

    fn of(&self, key: &Key) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len().is_power_of_two() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(key.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_key_has_one_holder_and_unused_locks_are_removed() {
        let locks = KeyLocks::default();
        let key = Key::new(None, "a");
        let held = locks.lock(&key).await;
        assert!(locks.lock(&key).now_or_never().is_none() && locks.try_lock(&key).is_none());
        assert!(locks.lock(&Key::new(None, "b")).now_or_never().is_some());
        drop(held);
        assert!(locks.try_lock(&key).is_some());
        for number in 0..1_000 {
            drop(locks.lock(&Key::new(None, &number.to_string())).await);
        }
        assert!(locks.0.lock().unwrap().len() < 10);
    }
}
