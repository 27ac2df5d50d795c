//! GET: reads one object, or its Scale.

use std::sync::Arc;

use super::list::{Freshness, ensure_fresh, ensure_readable, ensure_synced};
use super::selection::redacted;
use crate::conversion::known;
use crate::error::ApiError;
use crate::kind::{Redaction, Version};
use crate::object::Key;
use crate::quota::Account;
use crate::served_kind::ServedKind;
use crate::storage::Versioned;
use crate::user::User;
use crate::watch_cache::Scope;
use crate::write::{Part, scale_of};

/// The options of a read.
#[derive(Clone, Debug, Default)]
pub struct GetOptions {
    /// The required freshness. For the latest state, the caller has [waited](super::await_freshness).
    pub freshness: Freshness,
    /// The user of the request, if the kind may hide objects from this user.
    pub viewer: Option<Arc<User>>,
    /// The fields that are omitted for the user, if there are any.
    pub redaction: Option<Redaction>,
}

/// Reads the part of an object that a request names: the object, or its Scale.
///
/// # Errors
/// 404 if the object does not exist or is hidden from the user, 429 until the kind is synced, 410 and 504 if the
/// requested revision is unknown or not reached in time, and 500 if the object has no wanted number of replicas.
pub async fn get(
    served: &ServedKind,
    (version, part): (&Version, Part),
    key: &Key,
    options: GetOptions,
    account: &Account,
) -> Result<Versioned, ApiError> {
    let versioned = object(served, key, options).await?;
    if part != Part::Scale {
        return Ok(versioned);
    }
    known(&served.kind, account, || scale_of(&served.kind, version, &versioned)).await?
}

/// Reads one object.
async fn object(
    served: &ServedKind,
    key: &Key,
    options: GetOptions,
) -> Result<Versioned, ApiError> {
    ensure_synced(served)?;
    if let Freshness::NotOlderThan(revision) = options.freshness {
        ensure_fresh(served, revision).await?;
    }
    if let Some(found) = served.cache.get(key) {
        let is_hidden = |viewer: &Arc<User>| !served.kind.is_visible_to(viewer, &found.object);
        return match options.viewer.as_ref().is_some_and(is_hidden) {
            true => Err(not_found(served, key)),
            false => match redacted(options.redaction.as_ref(), &found) {
                Some(shown) => Ok(shown.into_owned()),
                None => Err(not_found(served, key)),
            },
        };
    }
    // A damaged object is not in the cache.
    ensure_readable(served, &Scope::Object(key.clone()))?;
    Err(not_found(served, key))
}

fn not_found(served: &ServedKind, key: &Key) -> ApiError {
    ApiError::not_found(&served.kind.group, &served.kind.names.plural, key.name())
}
