//! What is told of reviews: how many the cluster was asked for, and which were known.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

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

/// A review that the cluster is asked for. The observer is told of it when this is dropped, so also
/// of one that takes too long.
pub(super) struct Asked<'a> {
    observed: &'a Observed,
    kind: ReviewKind,
    began: Instant,
    /// The status code; `None` if there was no answer.
    pub(super) code: Option<u16>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let (code, took) = (self.code, self.began.elapsed());
        self.observed.tell(self.kind, ReviewSource::Cluster { code, took });
    }
}

impl Observed {
    /// The cluster is asked for a review now.
    pub(super) fn asks(&self, kind: ReviewKind) -> Asked<'_> {
        Asked { observed: self, kind, began: Instant::now(), code: None }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_review_that_is_not_waited_for_is_told_too() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let observed = Observed::default();
        let keeps = Arc::clone(&told);
        observed.by(Arc::new(move |review| {
            if let ReviewSource::Cluster { code, .. } = review.source {
                keeps.lock().unwrap().push(code);
            }
        }));
        drop(observed.asks(ReviewKind::Token));
        let mut asked = observed.asks(ReviewKind::Access);
        asked.code = Some(201);
        drop(asked);
        assert_eq!(*told.lock().unwrap(), [None, Some(201)]);
    }
}
