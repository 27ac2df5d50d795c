//! Everything a cache held at one revision, read without a lock.

use std::ops::Bound;

use imbl::OrdMap;

use super::Scope;
use crate::object::Key;
use crate::storage::{Revision, Versioned};

/// Everything a cache held at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: OrdMap<Key, Versioned>,
    revision: Revision,
}

impl Snapshot {
    pub(super) fn new(objects: OrdMap<Key, Versioned>, revision: Revision) -> Self {
        Self { objects, revision }
    }

    /// The revision: everything up to it is in, nothing after it.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The objects of a scope that come after a key, in order of their keys.
    pub fn after<'a>(
        &'a self,
        scope: &'a Scope,
        key: Option<&Key>,
    ) -> impl Iterator<Item = &'a Versioned> {
        let start = match (key, scope) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Scope::All) => Bound::Unbounded,
            (None, Scope::Namespace(namespace)) => {
                Bound::Included(Key::first_of_namespace(namespace))
            }
            (None, Scope::Object(key)) => Bound::Included(key.clone()),
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| scope.contains(key))
            .map(|(_, versioned)| versioned)
    }
}
