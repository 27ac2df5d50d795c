//! PATCH: change parts of an object.

use std::sync::Arc;

use super::change::{Attributes, Changed, change};
use crate::error::ApiError;
use crate::write::{SubmittedPatch, apply_patch, check_identity};

/// Applies a patch to the object under the key. `patch` is an error if it
/// could not be read: that counts only if there is an object.
///
/// # Errors
/// 404 when there is none, 409 when the patch is for another version of it,
/// 400 and 422 when it cannot be applied or the object may not be kept.
pub async fn patch(
    attributes: &Attributes<'_>,
    patch: Result<SubmittedPatch, ApiError>,
) -> Result<Changed, ApiError> {
    let Attributes { version, key, field_validation, .. } = *attributes;
    let kind = Arc::clone(&attributes.served.kind);
    let mut patch = SentPatch::new(patch);
    change(attributes, |live, room| {
        let patch = patch.read()?;
        let mut decoded = apply_patch(&kind, version, patch, live, field_validation, room)?;
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
