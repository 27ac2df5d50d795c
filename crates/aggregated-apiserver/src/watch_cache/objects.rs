//! The objects of a kind by key, with a counter per namespace.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use super::Scope;
use crate::object::Key;
use crate::storage::Versioned;

/// Objects by key. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    by_key: OrdMap<Key, Versioned>,
    /// The number of objects in each namespace that has some.
    in_namespace: OrdMap<Arc<str>, u64>,
    bytes: usize,
}

impl Objects {
    pub fn get(&self, key: &Key) -> Option<&Versioned> {
        self.by_key.get(key)
    }

    /// The objects directly before and after a key.
    pub fn neighbours(&self, key: &Key) -> impl Iterator<Item = &Versioned> {
        let mut before = self.by_key.range::<_, Key>((Bound::Unbounded, Bound::Excluded(key)));
        let mut behind = self.by_key.range::<_, Key>((Bound::Excluded(key), Bound::Unbounded));
        let both = before.next_back().into_iter().chain(behind.next());
        both.map(|(_, versioned)| versioned)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The size of the objects, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Inserts an object. Returns the previous object of the key.
    pub fn insert(&mut self, key: &Key, object: Versioned) -> Option<Versioned> {
        self.bytes += object.object.size();
        let before = self.by_key.insert(key.clone(), object);
        self.bytes -= before.as_ref().map_or(0, |before| before.object.size());
        if let (None, Some(namespace)) = (&before, key.namespace()) {
            let count = self.in_namespace.get(namespace).copied().unwrap_or_default();
            self.in_namespace.insert(namespace.into(), count + 1);
        }
        before
    }

    /// Removes an object and returns it.
    pub fn remove(&mut self, key: &Key) -> Option<Versioned> {
        let before = self.by_key.remove(key);
        self.bytes -= before.as_ref().map_or(0, |before| before.object.size());
        if let (Some(_), Some(namespace)) = (&before, key.namespace()) {
            match self.in_namespace.get(namespace).copied() {
                Some(count) if count > 1 => {
                    self.in_namespace.insert(namespace.into(), count - 1);
                }
                _ => {
                    self.in_namespace.remove(namespace);
                }
            }
        }
        before
    }

    /// The objects of a scope in key order, from a key on if one is given.
    pub fn from<'a>(
        &'a self,
        scope: &'a Scope,
        start: Option<&Key>,
    ) -> impl Iterator<Item = &'a Versioned> + use<'a> {
        let first = match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => Some(Key::first_of_namespace(namespace)),
            Scope::Object(key) => Some(key.clone()),
        };
        let start = match (start, first) {
            (Some(start), Some(first)) => Bound::Included(start.max(&first).clone()),
            (Some(start), None) => Bound::Included(start.clone()),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        self.by_key
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| scope.contains(key))
            .map(|(_, versioned)| versioned)
    }

    /// The number of objects in a scope.
    pub fn count(&self, scope: &Scope) -> u64 {
        match scope {
            Scope::All => self.by_key.len() as u64,
            Scope::Namespace(namespace) => {
                self.in_namespace.get(namespace).copied().unwrap_or_default()
            }
            Scope::Object(key) => u64::from(self.by_key.contains_key(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use crate::storage::Revision;
    use serde_json::json;

    #[test]
    fn counts_and_neighbours_match_the_stored_objects() {
        let mut objects = Objects::default();
        let mut random = fastrand::Rng::with_seed(7);
        let tree = json!({"metadata": {"name": "a", "uid": "u"}});
        let object = Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap());
        for revision in 1..2_000 {
            let namespace = random.choice([None, Some("a"), Some("b"), Some("a-b")]).unwrap();
            let key = Key::new(namespace, &random.u8(0..8).to_string());
            if random.bool() {
                let object = Arc::clone(&object);
                objects.insert(&key, Versioned { revision: Revision::new(revision), object });
            } else {
                objects.remove(&key);
            }
            let before = objects.by_key.iter().rfind(|(other, _)| **other < key);
            let behind = objects.by_key.iter().find(|(other, _)| **other > key);
            let expected =
                before.into_iter().chain(behind).map(|(_, versioned)| versioned.revision);
            let neighbours = objects.neighbours(&key).map(|versioned| versioned.revision);
            assert!(neighbours.eq(expected));
            let namespaces = ["a", "b", "a-b", "c"].map(|name| Scope::Namespace(name.into()));
            for scope in namespaces.into_iter().chain([Scope::All, Scope::Object(key)]) {
                assert_eq!(objects.count(&scope), objects.from(&scope, None).count() as u64);
            }
        }
    }
}
