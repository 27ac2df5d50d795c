//! DELETECOLLECTION: remove the objects of a scope that a selector matches.

use super::{DeleteOptions, Deleted, ListOptions, Listed, delete, list};
use crate::ambient::Ambient;
use crate::error::{ApiError, Reason};
use crate::served_kind::ServedKind;
use crate::watch_cache::Scope;

/// Removes objects one after the other; answers with the list of them as they
/// were. What somebody else has removed meanwhile is no fault.
///
/// # Errors
/// Those of a list; then what the first object is refused for that cannot be
/// removed, after all the others were.
pub async fn delete_collection(
    served: &ServedKind,
    scope: Scope,
    options: ListOptions,
    how: &DeleteOptions,
    ambient: &Ambient,
) -> Result<Listed, ApiError> {
    let listed = list(served, scope, options).await?;
    let mut last = None;
    let mut refused = None;
    loop {
        let mut wanted = listed.after(last.as_ref());
        let next = wanted.find(|(_, is_wanted)| *is_wanted);
        let Some((versioned, _)) = next else { break };
        let key = versioned.object.key().clone();
        match delete(served, &key, how, ambient).await {
            Ok(Deleted::Gone { .. } | Deleted::Marked(_)) => {}
            Err(error) if error.reason() == Reason::NotFound => {}
            Err(error) => refused = refused.or(Some(error)),
        }
        last = Some(key);
        tokio::task::yield_now().await;
    }
    refused.map_or(Ok(listed), Err)
}
