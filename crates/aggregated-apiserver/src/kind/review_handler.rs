//! Reviews: create requests that are answered by code and store nothing.

use std::fmt;

use futures::future::BoxFuture;

use crate::error::FieldError;
use crate::object::Tree;
use crate::user::User;

/// The result of a review.
pub type Answer = BoxFuture<'static, Result<Tree, ReviewError>>;

/// Code that answers a review of a user, or returns an error if the review is rejected.
pub type Review = Box<dyn Fn(&User, &Tree) -> Answer + Send + Sync>;

/// The reason why a review is rejected.
#[derive(Clone, Debug)]
pub enum ReviewError {
    /// Fields of the review are invalid (422).
    Invalid(Vec<FieldError>),
    /// The review cannot be answered (400).
    BadRequest(String),
}

/// Handles the reviews of one kind.
pub enum ReviewHandler {
    /// Answers each review.
    Code(Review),
    /// Posts each review to a subresource of the object of the same name. The kind of the object is in the same group
    /// and version. The values are the plural name of this kind and the subresource.
    PostTo(&'static str, &'static str),
}

impl fmt::Debug for ReviewHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewHandler").finish_non_exhaustive()
    }
}
