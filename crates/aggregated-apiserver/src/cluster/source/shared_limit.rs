//! The memory of the objects of all types, with a common limit.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use crate::object::Key;

/// The number of types that the message about an exceeded limit names.
const NAMED: usize = 3;

/// The memory of the objects of all types, with a common limit. Most types are small, so the limit of a single type is
/// larger than an equal part of the common limit.
pub(super) struct SharedLimit {
    limit: usize,
    bytes: AtomicUsize,
    types: Mutex<Vec<Weak<TypeMemory>>>,
    /// The informers that store objects by key.
    informers: RwLock<Vec<Weak<dyn StoresKeys>>>,
}

/// An informer of any type. It stores objects by key.
pub(super) trait StoresKeys: Send + Sync {
    /// Returns the stored key that equals this one.
    fn stored_key(&self, key: &Key) -> Option<Key>;
}

/// The memory of the objects of one type.
pub(super) struct TypeMemory {
    /// The name of the resource, for example `pods`.
    resource: String,
    bytes: AtomicUsize,
    all: Arc<SharedLimit>,
}

impl SharedLimit {
    pub fn within(limit: usize) -> Self {
        let (types, informers) = (Mutex::default(), RwLock::default());
        Self { limit, bytes: AtomicUsize::new(0), types, informers }
    }

    /// Counts `now` bytes towards the common limit, in place of the `before` bytes of the last call.
    pub fn count(&self, before: usize, now: usize) {
        count(&self.bytes, before, now);
    }

    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.bytes.load(Ordering::Relaxed))
    }

    /// Creates the memory account of a type with this resource name.
    pub fn of_type(self: &Arc<Self>, resource: String) -> Arc<TypeMemory> {
        let memory = TypeMemory { resource, bytes: AtomicUsize::new(0), all: Arc::clone(self) };
        let memory = Arc::new(memory);
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        types.retain(|one| one.strong_count() > 0);
        types.push(Arc::downgrade(&memory));
        memory
    }

    /// Adds an informer whose stored keys [`stored_key`](Self::stored_key) searches.
    pub fn add_informer(&self, informer: Weak<dyn StoresKeys>) {
        let mut informers = self.informers.write().unwrap_or_else(PoisonError::into_inner);
        informers.retain(|one| one.strong_count() > 0);
        informers.push(informer);
    }

    /// Returns the equal key that one of the types stores, or otherwise this key. Objects of several types may
    /// have the same key, for example a Pod and its metrics: the string of the key is in memory only once.
    pub fn stored_key(&self, key: Key) -> Key {
        let informers = self.informers.read().unwrap_or_else(PoisonError::into_inner);
        let mut stored =
            informers.iter().filter_map(|informer| informer.upgrade()?.stored_key(&key));
        stored.next().unwrap_or(key)
    }

    /// Explains that the common limit is exceeded, and names the types that use the most memory.
    pub fn explain(&self) -> String {
        let types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<Arc<TypeMemory>> = types.iter().filter_map(Weak::upgrade).collect();
        drop(types);
        // Each counter is read once, because other threads change it. A resource may be read in several scopes and as
        // several types.
        let mut taken: HashMap<&str, usize> = HashMap::new();
        for memory in &known {
            *taken.entry(&memory.resource).or_default() += memory.bytes.load(Ordering::Relaxed);
        }
        let mut taken: Vec<(&str, usize)> = taken.into_iter().collect();
        taken.sort_by_key(|(resource, bytes)| (Reverse(*bytes), *resource));
        let named = taken
            .iter()
            .take(NAMED)
            .map(|(resource, bytes)| format!("{resource} ({} MiB)", bytes.div_ceil(1 << 20)));
        let named = named.collect::<Vec<_>>().join(", ");
        let limit = self.limit >> 20;
        format!(
            "objects of all types take more than {limit} MiB of memory together, most of it {named}"
        )
    }
}

impl TypeMemory {
    /// Counts `now` bytes for the objects, in place of the `before` bytes of the last call.
    pub fn count(&self, before: usize, now: usize) {
        count(&self.bytes, before, now);
        self.all.count(before, now);
    }

    /// The common limit of all types.
    pub fn all(&self) -> &SharedLimit {
        &self.all
    }
}

impl Drop for TypeMemory {
    /// Returns the memory of the type to the common limit.
    fn drop(&mut self) {
        self.all.count(*self.bytes.get_mut(), 0);
    }
}

/// Counts `now` bytes in place of the `before` bytes of the last call.
pub(super) fn count(bytes: &AtomicUsize, before: usize, now: usize) {
    if now > before {
        bytes.fetch_add(now - before, Ordering::Relaxed);
    } else {
        bytes.fetch_sub(before - now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_error_names_the_largest_types_and_dropped_types_free_memory() {
        let all = Arc::new(SharedLimit::within(100 << 20));
        let [pods, nodes, events, sets] = ["pods", "nodes", "events", "replicasets.apps"]
            .map(|name| all.of_type(name.to_owned()));
        pods.count(0, 60 << 20);
        nodes.count(0, 1);
        events.count(0, 30 << 20);
        sets.count(0, (9 << 20) + 1);
        let said = "objects of all types take more than 100 MiB of memory together, most of it ";
        let most = "pods (60 MiB), events (30 MiB), replicasets.apps (10 MiB)";
        assert_eq!(all.explain(), format!("{said}{most}"));
        assert_eq!(all.left(), (1 << 20) - 2);
        pods.count(60 << 20, 20 << 20);
        drop(events);
        let most = "pods (20 MiB), replicasets.apps (10 MiB), nodes (1 MiB)";
        assert_eq!(all.explain(), format!("{said}{most}"));
        assert_eq!(all.left(), (71 << 20) - 2);
        let in_one_namespace = all.of_type("pods".to_owned());
        in_one_namespace.count(0, 5 << 20);
        let most = "pods (25 MiB), replicasets.apps (10 MiB), nodes (1 MiB)";
        assert_eq!(all.explain(), format!("{said}{most}"));
    }
}
