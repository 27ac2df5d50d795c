//! UPDATE: replace an object.

use std::sync::Arc;

use super::change::{Changed, change};
use crate::error::ApiError;
use crate::kind::{RuleContext, Version};
use crate::object::Key;
use crate::served_kind::ServedKind;
use crate::write::{FieldValidation, Part, Submitted, check_identity, check_uid, decode};

/// Puts an object in the place of the one under the key.
///
/// # Errors
/// 404 when there is none, 409 when it is another one or was changed since,
/// 400 and 422 when the object may not be kept.
pub async fn update(
    served: &ServedKind,
    version: &Version,
    key: &Key,
    part: Part,
    submitted: Submitted,
    field_validation: FieldValidation,
    context: &RuleContext<'_>,
) -> Result<Changed, ApiError> {
    let kind = Arc::clone(&served.kind);
    let mut decoded = decode(&kind, version, submitted, field_validation)?;
    check_identity(&mut decoded.tree, key)
        .map_err(|error| error.with_warnings(decoded.warnings.clone()))?;
    let changed = change(served, version, key, part, context, |live| {
        check_uid(&kind, &decoded.tree, key, live)?;
        Ok(decoded.clone())
    });
    // What was odd about the object is told, whatever becomes of it.
    changed.await.map_err(|error| match error.warnings() {
        [] => error.with_warnings(decoded.warnings.clone()),
        _ => error,
    })
}
