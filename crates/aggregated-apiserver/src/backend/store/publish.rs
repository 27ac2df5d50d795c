//! Publishes the changes of a backend to the followers of the store. Each change has a revision of its own.

use std::sync::Arc;

use super::{BackendStore, Entry, State};
use crate::object::{Key, Object};
use crate::storage::{Commit, Precondition, Revision, StoreError, Versioned};

/// The condition under which a change is published.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    /// No condition, because the caller holds the lock of the key.
    Locked,
    /// The key is not being written, and was not written since this time.
    NotWrittenSince(u64),
    /// The key is not being written, and the known object has this revision.
    At(Revision),
}

impl Condition {
    pub(super) fn is_met(self, state: &State, key: &Key, known: Option<&Versioned>) -> bool {
        match self {
            Self::Locked => true,
            Self::NotWrittenSince(time) => {
                !state.in_flight.contains(key) && !state.written.contains_since(key, time)
            }
            Self::At(revision) => {
                !state.in_flight.contains(key)
                    && known.is_some_and(|known| known.revision == revision)
            }
        }
    }
}

/// The outcome of a publication that has issued no revision.
enum Unpublished {
    /// The object is known already.
    Same(Revision),
    /// The condition is not met.
    Skipped,
    Failed(StoreError),
}

impl BackendStore {
    /// Publishes an object, or its deletion. Returns its revision; `None` if the condition is not met.
    ///
    /// # Errors
    /// If the known objects exceed their memory limit.
    pub(super) fn publish(
        &self,
        key: &Key,
        (object, entry): (Option<Arc<Object>>, Entry),
        condition: Condition,
    ) -> Result<Option<Revision>, StoreError> {
        if self.is_another(key, object.as_deref()) {
            // The new object has the same name and another UID. Watchers first receive the deletion of the old object.
            let deletion = (None, Entry::default());
            if self.publish_once(key, deletion, condition)?.is_none() {
                return Ok(None);
            }
        }
        let published = self.publish_once(key, (object, entry), condition);
        self.changed();
        published
    }

    fn is_another(&self, key: &Key, object: Option<&Object>) -> bool {
        let state = self.lock();
        let known = state.index.get(&self.collection, key).ok().flatten();
        let (Some(known), Some(object)) = (known, object) else { return false };
        known.object.uid() != object.uid()
    }

    fn publish_once(
        &self,
        key: &Key,
        (object, entry): (Option<Arc<Object>>, Entry),
        condition: Condition,
    ) -> Result<Option<Revision>, StoreError> {
        let published = self.sequencer.publish(|revision| {
            let mut state = self.lock();
            let known = state.index.get(&self.collection, key).map_err(Unpublished::Failed)?;
            let known = known.cloned();
            if !condition.is_met(&state, key, known.as_ref()) {
                return Err(Unpublished::Skipped);
            }
            let is_same = match (&known, &object) {
                (Some(known), Some(object)) => known.object.same_content(object),
                (known, object) => known.is_none() && object.is_none(),
            };
            let at = known.as_ref().map(|known| known.revision);
            let is_there = object.is_some();
            if !is_same {
                let commit = Commit {
                    collection: self.collection.clone(),
                    key: key.clone(),
                    expected: at.map_or(Precondition::Absent, Precondition::At),
                    object,
                    marks: false,
                };
                self.take_memory(&mut state, &commit, known.as_ref())
                    .map_err(Unpublished::Failed)?;
                state.index.keep(revision, commit);
            }
            match is_there {
                true => drop(state.entries.insert(key.clone(), entry)),
                false => drop(state.entries.remove(key)),
            }
            match is_same {
                true => Err(Unpublished::Same(at.unwrap_or_else(|| self.sequencer.current()))),
                false => Ok(revision),
            }
        });
        match published {
            Ok(revision) | Err(Unpublished::Same(revision)) => Ok(Some(revision)),
            Err(Unpublished::Skipped) => Ok(None),
            Err(Unpublished::Failed(error)) => Err(error),
        }
    }
}
