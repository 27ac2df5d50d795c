//! DELETECOLLECTION: deletes the objects of a scope that a selector matches.

use std::sync::Arc;

use super::delete::delete_one;
use super::list::ensure_newest;
use super::step::Step;
use super::{DeleteOptions, Deleted, ListOptions, ListPage, list, with_warnings};
use crate::conversion::known;
use crate::error::{ApiError, Reason};
use crate::kind::is_incomplete;
use crate::watch_cache::Scope;
use crate::write::Attributes;

/// Deletes objects sequentially, and returns the list of the objects before their deletion, and warnings for the client.
/// An error has the warnings too. An object that another request has deleted since then is not an error.
///
/// # Errors
/// The errors of a list. If an object cannot be deleted, the other objects are still deleted, and then the first such
/// error is returned.
pub async fn delete_collection(
    attributes: &Attributes<'_>,
    scope: Scope,
    options: ListOptions,
    how: &DeleteOptions,
) -> Result<(ListPage, Vec<String>), ApiError> {
    let mut warnings = how.warnings(attributes.kind());
    let listed = delete_all(attributes, scope, options, how, &mut warnings).await;
    with_warnings(listed, warnings)
}

async fn delete_all(
    attributes: &Attributes<'_>,
    scope: Scope,
    options: ListOptions,
    how: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<ListPage, ApiError> {
    let selection = options.selection.clone();
    ensure_newest(attributes.served).await?;
    let listed = list(attributes.served, scope, options, attributes.account).await?;
    let mut last = None;
    let mut refused = None;
    loop {
        let look = || {
            let mut looked_at = None;
            let mut step = Step::default();
            let mut objects = listed
                .after(last.as_ref())
                .take_while(|(versioned, _)| !step.is_over(versioned.object.size()));
            let wanted = objects.find_map(|(versioned, is_wanted)| {
                looked_at = Some(versioned.object.key().clone());
                // An object that a webhook must convert first is converted in one call with the following objects.
                (is_wanted && !is_incomplete()).then(|| Arc::clone(&versioned.object))
            });
            let is_known = wanted.as_ref().map_or(Ok(()), |object| selection.ensure_known(object));
            (looked_at, wanted, is_known)
        };
        let look = known(attributes.kind(), attributes.account, look).await?;
        let (looked_at, wanted, is_known) = look;
        is_known?;
        let Some(key) = wanted.map(|object| object.key().clone()) else {
            let Some(looked_at) = looked_at else { break };
            last = Some(looked_at);
            tokio::task::yield_now().await;
            continue;
        };
        // The request does not name the object.
        let one = Attributes { namespace: key.namespace(), name: None, ..*attributes };
        match delete_one(&one, &key, how, warnings).await {
            Ok(Deleted::Gone { .. } | Deleted::Marked(_)) => {}
            Err(error) if error.reason() == Reason::NotFound => {}
            Err(error) => refused = refused.or(Some(error)),
        }
        last = Some(key);
        tokio::task::yield_now().await;
    }
    refused.map_or(Ok(listed), Err)
}
