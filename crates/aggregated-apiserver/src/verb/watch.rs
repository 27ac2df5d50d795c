//! WATCH: follow the changes of a scope.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::Selection;
use super::list::{Freshness, ensure_fresh, ensure_newest, ensure_readable, ensure_synced};
use super::step::Step;
use crate::conversion::known;
use crate::error::{ApiError, Reason};
use crate::kind::is_incomplete;
use crate::object::Key;
use crate::quota::Account;
use crate::served_kind::ServedKind;
use crate::storage::{Revision, Versioned};
use crate::watch_cache::{Scope, Snapshot, Subscription, WatchCacheEvent};

/// How objects are watched.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Which of them.
    pub selection: Selection,
    /// What the watch begins with.
    pub start: WatchStart,
    /// Whether the client wants to know how far it has come when nothing happens.
    pub bookmarks: bool,
}

/// What a watch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// The first change from now on.
    Now,
    /// The first change after this revision.
    After(Revision),
    /// What is there.
    State {
        /// At least as new as this.
        at_least: Freshness,
        /// Whether a bookmark says that this was all.
        marks_end: bool,
    },
}

/// What happened to an object, as the watcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It is there, or came into the selection.
    Added,
    /// It changed and still matches.
    Modified,
    /// It is gone, or left the selection.
    Deleted,
}

impl EventType {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// Something happened to an object.
    Object(ObjectEvent),
    /// Everything up to a revision was sent.
    Bookmark(Bookmark),
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// What happened.
    pub event_type: EventType,
    /// The object: as it is, or as it last matched, at the revision of the event.
    pub versioned: Versioned,
    /// The change behind the event, if other watchers see the same one: what the event holds is all of it.
    pub change: Option<Arc<WatchCacheEvent>>,
}

/// Everything up to a revision was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// The revision.
    pub revision: Revision,
    /// Whether what was there to begin with was sent with it.
    pub ends_initial: bool,
}

/// What a watch begins with: what is there, as ADDED, in the order of keys.
pub struct InitialEvents {
    snapshot: Snapshot,
    scope: Scope,
    selection: Selection,
    /// The first key that was not looked at.
    next: Option<Key>,
    marks_end: bool,
    done: bool,
}

impl InitialEvents {
    /// Whether all of it was taken.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// What the next object takes, in bytes.
    pub fn size_of_next(&self) -> usize {
        let next = self.snapshot.from(&self.scope, self.next.as_ref()).next();
        next.map_or(0, |versioned| versioned.object.size())
    }

    /// Looks at some more objects, and hands on the events that come of them
    /// until `take` says that it is enough. What a webhook has to be asked about first is looked at again.
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
            // What follows is asked about in the same call.
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

/// A watch: every change after its beginning.
pub struct WatchStream {
    selection: Selection,
    /// What it begins with, if that was asked for and not yet taken.
    initial: Option<InitialEvents>,
    subscription: Option<Subscription>,
    /// Waits for the revision that it begins after, if that lies in the future.
    arrival: Option<BoxFuture<'static, Result<(), ApiError>>>,
    /// Changes that were not looked at yet. They stay in the window and nowhere else: whoever reads slowly holds nothing.
    changes: VecDeque<Weak<WatchCacheEvent>>,
    account: Account,
    /// An error that ends the watch.
    refused: Option<ApiError>,
    bookmarks: bool,
}

/// Begins a watch. A revision that is gone, or does not arrive, is an event of
/// the watch, not a refusal of it: so does kube-apiserver, and clients expect
/// it there.
///
/// # Errors
/// 429 before the kind is synced, 500 when it is to begin with what cannot be read, 503 when the store
/// does not answer.
pub async fn watch(
    served: &ServedKind,
    scope: Scope,
    options: WatchOptions,
    account: &Account,
) -> Result<WatchStream, ApiError> {
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
    };
    match options.start {
        WatchStart::Now => {
            ensure_newest(served).await?;
            watching.subscription = Some(served.cache.subscribe(scope).1);
        }
        WatchStart::After(revision) => match served.cache.subscribe_after(scope, revision) {
            Ok(subscription) => {
                watching.subscription = Some(subscription);
                if !served.cache.has_reached(revision) {
                    let served = served.clone();
                    let arrival = async move { ensure_fresh(&served, revision).await };
                    watching.arrival = Some(arrival.boxed());
                }
            }
            Err(lost) => watching.refused = Some(too_old(revision, lost.oldest)),
        },
        WatchStart::State { at_least, marks_end } => {
            let fresh = match at_least {
                Freshness::Any => Ok(()),
                Freshness::NotOlderThan(revision) => ensure_fresh(served, revision).await,
                Freshness::Latest => ensure_newest(served).await,
            };
            if let Err(error) = fresh {
                // A revision of another process is older than all there is.
                if error.reason() != Reason::Expired {
                    watching.refused = Some(error);
                    return Ok(watching);
                }
            }
            let (snapshot, subscription) = served.cache.subscribe(scope.clone());
            ensure_readable(served, &scope)?;
            let selection = watching.selection.clone();
            let (next, done) = (None, false);
            watching.initial =
                Some(InitialEvents { snapshot, scope, selection, next, marks_end, done });
            watching.subscription = Some(subscription);
        }
    }
    Ok(watching)
}

impl WatchStream {
    /// What the watch begins with, before its first change.
    pub fn take_initial(&mut self) -> Option<InitialEvents> {
        self.initial.take()
    }

    /// Whether the client wants bookmarks.
    pub fn wants_bookmarks(&self) -> bool {
        self.bookmarks
    }

    /// How far the watch has come, unless there is something still to be sent.
    pub fn bookmark(&mut self) -> Option<Event> {
        if !self.changes.is_empty() {
            return None;
        }
        let revision = self.selection.told(self.subscription.as_mut()?.progress()?);
        Some(Event::Bookmark(Bookmark { revision, ends_initial: false }))
    }

    /// The next change; waits for it. `None` after an error: the watch is over.
    pub async fn next(&mut self) -> Option<Result<Event, ApiError>> {
        if let Some(error) = self.refused.take() {
            self.subscription = None;
            return Some(Err(error));
        }
        if let Some(arrival) = self.arrival.as_mut() {
            // Whoever polls this may drop it and come back.
            let arrived = arrival.await;
            self.arrival = None;
            if let Err(error) = arrived {
                self.subscription = None;
                return Some(Err(error));
            }
        }
        loop {
            if let Some(change) = self.changes.front() {
                let Some(change) = change.upgrade() else { return self.lost() };
                let selection = &self.selection;
                let event = || to_event(selection, Arc::clone(&change));
                // It stays where it is until that is known: whoever polls this may drop it and come back.
                let event = known(&selection.kind, &self.account, event).await;
                self.changes.pop_front();
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
            // Of a long past that does not match, others get their turn.
            tokio::task::coop::consume_budget().await;
            match self.subscription.as_mut()?.next().await {
                Ok(changes) => self.changes.extend(changes.iter().map(Arc::downgrade)),
                Err(_) => return self.lost(),
            }
        }
    }

    /// A change has left the window before it was sent.
    fn lost(&mut self) -> Option<Result<Event, ApiError>> {
        self.subscription = None;
        self.changes.clear();
        let message = "The resourceVersion for the provided watch is too old.";
        Some(Err(ApiError::expired(message)))
    }
}

/// What a change means to a watcher who sees only what is selected, and of that what is not left out: what else has
/// changed of an object is no event.
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
    // What is made of the whole change for others is not for a watcher who is not shown all of it.
    let change = selection.redaction.is_none().then_some(change);
    Some(ObjectEvent { event_type, versioned, change })
}

fn too_old(requested: Revision, oldest: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
}
