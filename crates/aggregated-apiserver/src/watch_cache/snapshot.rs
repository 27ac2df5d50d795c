//! A snapshot of a cache at one revision, which is read without a lock.

use super::objects::Objects;
use super::{Scope, WatchCacheEvent};
use crate::object::Key;
use crate::storage::{Revision, Versioned};

/// A snapshot of the objects of a cache at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Objects,
    revision: Revision,
}

impl Snapshot {
    pub(super) fn new(objects: Objects, revision: Revision) -> Self {
        Self { objects, revision }
    }

    /// The revision of the snapshot. It contains all changes up to this revision and none after it.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The objects of a scope in key order, from a key on if one is given.
    pub fn from<'a>(
        &'a self,
        scope: &'a Scope,
        start: Option<&Key>,
    ) -> impl Iterator<Item = &'a Versioned> + use<'a> {
        self.objects.from(scope, start)
    }

    /// The number of objects in a scope.
    pub fn count(&self, scope: &Scope) -> u64 {
        self.objects.count(scope)
    }

    /// Restores the state before a change.
    pub(super) fn undo(&mut self, change: &WatchCacheEvent) {
        match change.before() {
            Some(before) => self.objects.insert(change.key(), before.clone()),
            None => self.objects.remove(change.key()),
        };
    }
}
