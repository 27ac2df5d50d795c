//! CREATE of a review: ask a question. Nothing is kept.

use crate::error::ApiError;
use crate::kind::CodedReview;
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
    review.answer(user, &decoded.tree).map_err(|why| {
        let name = &kind.names.kind;
        ApiError::bad_request(format!("the {name} cannot be handled as a {name}: {why}"))
    })
}
