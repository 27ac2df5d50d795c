//! CREATE of a review. The review is answered and not stored.

use crate::error::ApiError;
use crate::kind::{Review, ReviewError};
use crate::object::Tree;
use crate::write::{Attributes, Submitted, admit_review};

/// Returns the answered review, and messages for `Warning` headers.
///
/// # Errors
/// 400 if the review cannot be answered, 422 if fields are invalid, and the errors of admission.
pub async fn review(
    attributes: &Attributes<'_>,
    review: &Review,
    submitted: Submitted,
) -> Result<(Tree, Vec<String>), ApiError> {
    let draft = admit_review(attributes, submitted).await?;
    let kind = attributes.kind();
    let answered = review(attributes.user, &draft.tree).await;
    let mut tree = answered.map_err(|refused| match refused {
        ReviewError::BadRequest(why) => ApiError::bad_request(why),
        // kube-apiserver names no kind here.
        ReviewError::Invalid(errors) => ApiError::invalid(&kind.group, "", "", errors),
    })?;
    // The response has the types of its schema, because it was created from these types.
    kind.coerce_again(&kind.storage, &mut tree);
    Ok((tree, draft.warnings))
}
