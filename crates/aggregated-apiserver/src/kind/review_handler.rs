//! Reviews: create requests that are answered by code and store nothing.

use std::fmt;

use futures::future::{BoxFuture, ready};

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
pub struct ReviewHandler(How);

/// The way in which reviews are answered.
enum How {
    Code(Review),
    /// A POST to the subresource of the object with the same name: the plural name of its kind, and the subresource.
    Posted(&'static str, &'static str),
}

impl ReviewHandler {
    /// `review` answers a review of a user, or returns an error if the review is rejected.
    pub fn new(review: Review) -> Self {
        Self(How::Code(review))
    }

    /// Posts each review to this subresource of the object of the same name. The kind of the object, with this plural
    /// name, is in the same group and version.
    pub fn posting_to(plural: &'static str, subresource: &'static str) -> Self {
        Self(How::Posted(plural, subresource))
    }

    /// The plural name and the subresource to which reviews are posted; `None` if code answers them.
    pub fn posts_to(&self) -> Option<(&'static str, &'static str)> {
        match self.0 {
            How::Code(_) => None,
            How::Posted(plural, subresource) => Some((plural, subresource)),
        }
    }

    /// Answers a review.
    ///
    /// # Errors
    /// The reason why the review is rejected.
    pub fn answer(&self, user: &User, question: &Tree) -> Answer {
        match &self.0 {
            How::Code(review) => review(user, question),
            How::Posted(..) => {
                let why = "the object is posted to a subresource".to_owned();
                Box::pin(ready(Err(ReviewError::BadRequest(why))))
            }
        }
    }
}

impl fmt::Debug for ReviewHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewHandler").finish_non_exhaustive()
    }
}
