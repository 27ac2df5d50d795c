//! WATCH: follows the changes of a scope.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::Selection;
use super::initial_events::InitialEvents;
use super::list::{Freshness, ensure_fresh, ensure_newest, ensure_readable, ensure_synced};
use super::sight::Sight;
use crate::conversion::known;
use crate::error::{ApiError, Reason};
use crate::quota::Account;
use crate::served_kind::{ServedKind, VisibilityStates};
use crate::storage::{Revision, Versioned};
use crate::watch_cache::{Lost, Scope, Subscription, WatchCacheEvent};

/// The options of a watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The selected objects.
    pub selection: Selection,
    /// The first events of the watch.
    pub start: WatchStart,
    /// Whether the client wants bookmarks, which report the current revision when nothing changes.
    pub bookmarks: bool,
}

/// The first events of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// The watch starts with the next change.
    Now,
    /// The watch starts with the first change after this revision.
    After(Revision),
    /// The watch starts with an ADDED event for every existing object.
    State {
        /// The required freshness of the existing objects.
        at_least: Freshness,
        /// Whether a bookmark marks the end of the existing objects.
        marks_end: bool,
    },
}

/// The type of an event, from the view of the watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object exists, or matches the selector now.
    Added,
    /// The object has changed and still matches.
    Modified,
    /// The object was deleted, or does not match any more.
    Deleted,
}

impl EventType {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// A change of an object.
    Object(ObjectEvent),
    /// All events up to a revision have been sent.
    Bookmark(Bookmark),
}

/// A change of an object, from the view of the watcher.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// The type of the event.
    pub event_type: EventType,
    /// The object at the revision of the event. For a deletion, the object in its last matching state.
    pub versioned: Versioned,
    /// The change that caused the event, for sharing the encoded event with other watchers. Set only if the event
    /// contains the whole change.
    pub change: Option<Arc<WatchCacheEvent>>,
}

/// Reports that all events up to a revision have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// The revision.
    pub revision: Revision,
    /// Whether the bookmark marks the end of the initial events.
    pub ends_initial: bool,
}

/// A watch: every change after its start.
pub struct WatchStream {
    selection: Selection,
    /// The initial events, if they were requested and have not been taken.
    initial: Option<InitialEvents>,
    subscription: Option<Subscription>,
    /// Waits for the start revision, if it is in the future.
    arrival: Option<BoxFuture<'static, Result<(), ApiError>>>,
    /// The changes that have not been processed. Only the watch window owns them, so a slow reader uses no memory for
    /// them.
    changes: VecDeque<Weak<WatchCacheEvent>>,
    account: Account,
    /// An error that ends the watch.
    refused: Option<ApiError>,
    bookmarks: bool,
    /// The visibility, if it follows a state.
    sight: Option<Box<Sight>>,
}

/// Starts a watch. A revision that is expired or not reached in time is reported as an event of the watch instead of an
/// error of the request. kube-apiserver does the same, and clients expect it.
///
/// # Errors
/// 429 until the kind is synced, when watches of the kind end, and while a change of visibility cannot be stored; 500 if
/// an initial object cannot be read; 503 if the store does not respond.
pub async fn watch(
    served: &ServedKind,
    scope: Scope,
    options: WatchOptions,
    account: &Account,
) -> Result<WatchStream, ApiError> {
    if served.ended.is_cancelled() {
        return Err(watches_end());
    }
    ensure_synced(served)?;
    let mut watching = WatchStream {
        selection: options.selection,
        initial: None,
        subscription: None,
        arrival: None,
        changes: VecDeque::new(),
        account: account.clone(),
        refused: None,
        bookmarks: options.bookmarks,
        sight: None,
    };
    let states = served.visibility.as_ref().filter(|_| watching.selection.viewer.is_some());
    if let Some(states) = states {
        states.settled().await;
    }
    match options.start {
        WatchStart::Now => {
            ensure_newest(served).await?;
            let (snapshot, subscription) = served.cache.subscribe(scope.clone());
            watching.subscription = Some(subscription);
            watching.see(states, (scope, snapshot.revision()), None);
        }
        WatchStart::After(revision) => {
            match served.cache.subscribe_after(scope.clone(), revision) {
                Ok(subscription) => {
                    watching.subscription = Some(subscription);
                    watching.see(states, (scope, revision), Some(revision));
                    if watching.sight.as_ref().is_some_and(|sight| !sight.has_boundary()) {
                        return Err(boundary_unknown());
                    }
                    if !served.cache.has_reached(revision) {
                        let served = served.clone();
                        let arrival = async move { ensure_fresh(&served, revision).await };
                        watching.arrival = Some(arrival.boxed());
                    }
                }
                Err(lost) => watching.refused = Some(too_old(revision, lost.oldest)),
            }
        }
        WatchStart::State { at_least, marks_end } => {
            let fresh = match at_least {
                Freshness::Any => Ok(()),
                Freshness::NotOlderThan(revision) => ensure_fresh(served, revision).await,
                Freshness::Latest => ensure_newest(served).await,
            };
            if let Err(error) = fresh {
                // A revision of another process is older than all existing objects.
                if error.reason() != Reason::Expired {
                    watching.refused = Some(error);
                    return Ok(watching);
                }
            }
            let (snapshot, subscription) = loop {
                let (snapshot, subscription) = served.cache.subscribe(scope.clone());
                watching.see(states, (scope.clone(), snapshot.revision()), None);
                let sight = watching.sight.as_ref();
                if sight.is_none_or(|sight| sight.boundary_after(snapshot.revision()).is_none()) {
                    break (snapshot, subscription);
                }
            };
            ensure_readable(served, &scope)?;
            let selection = watching.selection.clone();
            let initial = InitialEvents::new(snapshot, scope, selection, marks_end);
            watching.initial = Some(initial);
            watching.subscription = Some(subscription);
        }
    }
    Ok(watching)
}

impl WatchStream {
    /// Uses the newest state of the visibility, if it follows a state. A watch that was resumed from a revision before the
    /// boundary of the state is refused.
    fn see(
        &mut self,
        states: Option<&Arc<VisibilityStates>>,
        (scope, position): (Scope, Revision),
        resumed_from: Option<Revision>,
    ) {
        let at = (scope, position);
        self.sight = Sight::begin(states, &mut self.selection, at, resumed_from).map(Box::new);
        let Some((revision, sight)) = resumed_from.zip(self.sight.as_ref()) else { return };
        if let Some(boundary) = sight.boundary_after(revision) {
            self.refused = Some(too_old(revision, boundary));
        }
    }

    /// Takes the initial events. They must be sent before the first change.
    pub fn take_initial(&mut self) -> Option<InitialEvents> {
        self.initial.take()
    }

    /// Whether the client wants bookmarks.
    pub fn wants_bookmarks(&self) -> bool {
        self.bookmarks
    }

    /// Returns a bookmark with the current revision, or `None` if there are unsent changes.
    pub fn bookmark(&mut self) -> Option<Event> {
        if !self.changes.is_empty() {
            return None;
        }
        let revision = self.subscription.as_mut()?.progress()?;
        // The state is read after the revision.
        if self.sight.as_ref().is_some_and(|sight| sight.is_busy() || sight.is_stale()) {
            return None;
        }
        let revision = self.selection.told(revision);
        Some(Event::Bookmark(Bookmark { revision, ends_initial: false }))
    }

    /// Waits for the next change. Returns `None` after an error, which ends the watch.
    pub async fn next(&mut self) -> Option<Result<Event, ApiError>> {
        if let Some(error) = self.refused.take() {
            self.subscription = None;
            return Some(Err(error));
        }
        if let Some(arrival) = self.arrival.as_mut() {
            // The caller may drop this future and call `next` again, so the state is only changed afterwards.
            let arrived = arrival.await;
            self.arrival = None;
            if let Err(error) = arrived {
                self.subscription = None;
                return Some(Err(error));
            }
        }
        loop {
            if self.sight.is_some() {
                // Boxed, because most watches do not need the memory of this future.
                match Box::pin(self.change_of_visibility()).await {
                    Ok(None) => {}
                    Ok(Some(event)) => return Some(Ok(event)),
                    Err(_) => return self.lost(),
                }
            }
            if let Some(change) = self.changes.front() {
                let Some(change) = change.upgrade() else { return self.lost() };
                if self.sight.as_ref().is_some_and(|it| it.must_scan_before(change.revision())) {
                    match self.change_state() {
                        Ok(()) => continue,
                        Err(_) => return self.lost(),
                    }
                }
                let selection = &self.selection;
                let event = || to_event(selection, Arc::clone(&change));
                // The caller may drop this future and call `next` again, so the change is removed only afterwards.
                let event = known(&selection.kind, &self.account, event).await;
                self.changes.pop_front();
                if let Some(sight) = &mut self.sight {
                    sight.processed(change.revision());
                }
                match event {
                    Ok(Some(event)) => return Some(Ok(Event::Object(event))),
                    Ok(None) => {}
                    Err(error) => {
                        self.subscription = None;
                        return Some(Err(error));
                    }
                }
                continue;
            }
            // Other tasks run in between if many past changes do not match.
            tokio::task::coop::consume_budget().await;
            let subscription = self.subscription.as_mut()?;
            let changes = match &mut self.sight {
                None => subscription.next().await,
                Some(sight) => tokio::select! {
                    biased;
                    () = Box::pin(sight.changed()) => {
                        match sight.is_stale().then(|| self.change_state()) {
                            None | Some(Ok(())) => continue,
                            Some(Err(_)) => return self.lost(),
                        }
                    }
                    changes = subscription.next() => changes,
                },
            };
            match changes {
                Ok(changes) => self.changes.extend(changes.iter().map(Arc::downgrade)),
                Err(_) => return self.lost(),
            }
        }
    }

    /// Returns the next event of a change of visibility, and a bookmark after the last one.
    async fn change_of_visibility(&mut self) -> Result<Option<Event>, Lost> {
        loop {
            // A newer state replaces the one of a comparison that is running.
            if self.sight.as_ref().is_some_and(|sight| sight.is_busy() && sight.is_stale()) {
                self.change_state()?;
            }
            let (Some(sight), Some(subscription)) = (&mut self.sight, &mut self.subscription)
            else {
                return Ok(None);
            };
            if let Some(event) = sight.take_event(&self.selection)? {
                return Ok(Some(Event::Object(event)));
            }
            if !sight.is_busy() {
                let is_due = sight.take_scanned() && self.bookmarks;
                return Ok(is_due.then(|| self.bookmark()).flatten());
            }
            sight.step(subscription, &self.selection).await?;
        }
    }

    /// Goes over to the newest state of the visibility.
    fn change_state(&mut self) -> Result<(), Lost> {
        let (Some(sight), Some(subscription)) = (&mut self.sight, &mut self.subscription) else {
            return Ok(());
        };
        // They are read again.
        self.changes.clear();
        sight.change_state(subscription, &mut self.selection)
    }

    /// Ends the watch, because a change has left the watch window before it was sent.
    fn lost(&mut self) -> Option<Result<Event, ApiError>> {
        self.subscription = None;
        self.changes.clear();
        let message = "The resourceVersion for the provided watch is too old.";
        Some(Err(ApiError::expired(message)))
    }
}

/// Converts a change to the event that the watcher receives: only matching objects count, without their omitted fields.
/// A change of omitted fields alone is not an event.
fn to_event(selection: &Selection, change: Arc<WatchCacheEvent>) -> Option<ObjectEvent> {
    let matching = |side: Option<&Versioned>| {
        side.and_then(|versioned| selection.shown(versioned)).map(Cow::into_owned)
    };
    let (before, after) = (matching(change.before()), matching(change.after()));
    let (event_type, versioned) = match (before, after) {
        (None, Some(after)) => (EventType::Added, after),
        (Some(before), Some(after)) => {
            let is_redacted = selection.redaction.is_some();
            if is_redacted && before.object.same_content(&after.object) {
                return None;
            }
            (EventType::Modified, after)
        }
        (Some(before), None) => {
            let revision = selection.told(change.revision());
            (EventType::Deleted, Versioned { revision, object: before.object })
        }
        (None, None) => return None,
    };
    // Encodings of the whole change, which other watchers share, must not be sent to a watcher with omitted fields.
    let change = selection.redaction.is_none().then_some(change);
    Some(ObjectEvent { event_type, versioned, change })
}

/// Rejects a watch that would end immediately, because client-go lists all objects again after a watch without events.
/// A rejected watch is retried: at another server, or with the new definition of the kind.
fn watches_end() -> ApiError {
    const WHY: &str = "watches end, because the server or the definition of their kind does: please try again later.";
    ApiError::try_again(WHY, 1)
}

/// Rejects a watch that is resumed while the store does not accept a change of visibility. A list would not help, because
/// its revision could not be resumed either.
fn boundary_unknown() -> ApiError {
    const WHY: &str = "a change of visibility is not stored yet: please try again later";
    ApiError::try_again(WHY, 1)
}

fn too_old(requested: Revision, oldest: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
}
