//! WATCH: follow the changes of a scope.

use std::collections::VecDeque;
use std::sync::Arc;

use super::list::ensure_synced;
use crate::error::ApiError;
use crate::object::selector::Selector;
use crate::served_kind::ServedKind;
use crate::storage::{Revision, Versioned};
use crate::watch_cache::{Change, Scope, Snapshot, Subscription};

/// How objects are watched.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Which of them.
    pub selector: Selector,
    /// Changes after this revision; `None` begins with what is there.
    pub after: Option<Revision>,
}

/// What happened to an object, as the watcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub struct Event {
    /// What happened.
    pub event_type: EventType,
    /// The object: as it is, or as it last matched, at the revision of the event.
    pub versioned: Versioned,
    /// The change behind the event; other watchers see the same one.
    pub change: Option<Arc<Change>>,
}

/// What a watch begins with: what is there, as ADDED, in the order of keys.
pub struct Initial {
    snapshot: Snapshot,
    scope: Scope,
    selector: Selector,
    last: Option<Versioned>,
}

impl Initial {
    /// The next event.
    pub fn next(&mut self) -> Option<Event> {
        let key = self.last.as_ref().map(|versioned| versioned.object.key());
        let versioned = self
            .snapshot
            .after(&self.scope, key)
            .find(|versioned| self.selector.matches(&versioned.object))
            .cloned()?;
        self.last = Some(versioned.clone());
        Some(Event { event_type: EventType::Added, versioned, change: None })
    }
}

/// A watch: every change after its beginning.
pub struct Watching {
    selector: Selector,
    /// What it begins with, if that was asked for and not yet taken.
    initial: Option<Initial>,
    subscription: Option<Subscription>,
    pending: VecDeque<Event>,
    /// An error that ends the watch.
    refused: Option<ApiError>,
}

/// Begins a watch. A revision that is gone is an event of the watch, not a
/// refusal of it: so does kube-apiserver, and clients expect it there.
///
/// # Errors
/// 429 before the kind is synced.
pub fn watch(
    served: &ServedKind,
    scope: Scope,
    options: WatchOptions,
) -> Result<Watching, ApiError> {
    ensure_synced(served)?;
    let mut watching = Watching {
        selector: options.selector,
        initial: None,
        subscription: None,
        pending: VecDeque::new(),
        refused: None,
    };
    match options.after {
        None => {
            let (snapshot, subscription) = served.cache.subscribe(scope.clone());
            let selector = watching.selector.clone();
            watching.initial = Some(Initial { snapshot, scope, selector, last: None });
            watching.subscription = Some(subscription);
        }
        Some(revision) => match served.cache.subscribe_after(scope, revision) {
            Ok(subscription) => watching.subscription = Some(subscription),
            Err(lost) => watching.refused = Some(too_old(revision, lost.oldest)),
        },
    }
    Ok(watching)
}

impl Watching {
    /// What the watch begins with, before its first change.
    pub fn take_initial(&mut self) -> Option<Initial> {
        self.initial.take()
    }

    /// The next change; waits for it. `None` after an error: the watch is over.
    pub async fn next(&mut self) -> Option<Result<Event, ApiError>> {
        if let Some(error) = self.refused.take() {
            self.subscription = None;
            return Some(Err(error));
        }
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            match self.subscription.as_mut()?.next().await {
                Ok(changes) => {
                    let selector = &self.selector;
                    let events =
                        changes.into_iter().filter_map(|change| to_event(selector, change));
                    self.pending.extend(events);
                }
                Err(_) => {
                    self.subscription = None;
                    let message = "The resourceVersion for the provided watch is too old.";
                    return Some(Err(ApiError::expired(message)));
                }
            }
        }
    }
}

/// What a change means to somebody who sees only what the selector matches.
fn to_event(selector: &Selector, change: Arc<Change>) -> Option<Event> {
    let matching = |side: Option<&Versioned>| {
        side.filter(|versioned| selector.matches(&versioned.object)).cloned()
    };
    let (before, after) = (matching(change.before()), matching(change.after()));
    let (event_type, versioned) = match (before, after) {
        (None, Some(after)) => (EventType::Added, after),
        (Some(_), Some(after)) => (EventType::Modified, after),
        (Some(before), None) => {
            let revision = change.revision();
            (EventType::Deleted, Versioned { revision, object: before.object })
        }
        (None, None) => return None,
    };
    Some(Event { event_type, versioned, change: Some(change) })
}

fn too_old(requested: Revision, oldest: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
}
