//! Reporting of reviews: the number of reviews that were sent to the cluster, and of cached results.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The kind of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// A TokenReview, which authenticates a token.
    Token,
    /// A SubjectAccessReview, which authorizes an action of a user.
    Access,
}

/// The origin of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewSource {
    /// The cache was searched.
    Cache {
        /// Whether the cache had the result.
        hit: bool,
    },
    /// The review was sent to the cluster.
    Cluster {
        /// The status code; `None` if there was no response.
        code: Option<u16>,
        /// The duration of the request.
        took: Duration,
    },
}

/// A finished review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Review {
    /// The kind of the review.
    pub kind: ReviewKind,
    /// The origin of the result.
    pub source: ReviewSource,
}

/// A function that is called for every review.
pub type ReviewObserver = Arc<dyn Fn(&Review) + Send + Sync>;

/// The observer that a cluster and all of its copies share, once it is set.
#[derive(Clone, Default)]
pub(super) struct Observed(Arc<OnceLock<ReviewObserver>>);

/// A review that is sent to the cluster. It is reported when this is dropped, so a review that times out is reported,
/// too.
pub(super) struct Asked<'a> {
    observed: &'a Observed,
    kind: ReviewKind,
    began: Instant,
    /// The status code; `None` if there was no response.
    pub(super) code: Option<u16>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let (code, took) = (self.code, self.began.elapsed());
        self.observed.tell(self.kind, ReviewSource::Cluster { code, took });
    }
}

impl Observed {
    /// Starts the report of a review that is sent to the cluster now.
    pub(super) fn asks(&self, kind: ReviewKind) -> Asked<'_> {
        Asked { observed: self, kind, began: Instant::now(), code: None }
    }

    /// Sets the observer of later reviews. Only the first call has an effect.
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
    fn cancelled_reviews_are_reported_to_the_observer() {
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
