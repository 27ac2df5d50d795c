//! Everything a cache held at one revision, read without a lock.

use super::objects::Objects;
use super::{Scope, WatchCacheEvent};
use crate::object::Key;
use crate::storage::{Revision, Versioned};

/// Everything a cache held at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Objects,
    revision: Revision,
}

impl Snapshot {
    pub(super) fn new(objects: Objects, revision: Revision) -> Self {
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
        self.objects.from(scope, start)
    }

    /// How many objects a scope has.
    pub fn count(&self, scope: &Scope) -> u64 {
        self.objects.count(scope)
    }

    /// Goes back to before a change.
    pub(super) fn undo(&mut self, change: &WatchCacheEvent) {
        match change.before() {
            Some(before) => self.objects.insert(change.key(), before.clone()),
            None => self.objects.remove(change.key()),
        };
    }
}
