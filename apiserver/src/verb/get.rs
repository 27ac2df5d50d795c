//! GET: read one object.

use super::list::{Freshness, ensure_fresh, ensure_readable, ensure_synced};
use crate::error::ApiError;
use crate::object::Key;
use crate::served_kind::ServedKind;
use crate::storage::Versioned;
use crate::watch_cache::Scope;

/// How an object is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// How new the answer must be. For the latest, whoever reads has [waited](super::await_freshness).
    pub freshness: Freshness,
}

/// Reads one object.
///
/// # Errors
/// 404 when it is not there, 429 before the kind is synced, 410 and 504 when
/// the asked revision is unknown or does not arrive.
pub async fn get(
    served: &ServedKind,
    key: &Key,
    options: GetOptions,
) -> Result<Versioned, ApiError> {
    ensure_synced(served)?;
    if let Freshness::NotOlderThan(revision) = options.freshness {
        ensure_fresh(served, revision).await?;
    }
    if let Some(found) = served.cache.get(key) {
        return Ok(found);
    }
    // A damaged object is in no cache.
    ensure_readable(served, &Scope::Object(key.clone()))?;
    let (group, plural) = (&served.kind.group, &served.kind.names.plural);
    Err(ApiError::not_found(group, plural, key.name()))
}
