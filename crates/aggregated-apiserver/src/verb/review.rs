//! CREATE of a review: ask a question. Nothing is kept.

use crate::error::ApiError;
use crate::kind::{ReviewError, ReviewHandler};
use crate::object::Tree;
use crate::write::{Attributes, Submitted, admit_review};

/// Answers a review; also with texts for `Warning` headers.
///
/// # Errors
/// 400 when it asks nothing that can be answered, 422 when fields of it are wrong, and what
/// admission refuses.
pub async fn review(
    attributes: &Attributes<'_>,
    review: &ReviewHandler,
    submitted: Submitted,
) -> Result<(Tree, Vec<String>), ApiError> {
    let draft = admit_review(attributes, submitted).await?;
    let kind = attributes.kind();
    let answered = review.answer(attributes.user, &draft.tree).map_err(|refused| match refused {
        ReviewError::BadRequest(why) => ApiError::bad_request(why),
        // kube-apiserver names no kind here.
        ReviewError::Invalid(errors) => ApiError::invalid(&kind.group, "", "", errors),
    });
    let mut tree = answered?;
    // It is of its types: it was made of them.
    kind.coerce_again(&kind.storage, &mut tree);
    Ok((tree, draft.warnings))
}
