//! How calls of webhooks ended, and how long they took, for metrics: by the words and buckets of kube-apiserver.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seconds.
const BUCKETS: [f64; 15] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All objects are converted.
    Success,
    /// The webhook could not be asked.
    Call,
    /// It answers that it cannot convert, or no review.
    Malformed,
    /// Another number of objects than were sent.
    Partial,
    /// An object that is not the one that was sent.
    Invalid,
}

impl Outcome {
    const ALL: [Self; 5] =
        [Self::Success, Self::Call, Self::Malformed, Self::Partial, Self::Invalid];

    fn failure_type(self) -> &'static str {
        match self {
            Self::Success => "",
            Self::Call => "conversion_webhook_call_failure",
            Self::Malformed => "conversion_webhook_malformed_response_failure",
            Self::Partial => "conversion_webhook_partial_response_failure",
            Self::Invalid => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

/// Calls that ended in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCalls {
    /// `success` or `failure`.
    pub result: &'static str,
    /// Why, if it is a failure.
    pub failure_type: &'static str,
    /// How many took no longer than so many seconds, and longer than the bucket before; the last one has no end.
    pub buckets: Vec<(f64, u64)>,
    /// Seconds that they took together.
    pub seconds: f64,
}

/// Of each bucket, and of what takes longer.
#[derive(Debug)]
struct Times {
    buckets: [AtomicU64; BUCKETS.len() + 1],
    microseconds: AtomicU64,
}

impl Times {
    const fn new() -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS.len() + 1];
        Self { buckets, microseconds: AtomicU64::new(0) }
    }
}

/// Calls by their outcomes.
#[derive(Debug)]
pub(super) struct Counts([Times; Outcome::ALL.len()]);

impl Counts {
    pub(super) const fn new() -> Self {
        Self([const { Times::new() }; Outcome::ALL.len()])
    }

    /// A call has ended.
    pub(super) fn ended(&self, outcome: Outcome, took: Duration) {
        let Some(times) = self.0.get(outcome as usize) else { return };
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|&most| seconds <= most).unwrap_or(BUCKETS.len());
        if let Some(bucket) = times.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        times.microseconds.fetch_add(took, Ordering::Relaxed);
    }

    /// What has happened until now; of what has never happened nothing is said.
    pub(super) fn all(&self) -> Vec<WebhookCalls> {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = Outcome::ALL.into_iter().zip(&self.0).map(|(outcome, times)| WebhookCalls {
            result: if outcome == Outcome::Success { "success" } else { "failure" },
            failure_type: outcome.failure_type(),
            buckets: BUCKETS
                .into_iter()
                .chain([f64::INFINITY])
                .zip(times.buckets.iter().map(of))
                .collect(),
            seconds: Duration::from_micros(of(&times.microseconds)).as_secs_f64(),
        });
        all.filter(|calls| calls.buckets.iter().any(|(_, count)| *count > 0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_how_they_ended_and_how_long_they_took() {
        let counts = Counts::new();
        assert!(counts.all().is_empty());
        for milliseconds in [5, 6, 61_000] {
            counts.ended(Outcome::Partial, Duration::from_millis(milliseconds));
        }
        let all = counts.all();
        let [partial] = &all[..] else { panic!("{all:?}") };
        assert_eq!(partial.failure_type, "conversion_webhook_partial_response_failure");
        assert_eq!((partial.result, partial.seconds), ("failure", 61.011));
        let taken: Vec<_> = partial.buckets.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(taken, [&(0.005, 1), &(0.01, 1), &(f64::INFINITY, 1)]);
    }
}
