//! The visibility of the objects of a watch, if it follows a state. When the state changes, the watch sends the objects
//! that became visible or invisible.
//!
//! The state changes between two changes of objects. The objects of that moment are read from a snapshot, and every object
//! is compared with both states. Later changes are then sent as usual, with the new state. So no change is lost or sent
//! twice.
//!
//! The events have revisions before the boundary of the new state, but for a deletion that is the last event. A client that
//! loses its connection in between receives 410 then, and not the rest of the changes.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::Selection;
use super::step::Step;
use super::watch::{EventType, ObjectEvent};
use crate::kind::ErasedVisibility;
use crate::object::{Key, Object};
use crate::served_kind::{VisibilityState, VisibilityStates};
use crate::storage::{Revision, Versioned};
use crate::user::User;
use crate::watch_cache::{Lost, Scope, Subscription};

/// The number of events that are held until the client reads them.
const EVENTS: usize = 4;
/// The largest number of states that the objects of a client may belong to, while a new state is compared with them.
const SEGMENTS: usize = 16;

/// The visibility of the objects of a watch.
pub(super) struct Sight {
    states: Arc<VisibilityStates>,
    /// The state that the watch uses.
    state: Arc<VisibilityState>,
    changes: watch::Receiver<u64>,
    viewer: Arc<User>,
    scope: Scope,
    /// The revision of the last change that was processed.
    position: Revision,
    /// The revision that the client has resumed the watch from.
    resumed_from: Option<Revision>,
    scan: Option<Scan>,
    /// Events of the scan that were not sent.
    events: VecDeque<Found>,
    /// Whether a scan has ended, and no bookmark has followed.
    has_scanned: bool,
}

/// An event of a scan. The objects belong to the cache, or to its window, so a slow reader uses no memory for them.
struct Found {
    event_type: EventType,
    key: Key,
    object: Weak<Object>,
    revision: Revision,
}

/// A comparison of all objects with two states.
struct Scan {
    /// The revision of the objects.
    at: Revision,
    /// The rules by which the client has received its objects: each for the keys before its key.
    before: Vec<(Key, Arc<ErasedVisibility>)>,
    /// The rule by which the client has received the other objects.
    rest: Arc<ErasedVisibility>,
    /// The first key that has not been compared. `None` at the start.
    next: Option<Key>,
    has_begun: bool,
    /// Whether all objects have been compared.
    is_done: bool,
}

impl Sight {
    /// The visibility of a watch at its start; `None` if it follows no state. The selection gets the rule. The caller
    /// has subscribed to changes before this call.
    pub(super) fn begin(
        states: Option<&Arc<VisibilityStates>>,
        selection: &mut Selection,
        (scope, position): (Scope, Revision),
        resumed_from: Option<Revision>,
    ) -> Option<Self> {
        let (states, viewer) = (states?, selection.viewer.clone()?);
        let changes = states.subscribe();
        let state = states.newest();
        selection.rule = Some(Arc::clone(&state.rule));
        Some(Self {
            states: Arc::clone(states),
            state,
            changes,
            viewer,
            scope,
            position,
            resumed_from,
            scan: None,
            events: VecDeque::new(),
            has_scanned: false,
        })
    }

    /// The boundary of the state, if the revision is older.
    pub(super) fn boundary_after(&self, revision: Revision) -> Option<Revision> {
        self.state.boundary.filter(|boundary| revision < *boundary)
    }

    /// Whether the boundary of the state is known.
    pub(super) fn has_boundary(&self) -> bool {
        self.state.boundary.is_some()
    }

    /// Waits until the state has changed.
    pub(super) async fn changed(&mut self) {
        // The sender lives as long as `states`.
        let _ = self.changes.changed().await;
    }

    /// Whether there is a newer state.
    pub(super) fn is_stale(&self) -> bool {
        let newest = self.states.newest();
        (newest.number, newest.foreign) != (self.state.number, self.state.foreign)
    }

    /// Whether a change with this revision must wait for the comparison with a newer state. Changes of the same revision
    /// are processed together.
    pub(super) fn must_scan_before(&self, revision: Revision) -> bool {
        revision > self.position && self.is_stale()
    }

    /// Notes that a change with this revision was processed.
    pub(super) fn processed(&mut self, revision: Revision) {
        self.position = revision;
    }

    /// Whether changes of visibility have not been sent.
    pub(super) fn is_busy(&self) -> bool {
        self.scan.is_some()
    }

    /// Whether a bookmark is due after a scan.
    pub(super) fn take_scanned(&mut self) -> bool {
        std::mem::take(&mut self.has_scanned)
    }

    /// Goes over to the newest state, and begins to compare it with the former one. The subscription continues after
    /// the last processed change.
    ///
    /// # Errors
    /// If the watch must end.
    pub(super) fn change_state(
        &mut self,
        subscription: &mut Subscription,
        selection: &mut Selection,
    ) -> Result<(), Lost> {
        subscription.rewind(self.position);
        let newest = self.states.newest();
        if self.resumed_from.is_some_and(|revision| revision < newest.foreign) {
            return Err(Lost { oldest: newest.foreign });
        }
        let former = std::mem::replace(&mut self.state, newest);
        if former.number == self.state.number {
            return Ok(());
        }
        selection.rule = Some(Arc::clone(&self.state.rule));
        let former = Arc::clone(&former.rule);
        let first_unsent = self.events.front().map(|found| found.key.clone());
        self.events.clear();
        let scan = match self.scan.take() {
            Some(scan) => scan.interrupted(first_unsent, former),
            None => Scan::new(former),
        };
        if scan.before.len() > SEGMENTS {
            return Err(Lost { oldest: self.position });
        }
        self.scan = Some(scan);
        Ok(())
    }

    /// Takes the next event that was found.
    ///
    /// # Errors
    /// If its object is not known any more.
    pub(super) fn take_event(
        &mut self,
        selection: &Selection,
    ) -> Result<Option<ObjectEvent>, Lost> {
        while let Some(found) = self.events.pop_front() {
            self.end_scan();
            let object = found.object.upgrade().ok_or(Lost { oldest: self.position })?;
            let versioned = Versioned { revision: found.revision, object };
            // The selector has accepted the object.
            let any_user = Selection { viewer: None, ..selection.clone() };
            let Some(shown) = any_user.shown(&versioned) else { continue };
            let (event_type, versioned) = (found.event_type, shown.into_owned());
            return Ok(Some(ObjectEvent { event_type, versioned, change: None }));
        }
        Ok(None)
    }

    /// Ends a scan whose events were sent.
    fn end_scan(&mut self) {
        if self.events.is_empty() && self.scan.as_ref().is_some_and(|scan| scan.is_done) {
            self.scan = None;
            self.has_scanned = true;
        }
    }

    /// Compares the objects of one step. The caller may drop this future, so the scan only moves on between two waits.
    ///
    /// # Errors
    /// If the objects that must be compared are not known any more.
    pub(super) async fn step(
        &mut self,
        subscription: &mut Subscription,
        selection: &Selection,
    ) -> Result<(), Lost> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        if !scan.has_begun {
            // After the boundary, so that the watch can be resumed from the bookmark that follows the events.
            self.states.settled().await;
            scan.at = subscription.settle()?;
            scan.has_begun = true;
        }
        let lost = Lost { oldest: scan.at };
        // The semaphore is never closed.
        let permit = self.states.scans.acquire().await;
        // The objects are shared with the cache. While the client reads the events, no snapshot is held.
        let snapshot = subscription.cache().snapshot_at(scan.at).await.ok_or(lost)?;
        let any_user = Selection { viewer: None, ..selection.clone() };
        let (mut step, mut next) = (Step::default(), None);
        for versioned in snapshot.from(&self.scope, scan.next.as_ref()) {
            let key = versioned.object.key();
            let is_full = self.events.len() >= EVENTS;
            if is_full || step.is_over(versioned.object.size()) {
                next = Some(key.clone());
                break;
            }
            let is_visible = |rule: &ErasedVisibility| {
                selection.kind.is_visible_by(rule, &self.viewer, &versioned.object)
            };
            let (before, after) = (is_visible(scan.before(key)), is_visible(&self.state.rule));
            if before == after {
                continue;
            }
            if !any_user.matches(&versioned.object) {
                continue;
            }
            let (event_type, revision) = match after {
                true => (EventType::Added, versioned.revision),
                false => (EventType::Deleted, self.position),
            };
            let (key, object) = (key.clone(), Arc::downgrade(&versioned.object));
            self.events.push_back(Found { event_type, key, object, revision });
        }
        drop(permit);
        match next {
            Some(next) => scan.next = Some(next),
            None => {
                // After the last event, the client has all changes until here.
                if let Some(last) = self.events.back_mut()
                    && last.event_type == EventType::Deleted
                {
                    last.revision = scan.at;
                }
                scan.is_done = true;
            }
        }
        self.end_scan();
        tokio::task::yield_now().await;
        Ok(())
    }
}

impl Scan {
    /// A scan of objects that the client has received by one rule.
    fn new(rest: Arc<ErasedVisibility>) -> Self {
        let (before, next) = (Vec::new(), None);
        Self { at: Revision::NONE, before, rest, next, has_begun: false, is_done: false }
    }

    /// The rule by which the client has received the object of this key.
    fn before(&self, key: &Key) -> &ErasedVisibility {
        let mut rules = self.before.iter();
        let rule = rules.find(|(end, _)| key < end);
        rule.map_or(&self.rest, |(_, rule)| rule)
    }

    /// The scan that follows an interrupted one. Keys before the first unsent event, or before the first key that was not
    /// compared, have the rule of the interrupted scan.
    fn interrupted(self, first_unsent: Option<Key>, rule: Arc<ErasedVisibility>) -> Self {
        let again = Self::new(self.rest);
        let Some(end) = first_unsent.or(self.next) else {
            return Self { before: self.before, ..again };
        };
        let rest = self.before.into_iter().filter(|(other, _)| *other > end).collect::<Vec<_>>();
        let before = std::iter::once((end, rule)).chain(rest).collect();
        Self { before, ..again }
    }
}
