//! Reviews: requests that look like the create of an object, are answered by code, and store
//! nothing.

use std::fmt;

use crate::error::FieldError;
use crate::object::Tree;
use crate::user::User;

type Review = Box<dyn Fn(&User, &Tree) -> Result<Tree, ReviewError> + Send + Sync>;

/// Why a review is refused.
#[derive(Clone, Debug)]
pub enum ReviewError {
    /// Fields of it are wrong (422).
    Invalid(Vec<FieldError>),
    /// It cannot be answered at all (400).
    BadRequest(String),
}

/// Answers the reviews of one kind.
pub struct ReviewHandler(Review);

impl ReviewHandler {
    /// `review` answers a review of this user; an error says why the review is refused.
    pub fn new(review: Review) -> Self {
        Self(review)
    }

    /// The answer to a review.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn answer(&self, user: &User, question: &Tree) -> Result<Tree, ReviewError> {
        (self.0)(user, question)
    }
}

impl fmt::Debug for ReviewHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewHandler").finish_non_exhaustive()
    }
}
