//! CREATE of a review: ask a question. Nothing is kept.

use crate::error::ApiError;
use crate::kind::{CodedReview, NoQuestion};
use crate::object::Tree;
use crate::served_kind::ServedKind;
use crate::user::User;
use crate::write::Decoded;

/// Answers a review.
///
/// # Errors
/// 400 when it asks nothing that can be answered.
pub fn review(
    served: &ServedKind,
    review: &CodedReview,
    decoded: &Decoded,
    user: &User,
) -> Result<Tree, ApiError> {
    let kind = &served.kind;
    if !decoded.is_kind {
        return Err(ApiError::bad_request(format!("the object is no {}", kind.names.kind)));
    }
    let answered = review.answer(user, &decoded.tree).map_err(|refused| match refused {
        NoQuestion::BadRequest(why) => ApiError::bad_request(why),
        // kube-apiserver names no kind here.
        NoQuestion::Invalid(errors) => ApiError::invalid(&kind.group, "", "", errors),
    });
    answered.map(|mut tree| {
        // It is of its types: it was made of them.
        kind.coerce_again(&kind.storage, &mut tree);
        tree
    })
}
