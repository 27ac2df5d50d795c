//! What is told of reviews: how many the cluster was asked for, and which were known.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What was to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// Whose token it is.
    Token,
    /// Whether a user may do something.
    Access,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewSource {
    /// It was looked for among those that still hold.
    Cache {
        /// Whether it was there.
        hit: bool,
    },
    /// The cluster was asked.
    Cluster {
        /// The status code; `None` if there was no answer.
        code: Option<u16>,
        /// How long it took.
        took: Duration,
    },
}

/// A review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Review {
    /// What was to be known.
    pub kind: ReviewKind,
    /// Where the answer came from.
    pub source: ReviewSource,
}

/// Is told of every review.
pub type ReviewObserver = Arc<dyn Fn(&Review) + Send + Sync>;

/// The observer of a cluster and all of its copies, once there is one.
#[derive(Clone, Default)]
pub(super) struct Observed(Arc<OnceLock<ReviewObserver>>);

impl Observed {
    /// Tells this observer from now on; only the first one is told.
    pub(super) fn by(&self, observer: ReviewObserver) {
        let _ = self.0.set(observer);
    }

    pub(super) fn tell(&self, kind: ReviewKind, source: ReviewSource) {
        if let Some(observer) = self.0.get() {
            observer(&Review { kind, source });
        }
    }
}
