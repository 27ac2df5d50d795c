//! Reviews: create requests that are answered by code and store nothing.

use std::fmt;

use futures::future::BoxFuture;

use crate::error::FieldError;
use crate::object::Tree;
use crate::user::User;

type Answer = BoxFuture<'static, Result<Tree, ReviewError>>;
type Review = Box<dyn Fn(&User, &Tree) -> Answer + Send + Sync>;

/// The reason why a review is rejected.
#[derive(Clone, Debug)]
pub enum ReviewError {
    /// Fields of the review are invalid (422).
    Invalid(Vec<FieldError>),
    /// The review cannot be answered (400).
    BadRequest(String),
}

/// Answers the reviews of one kind.
pub struct ReviewHandler(Review);

impl ReviewHandler {
    /// `review` answers a review of a user, or returns an error if the review is rejected.
    pub fn new(review: Review) -> Self {
        Self(review)
    }

    /// Answers a review.
    ///
    /// # Errors
    /// The reason why the review is rejected.
    pub fn answer(&self, user: &User, question: &Tree) -> Answer {
        (self.0)(user, question)
    }
}

impl fmt::Debug for ReviewHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewHandler").finish_non_exhaustive()
    }
}
