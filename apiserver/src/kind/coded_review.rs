//! Reviews that code answers: questions that are asked like an object is made.

use std::fmt;

use crate::error::FieldError;
use crate::object::Tree;
use crate::user::User;

type Review = Box<dyn Fn(&User, &Tree) -> Result<Tree, ReviewError> + Send + Sync>;

/// Why a question is none.
#[derive(Clone, Debug)]
pub enum ReviewError {
    /// Fields of it are wrong (422).
    Invalid(Vec<FieldError>),
    /// It cannot be answered at all (400).
    BadRequest(String),
}

/// Answers questions of one kind.
pub struct CodedReview(Review);

impl CodedReview {
    /// What `review` answers to a question of somebody is the answer; an error
    /// says why the question is none.
    pub fn new(review: Review) -> Self {
        Self(review)
    }

    /// The answer to a question.
    ///
    /// # Errors
    /// Why it is none.
    pub fn answer(&self, user: &User, question: &Tree) -> Result<Tree, ReviewError> {
        (self.0)(user, question)
    }
}

impl fmt::Debug for CodedReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodedReview").finish_non_exhaustive()
    }
}
