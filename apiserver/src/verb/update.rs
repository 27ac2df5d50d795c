//! UPDATE: replace an object.

use std::sync::Arc;

use super::change::{Attributes, Changed, change};
use crate::error::ApiError;
use crate::write::{Submitted, check_identity, check_uid, decode};

/// Puts an object in the place of the one under the key.
///
/// # Errors
/// 404 when there is none, 409 when it is another one or was changed since,
/// 400 and 422 when the object may not be kept.
pub async fn update(
    attributes: &Attributes<'_>,
    submitted: Submitted,
) -> Result<Changed, ApiError> {
    let Attributes { version, key, field_validation, .. } = *attributes;
    let kind = Arc::clone(&attributes.served.kind);
    let mut decoded = decode(&kind, version, submitted, field_validation)?;
    check_identity(&mut decoded.tree, key)
        .map_err(|error| error.with_warnings(decoded.warnings.clone()))?;
    let changed = change(attributes, |live, _| {
        check_uid(&kind, &decoded.tree, key, live.uid())?;
        Ok(decoded.clone())
    });
    // What was odd about the object is told, whatever becomes of it.
    changed.await.map_err(|error| match error.warnings() {
        [] => error.with_warnings(decoded.warnings.clone()),
        _ => error,
    })
}
