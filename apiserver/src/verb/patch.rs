//! PATCH: change parts of an object.

use std::sync::Arc;

use super::change::{Changed, change};
use crate::error::ApiError;
use crate::kind::{RuleContext, Version};
use crate::object::Key;
use crate::served_kind::ServedKind;
use crate::write::{FieldValidation, Part, SubmittedPatch, apply_patch, check_identity};

/// Applies a patch to the object under the key. `patch` is an error if it
/// could not be read: that counts only if there is an object.
///
/// # Errors
/// 404 when there is none, 409 when the patch is for another version of it,
/// 400 and 422 when it cannot be applied or the object may not be kept.
pub async fn patch(
    served: &ServedKind,
    version: &Version,
    key: &Key,
    part: Part,
    patch: Result<SubmittedPatch, ApiError>,
    field_validation: FieldValidation,
    context: &RuleContext<'_>,
) -> Result<Changed, ApiError> {
    let kind = Arc::clone(&served.kind);
    let mut patch = SentPatch::new(patch);
    change(served, version, key, part, context, |live| {
        let mut decoded = apply_patch(&kind, version, patch.read()?, live, field_validation)?;
        match check_identity(&mut decoded.tree, key) {
            Ok(()) => Ok(decoded),
            Err(error) => Err(error.with_warnings(decoded.warnings)),
        }
    })
    .await
}

/// A patch as it was sent. What is wrong with it is told once there is an
/// object, and an object may have to be looked at again.
pub(super) struct SentPatch(Option<Result<SubmittedPatch, ApiError>>);

impl SentPatch {
    pub(super) fn new(sent: Result<SubmittedPatch, ApiError>) -> Self {
        Self(Some(sent))
    }

    /// The patch.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&mut self) -> Result<&SubmittedPatch, ApiError> {
        if let Some(Err(error)) = self.0.take_if(|sent| sent.is_err()) {
            return Err(error);
        }
        match &self.0 {
            Some(Ok(patch)) => Ok(patch),
            _ => Err(ApiError::internal("a patch that was refused is applied again")),
        }
    }
}
