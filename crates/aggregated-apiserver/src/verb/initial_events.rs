//! The first events of a watch that begins with the existing objects.

use super::Selection;
use super::step::Step;
use super::watch::{Bookmark, Event, EventType, ObjectEvent};
use crate::kind::is_incomplete;
use crate::object::Key;
use crate::storage::Versioned;
use crate::watch_cache::{Scope, Snapshot};

/// The initial events of a watch: an ADDED event for every existing object, in the order of their keys.
pub struct InitialEvents {
    snapshot: Snapshot,
    scope: Scope,
    selection: Selection,
    /// The first key that has not been processed.
    next: Option<Key>,
    marks_end: bool,
    done: bool,
}

impl InitialEvents {
    /// The events for the objects of a scope in a snapshot. `marks_end` adds a bookmark after them.
    pub(super) fn new(
        snapshot: Snapshot,
        scope: Scope,
        selection: Selection,
        marks_end: bool,
    ) -> Self {
        Self { snapshot, scope, selection, next: None, marks_end, done: false }
    }

    /// Whether all initial events have been read.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The size of the next object, in bytes.
    pub fn size_of_next(&self) -> usize {
        let next = self.snapshot.from(&self.scope, self.next.as_ref()).next();
        next.map_or(0, |versioned| versioned.object.size())
    }

    /// Processes the objects of one step, and passes their events to `take` until it returns false. An object that a
    /// webhook must convert first is processed again by the next call.
    pub fn look(&mut self, mut take: impl FnMut(Event) -> bool) {
        let mut step = Step::default();
        let objects = self.snapshot.from(&self.scope, self.next.as_ref());
        let mut next = None;
        for versioned in objects {
            let key = versioned.object.key();
            if step.is_over(versioned.object.size()) {
                next = Some(key.clone());
                break;
            }
            if let Some(shown) = self.selection.shown(versioned) {
                let (event_type, versioned) = (EventType::Added, shown.into_owned());
                let event = ObjectEvent { event_type, versioned, change: None };
                let goes_on = take(Event::Object(event));
                if is_incomplete() {
                    next = Some(key.clone());
                    break;
                }
                if !goes_on {
                    self.next = Some(key.following());
                    return;
                }
            }
            if is_incomplete() {
                next = Some(key.clone());
                break;
            }
        }
        if let Some(next) = next.as_ref().filter(|_| is_incomplete()) {
            // The following objects are converted in the same call of the webhook.
            let mut step = Step::default();
            let following = self.snapshot.from(&self.scope, Some(next));
            for Versioned { object, .. } in
                following.take_while(|one| !step.is_over(one.object.size()))
            {
                let _ = self.selection.kind.in_version(object, &self.selection.version);
            }
        }
        self.next = next;
        self.done = self.next.is_none();
        if self.done && self.marks_end {
            let revision = self.selection.told(self.snapshot.revision());
            take(Event::Bookmark(Bookmark { revision, ends_initial: true }));
        }
    }
}
