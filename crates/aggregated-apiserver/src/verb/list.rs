//! LIST: reads the objects of a scope that a selector matches, page by page.

use std::borrow::Cow;
use std::sync::Arc;

use super::step::Step;
use super::{ContinueToken, Selection};
use crate::conversion::known;
use crate::error::{ApiError, Reason};
use crate::kind::Redaction;
use crate::object::Key;
use crate::quota::Account;
use crate::served_kind::{ServedKind, VisibilityStates};
use crate::storage::{Revision, StoreError, Versioned};
use crate::watch_cache::{NotFresh, Scope, Snapshot};
use crate::write::unavailable;

/// The options of a list.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// The selected objects.
    pub selection: Selection,
    /// The collection of the request path. Continue tokens refer to it, even if a selector narrows the scope.
    pub collection: Scope,
    /// The largest number of objects on the page.
    pub limit: Option<usize>,
    /// The state that the list shows.
    pub moment: Moment,
}

/// The state that a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The current state, with every write that was acknowledged to any client. The caller has
    /// [waited](await_freshness) for these writes.
    Latest,
    /// The current state of the cache, without waiting.
    Any,
    /// The current state, if it is at least as new as this revision.
    NotOlderThan(Revision),
    /// The state at this revision.
    Exactly(Revision),
    /// The state of the previous page.
    Continued(ContinueToken),
}

impl Moment {
    /// The freshness that the read requires.
    pub fn freshness(&self) -> Freshness {
        match self {
            Self::Latest => Freshness::Latest,
            Self::NotOlderThan(revision) | Self::Exactly(revision) => {
                Freshness::NotOlderThan(*revision)
            }
            Self::Continued(ContinueToken { revision: Some(revision), .. }) => {
                Freshness::NotOlderThan(*revision)
            }
            Self::Any | Self::Continued(_) => Freshness::Any,
        }
    }
}

/// A page of a list. Its objects are read from a snapshot while the response is sent.
#[derive(Clone, Debug)]
pub struct ListPage {
    snapshot: Snapshot,
    scope: Scope,
    collection: Scope,
    selection: Selection,
    start: Option<Key>,
    /// The last key of the page, if another page follows.
    end: Option<Key>,
    next: Option<ContinueToken>,
}

impl ListPage {
    /// The revision of the list.
    pub fn revision(&self) -> Revision {
        self.selection.told(self.snapshot.revision())
    }

    /// The token of the next page; empty if this is the last page.
    pub fn next_token(&self) -> String {
        let told = |next: &ContinueToken| ContinueToken {
            revision: next.revision.map(|revision| self.selection.told(revision)),
            ..next.clone()
        };
        self.next.as_ref().map(|next| told(next).to_token(&self.collection)).unwrap_or_default()
    }

    /// The number of objects after this page, if it is known.
    pub fn remaining(&self) -> Option<u64> {
        let next = self.next.as_ref()?;
        next.left.filter(|_| self.selection.is_everything())
    }

    /// Iterates over the objects of the page after a key, in the order of their keys. Each object comes with a flag
    /// that says whether it matches. Matching objects are returned in the form that is visible to the reader.
    pub fn after<'a>(
        &'a self,
        last: Option<&Key>,
    ) -> impl Iterator<Item = (Cow<'a, Versioned>, bool)> + use<'a> {
        let next = last.map(Key::following);
        let objects = self.snapshot.from(&self.scope, next.as_ref().or(self.start.as_ref()));
        let is_on_page = |versioned: &&Versioned| match &self.end {
            Some(end) => versioned.object.key() <= end,
            None => true,
        };
        objects.take_while(is_on_page).map(|versioned| match self.selection.shown(versioned) {
            Some(shown) => (shown, true),
            None => (Cow::Borrowed(versioned), false),
        })
    }

    /// Ends the page after `limit` matching objects. `left` is the number of objects on this page and after it, if it
    /// is known.
    ///
    /// # Errors
    /// 413 and 429 if the conversion of objects exceeds a memory limit.
    async fn end_after(
        &mut self,
        limit: usize,
        left: Option<u64>,
        account: &Account,
    ) -> Result<(), ApiError> {
        let hides = self.selection.viewer.is_some();
        let (mut seen, mut matching) = (0_u64, 0);
        let mut end: Option<Key> = None;
        let mut start = self.start.clone();
        loop {
            let from = start.take();
            let wanted = self.wanted_of_step(from.as_ref(), account).await?;
            let mut wanted = wanted.into_iter();
            let mut is_wanted = |versioned: &Versioned| {
                wanted.next().unwrap_or_else(|| self.selection.matches(&versioned.object))
            };
            let objects = self.snapshot.from(&self.scope, from.as_ref());
            let mut step = Step::default();
            for versioned in objects {
                let key = versioned.object.key();
                if step.is_over(versioned.object.size()) {
                    start = Some(key.clone());
                    break;
                }
                // If objects are hidden, a next page is announced only if it has visible objects.
                if matching == limit && (!hides || is_wanted(versioned)) {
                    let Some(end) = end else { return Ok(()) };
                    let left = match left {
                        // A forged token could start at any key, so this number would reveal the number of hidden
                        // objects.
                        _ if hides => None,
                        Some(left) => Some(left.saturating_sub(seen)),
                        // With a selector, `remainingItemCount` is not reported.
                        None if !self.selection.is_everything() => Some(0),
                        None => Some(self.count().await.saturating_sub(seen)),
                    };
                    self.next = Some(ContinueToken {
                        revision: Some(self.snapshot.revision()),
                        start: end.following(),
                        left,
                        left_out: 0,
                    });
                    self.end = Some(end);
                    return Ok(());
                }
                seen += 1;
                if matching < limit && is_wanted(versioned) {
                    matching += 1;
                    end = Some(key.clone());
                }
            }
            if start.is_none() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether each object of a step matches, if a webhook must convert the objects for that; empty otherwise.
    async fn wanted_of_step(
        &self,
        from: Option<&Key>,
        account: &Account,
    ) -> Result<Vec<bool>, ApiError> {
        if !self.selection.asks() {
            return Ok(Vec::new());
        }
        let look = || {
            let mut step = Step::default();
            let objects = self.snapshot.from(&self.scope, from);
            let objects = objects.take_while(|one| !step.is_over(one.object.size()));
            objects.map(|one| self.selection.matches(&one.object)).collect()
        };
        known(&self.selection.kind, account, look).await
    }

    /// The number of objects on this page and after it, without the selector. The objects are iterated only if the
    /// continue token does not contain the number.
    async fn count(&self) -> u64 {
        let Some(mut start) = self.start.clone() else {
            return self.snapshot.count(&self.scope);
        };
        let mut count = 0;
        loop {
            let mut step = Step::default();
            let mut objects = self.snapshot.from(&self.scope, Some(&start));
            // Counting reads no bytes of the objects.
            count += objects.by_ref().take_while(|_| !step.is_over(0)).count() as u64;
            let Some(next) = objects.next() else { return count };
            start = next.object.key().clone();
            tokio::task::yield_now().await;
        }
    }
}

/// Reads the objects of a scope.
///
/// # Errors
/// 429 until the kind is synced; 500 if an object cannot be read; 410 and 504 if the requested revision is unknown,
/// expired or not reached in time.
pub async fn list(
    served: &ServedKind,
    scope: Scope,
    options: ListOptions,
    account: &Account,
) -> Result<ListPage, ApiError> {
    ensure_synced(served)?;
    ensure_readable(served, &scope)?;
    let ListOptions { mut selection, collection, limit, moment } = options;
    let (snapshot, start, left) = match moment {
        Moment::Latest | Moment::Any => (newest(served, &mut selection).await, None, None),
        Moment::NotOlderThan(revision) => {
            ensure_fresh(served, revision).await?;
            (newest(served, &mut selection).await, None, None)
        }
        Moment::Exactly(revision) => {
            ensure_fresh(served, revision).await?;
            let snapshot = served.cache.snapshot_at(revision).await.ok_or_else(too_old)?;
            (snapshot, None, None)
        }
        Moment::Continued(ContinueToken { revision: None, start, .. }) => {
            (newest(served, &mut selection).await, Some(start), None)
        }
        Moment::Continued(ContinueToken { revision: Some(revision), start, left, .. }) => {
            let expired = || {
                let left_out = selection.redaction.as_ref().map_or(0, Redaction::missing);
                let start = start.clone();
                let inconsistent = ContinueToken { revision: None, start, left: None, left_out };
                ApiError::continue_too_old(inconsistent.to_token(&collection))
            };
            match served.cache.wait_until(revision).await {
                Err(NotFresh::Foreign) => return Err(expired()),
                Err(NotFresh::TooLarge { current }) => {
                    return Err(ApiError::revision_too_large(revision, current));
                }
                Ok(()) => {}
            }
            let snapshot = served.cache.snapshot_at(revision).await.ok_or_else(expired)?;
            (snapshot, Some(start), left)
        }
    };
    if let (Some(states), None) = (states_of(served, &selection), &selection.rule) {
        // The past is shown with the newest state. A watch from its revision is refused if the state has changed since.
        selection.rule = Some(Arc::clone(&states.newest().rule));
    }
    let (end, next) = (None, None);
    // Checked again, because objects that were found to be damaged since the first check are missing in the snapshot.
    ensure_readable(served, &scope)?;
    let mut listed = ListPage { snapshot, scope, collection, selection, start, end, next };
    if let Some(limit) = limit {
        listed.end_after(limit, left, account).await?;
    }
    Ok(listed)
}

/// The states of the visibility that a selection depends on.
fn states_of<'a>(
    served: &'a ServedKind,
    selection: &Selection,
) -> Option<&'a Arc<VisibilityStates>> {
    served.visibility.as_ref().filter(|_| selection.viewer.is_some())
}

/// A snapshot of the current objects. The selection gets the state of the visibility. The snapshot is not older than the
/// boundary of that state, so that a watch can start from its revision.
pub(super) async fn newest(served: &ServedKind, selection: &mut Selection) -> Snapshot {
    let Some(states) = states_of(served, selection) else { return served.cache.snapshot() };
    states.settled().await;
    loop {
        let snapshot = served.cache.snapshot();
        let state = states.newest();
        if state.boundary.is_none_or(|boundary| snapshot.revision() >= boundary) {
            selection.rule = Some(Arc::clone(&state.rule));
            return snapshot;
        }
    }
}

/// Rejects reads of a kind whose objects are not synced, or are not stored any more because a source exceeds a memory
/// limit.
pub(super) fn ensure_synced(served: &ServedKind) -> Result<(), ApiError> {
    let sources = served.cache.sources();
    let mut needed = sources.iter().filter(|source| source.is_needed());
    let too_many = needed.find_map(|source| Some((source, source.excess.as_ref()?)));
    if let Some((source, excess)) = too_many {
        let (kind, resource) = (served.kind.qualified(), &source.resource);
        let message = format!("{kind} are not served, because {resource} are not kept: {excess}");
        return Err(ApiError::new(Reason::ServiceUnavailable, message));
    }
    if served.cache.is_synced() {
        return Ok(());
    }
    let mut message = "storage is (re)initializing".to_owned();
    let sources = sources.into_iter().filter(|source| !source.is_synced);
    let missing: Vec<String> = sources.map(|source| source.resource).collect();
    if !missing.is_empty() {
        message = format!("{message}: waiting for a list of {}", missing.join(", "));
    }
    Err(ApiError::try_again(message, 1))
}

/// Rejects reads of a scope with a damaged object. A list without the object would mean that the object is deleted, and
/// a client such as the garbage collector would delete its dependents.
pub(super) fn ensure_readable(served: &ServedKind, scope: &Scope) -> Result<(), ApiError> {
    let Some(key) = served.cache.damaged_in(scope) else { return Ok(()) };
    Err(ApiError::unreadable(&served.kind.qualified(), key, StoreError::Damaged))
}

/// The freshness that a read requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// The current state of the cache, without waiting.
    Any,
    /// A state that is at least as new as this revision.
    NotOlderThan(Revision),
    /// Every write that was acknowledged to any client before the request.
    #[default]
    Latest,
}

impl Freshness {
    /// Whether the cache is already known to be fresh enough.
    pub fn is_at_hand(self, served: &ServedKind) -> bool {
        match self {
            Self::Any => true,
            Self::NotOlderThan(revision) => served.cache.has_reached(revision),
            Self::Latest => !served.is_shared(),
        }
    }
}

/// Waits until a kind is as fresh as a read requires, if that is possible. The read then does not wait.
///
/// # Errors
/// 503 and 504 if the wait takes too long.
pub async fn await_freshness(served: &ServedKind, freshness: Freshness) -> Result<(), ApiError> {
    let revision = match freshness {
        // A kind that is not synced is rejected first, because waiting for the newest state would be too early.
        Freshness::Latest => {
            ensure_synced(served)?;
            return ensure_newest(served).await;
        }
        Freshness::NotOlderThan(revision) if served.cache.is_synced() => revision,
        Freshness::Any | Freshness::NotOlderThan(_) => return Ok(()),
    };
    match served.cache.wait_until(revision).await {
        Err(NotFresh::TooLarge { current }) => Err(ApiError::revision_too_large(revision, current)),
        // The read itself rejects a revision of another process.
        Err(NotFresh::Foreign) | Ok(()) => Ok(()),
    }
}

/// Waits until the cache contains every write that was acknowledged to any client.
///
/// # Errors
/// 503 if the store does not respond.
pub(super) async fn ensure_newest(served: &ServedKind) -> Result<(), ApiError> {
    served.await_newest().await.map_err(unavailable)
}

/// Waits until the cache is at least as new as the revision.
pub(super) async fn ensure_fresh(served: &ServedKind, revision: Revision) -> Result<(), ApiError> {
    served.cache.wait_until(revision).await.map_err(|error| match error {
        NotFresh::Foreign => too_old(),
        NotFresh::TooLarge { current } => ApiError::revision_too_large(revision, current),
    })
}

fn too_old() -> ApiError {
    ApiError::expired("The resourceVersion for the provided list is too old.")
}
