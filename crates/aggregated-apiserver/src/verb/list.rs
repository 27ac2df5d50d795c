//! LIST: read the objects of a scope that a selector matches, page by page.

use std::borrow::Cow;

use super::step::Step;
use super::{ContinueToken, Selection};
use crate::conversion::known;
use crate::error::{ApiError, Reason};
use crate::kind::Redaction;
use crate::object::Key;
use crate::quota::Account;
use crate::served_kind::ServedKind;
use crate::storage::{Revision, StoreError, Versioned};
use crate::watch_cache::{NotFresh, Scope, Snapshot};
use crate::write::unavailable;

/// How objects are listed.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Which of them.
    pub selection: Selection,
    /// The collection that tokens are for, whatever a selector narrows it to.
    pub collection: Scope,
    /// At most so many.
    pub limit: Option<usize>,
    /// What the list shows.
    pub moment: Moment,
}

/// Which moment a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Now: all that was acknowledged to anybody. Whoever lists has [waited](await_freshness) for that.
    Latest,
    /// What is at hand.
    Any,
    /// Now, if that is at least as new as this.
    NotOlderThan(Revision),
    /// This one and no other.
    Exactly(Revision),
    /// That of an earlier page.
    Continued(ContinueToken),
}

impl Moment {
    /// How new what is read must be.
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

/// A page of a list, read from a snapshot while it is sent.
#[derive(Clone, Debug)]
pub struct ListPage {
    snapshot: Snapshot,
    scope: Scope,
    collection: Scope,
    selection: Selection,
    start: Option<Key>,
    /// The last key of the page, if another one follows.
    end: Option<Key>,
    next: Option<ContinueToken>,
}

impl ListPage {
    /// The revision that the list shows.
    pub fn revision(&self) -> Revision {
        self.selection.told(self.snapshot.revision())
    }

    /// The token of the next page; empty if there is none.
    pub fn next_token(&self) -> String {
        let told = |next: &ContinueToken| ContinueToken {
            revision: next.revision.map(|revision| self.selection.told(revision)),
            ..next.clone()
        };
        self.next.as_ref().map(|next| told(next).to_token(&self.collection)).unwrap_or_default()
    }

    /// How many objects follow after this page, where it is known.
    pub fn remaining(&self) -> Option<u64> {
        let next = self.next.as_ref()?;
        next.left.filter(|_| self.selection.is_everything())
    }

    /// The objects of the page that come after one, in the order of their keys,
    /// and whether they are wanted: those that are, as the reader is shown them.
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

    /// Ends the page behind `limit` objects that match. `left` are on this page
    /// and those after it, if that is known.
    ///
    /// # Errors
    /// 413 and 429 when there is no room for objects that are converted.
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
                // Where objects are hidden, another page is promised only if something is on it.
                if matching == limit && (!hides || is_wanted(versioned)) {
                    let Some(end) = end else { return Ok(()) };
                    let left = match left {
                        // A token may be forged, and what is counted from there on would tell how many are hidden.
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

    /// Which of the objects of a step are wanted, where a webhook has to be asked for that; nothing otherwise.
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

    /// How many objects there are on this page and after it, whatever the
    /// selector. They are only gone through behind a token that does not say.
    async fn count(&self) -> u64 {
        let Some(mut start) = self.start.clone() else {
            return self.snapshot.count(&self.scope);
        };
        let mut count = 0;
        loop {
            let mut step = Step::default();
            let mut objects = self.snapshot.from(&self.scope, Some(&start));
            // Counting reads none of their bytes.
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
/// 429 before the kind is synced; 500 when an object cannot be read; 410 and 504 when the asked
/// revision is unknown, gone or does not arrive.
pub async fn list(
    served: &ServedKind,
    scope: Scope,
    options: ListOptions,
    account: &Account,
) -> Result<ListPage, ApiError> {
    ensure_synced(served)?;
    ensure_readable(served, &scope)?;
    let ListOptions { selection, collection, limit, moment } = options;
    let (snapshot, start, left) = match moment {
        Moment::Latest | Moment::Any => (served.cache.snapshot(), None, None),
        Moment::NotOlderThan(revision) => {
            ensure_fresh(served, revision).await?;
            (served.cache.snapshot(), None, None)
        }
        Moment::Exactly(revision) => {
            ensure_fresh(served, revision).await?;
            let snapshot = served.cache.snapshot_at(revision).await.ok_or_else(too_old)?;
            (snapshot, None, None)
        }
        Moment::Continued(ContinueToken { revision: None, start, .. }) => {
            (served.cache.snapshot(), Some(start), None)
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
    let (end, next) = (None, None);
    // What is damaged since it was looked for has left the cache.
    ensure_readable(served, &scope)?;
    let mut listed = ListPage { snapshot, scope, collection, selection, start, end, next };
    if let Some(limit) = limit {
        listed.end_after(limit, left, account).await?;
    }
    Ok(listed)
}

/// Refuses reads of a kind that does not know its objects yet, or any more.
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

/// Refuses reads of what cannot be read. Who was shown a list without it would take it for gone, and
/// collect what it owns.
pub(super) fn ensure_readable(served: &ServedKind, scope: &Scope) -> Result<(), ApiError> {
    let Some(key) = served.cache.damaged_in(scope) else { return Ok(()) };
    Err(ApiError::unreadable(&served.kind.qualified(), key, StoreError::Damaged))
}

/// How new what is read must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// What is at hand.
    Any,
    /// At least as new as this.
    NotOlderThan(Revision),
    /// All that was acknowledged to anybody before it was asked for.
    #[default]
    Latest,
}

impl Freshness {
    /// Whether the kind is so new already, as far as is known here.
    pub fn is_at_hand(self, served: &ServedKind) -> bool {
        match self {
            Self::Any => true,
            Self::NotOlderThan(revision) => served.cache.has_reached(revision),
            Self::Latest => !served.is_shared(),
        }
    }
}

/// Waits until a kind is as new as a read asks for, if it may become so: whoever reads then need not
/// wait.
///
/// # Errors
/// 503 and 504 when that takes too long.
pub async fn await_freshness(served: &ServedKind, freshness: Freshness) -> Result<(), ApiError> {
    let revision = match freshness {
        // It must not be asked for before it is known at all: that would be too early.
        Freshness::Latest => {
            ensure_synced(served)?;
            return ensure_newest(served).await;
        }
        Freshness::NotOlderThan(revision) if served.cache.is_synced() => revision,
        Freshness::Any | Freshness::NotOlderThan(_) => return Ok(()),
    };
    match served.cache.wait_until(revision).await {
        Err(NotFresh::TooLarge { current }) => Err(ApiError::revision_too_large(revision, current)),
        // That it is of another process is told where it is looked for.
        Err(NotFresh::Foreign) | Ok(()) => Ok(()),
    }
}

/// Waits until the kind shows all that was acknowledged to anybody.
///
/// # Errors
/// 503 when the store does not answer.
pub(super) async fn ensure_newest(served: &ServedKind) -> Result<(), ApiError> {
    served.await_newest().await.map_err(unavailable)
}

/// Waits until the kind is at least as new as the revision.
pub(super) async fn ensure_fresh(served: &ServedKind, revision: Revision) -> Result<(), ApiError> {
    served.cache.wait_until(revision).await.map_err(|error| match error {
        NotFresh::Foreign => too_old(),
        NotFresh::TooLarge { current } => ApiError::revision_too_large(revision, current),
    })
}

fn too_old() -> ApiError {
    ApiError::expired("The resourceVersion for the provided list is too old.")
}
