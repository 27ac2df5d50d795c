//! LIST: read the objects of a scope that a selector matches.

use crate::error::ApiError;
use crate::object::selector::Selector;
use crate::served_kind::ServedKind;
use crate::storage::{Revision, Versioned};
use crate::watch_cache::{NotFresh, Scope, Snapshot};

/// How objects are listed.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Which of them.
    pub selector: Selector,
    /// The answer is at least as new as this.
    pub not_older_than: Option<Revision>,
    /// The answer shows exactly this revision.
    pub exactly: Option<Revision>,
}

/// A list, read from a snapshot while it is sent.
#[derive(Clone, Debug)]
pub struct Listed {
    snapshot: Snapshot,
    scope: Scope,
    selector: Selector,
}

impl Listed {
    /// The revision that the list shows.
    pub fn revision(&self) -> Revision {
        self.snapshot.revision()
    }

    /// The objects that come after one, in the order of their keys.
    pub fn after<'a>(&'a self, last: Option<&Versioned>) -> impl Iterator<Item = &'a Versioned> {
        let key = last.map(|versioned| versioned.object.key());
        let selected = |versioned: &&Versioned| self.selector.matches(&versioned.object);
        self.snapshot.after(&self.scope, key).filter(selected)
    }
}

/// Reads the objects of a scope.
///
/// # Errors
/// 429 before the kind is synced; 410 and 504 when the asked revision is
/// unknown, gone or does not arrive.
pub async fn list(
    served: &ServedKind,
    scope: Scope,
    options: ListOptions,
) -> Result<Listed, ApiError> {
    ensure_synced(served)?;
    if let Some(revision) = options.not_older_than.or(options.exactly) {
        ensure_fresh(served, revision).await?;
    }
    let snapshot = served.cache.snapshot();
    if options.exactly.is_some_and(|revision| revision != snapshot.revision()) {
        return Err(too_old());
    }
    Ok(Listed { snapshot, scope, selector: options.selector })
}

/// Refuses reads of a kind that does not know its objects yet.
pub(super) fn ensure_synced(served: &ServedKind) -> Result<(), ApiError> {
    if served.cache.is_synced() {
        return Ok(());
    }
    Err(ApiError::try_again("storage is (re)initializing", 1))
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
