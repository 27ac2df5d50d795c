//! Reviews: objects that are created like others, but only answered, not stored.

use super::admission;
use super::attributes::Attributes;
use super::decode::{check_namespace, decode};
use super::draft::{Draft, Submitted};
use super::field_managers::{track, with_managed_fields};
use crate::error::ApiError;
use crate::kind::SentValues;
use crate::quota;

/// Decodes a review, and calls admission for it. The draft has `managedFields`.
///
/// # Errors
/// The errors of a create up to admission; 400 if the object is of another kind.
pub async fn admit_review(
    attributes: &Attributes<'_>,
    submitted: Submitted,
) -> Result<Draft, ApiError> {
    let (kind, version) = (attributes.kind(), attributes.version);
    let mut draft = decode(kind, version, attributes.options.field_validation, submitted)?;
    let admitted = admit(attributes, &mut draft).await;
    admitted.map_err(|error| draft.refused(error))?;
    Ok(draft)
}

async fn admit(attributes: &Attributes<'_>, draft: &mut Draft) -> Result<(), ApiError> {
    check_namespace(&mut draft.tree, attributes.namespace)?;
    let mut room = attributes.account.room(0)?;
    let tracked = track(attributes, None, draft, &SentValues::default())?;
    draft.track(tracked);
    admission::mutate(attributes, None, draft, &mut room).await?;
    if !draft.is_kind {
        let kind = &attributes.kind().names.kind;
        return Err(ApiError::bad_request(format!("the object is no {kind}")));
    }
    admission::validate(attributes, None, draft).await?;
    let managed_fields = draft.managers.write();
    room.grow_to(quota::of_tree(&draft.tree) + quota::of_json(&managed_fields))?;
    draft.tree = with_managed_fields(std::mem::take(&mut draft.tree), &managed_fields);
    Ok(())
}
