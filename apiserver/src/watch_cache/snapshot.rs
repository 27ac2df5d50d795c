//! Everything a cache held at one revision, read without a lock.

use std::ops::Bound;

use imbl::OrdMap;

use super::{Change, Scope};
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

    /// The objects of a scope from a key on, or all, in order of their keys.
    pub fn from<'a>(
        &'a self,
        scope: &'a Scope,
        start: Option<&Key>,
    ) -> impl Iterator<Item = &'a Versioned> + use<'a> {
        let first = first_of(scope);
        let start = match (start, first) {
            (Some(start), Some(first)) => Bound::Included(start.max(&first).clone()),
            (Some(start), None) => Bound::Included(start.clone()),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| scope.contains(key))
            .map(|(_, versioned)| versioned)
    }

    /// How many objects a scope has, from a key on.
    pub fn count(&self, scope: &Scope, start: Option<&Key>) -> u64 {
        let count = match (scope, start) {
            (Scope::All, None) => self.objects.len(),
            _ => self.from(scope, start).count(),
        };
        count as u64
    }

    /// Goes back to before a change.
    pub(super) fn undo(&mut self, change: &Change) {
        match change.before() {
            Some(before) => self.objects.insert(change.key().clone(), before.clone()),
            None => self.objects.remove(change.key()),
        };
    }
}

fn first_of(scope: &Scope) -> Option<Key> {
    match scope {
        Scope::All => None,
        Scope::Namespace(namespace) => Some(Key::first_of_namespace(namespace)),
        Scope::Object(key) => Some(key.clone()),
    }
}
