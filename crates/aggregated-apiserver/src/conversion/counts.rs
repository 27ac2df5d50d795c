//! Metrics of webhook calls: outcomes and durations, with the names and buckets of kube-apiserver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const ENDLESS: f64 = f64::INFINITY;
/// The bucket limits of call durations by outcome, in seconds.
const BUCKETS: [f64; 16] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, ENDLESS];
/// The bucket limits of call durations by definition and versions, in seconds.
const OF_DEFINITIONS: [f64; 16] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384, ENDLESS,
];
/// The largest number of combinations of definitions and versions with their own metrics, because definitions may be
/// added and removed while a server runs. Further combinations are counted together, without names.
const TOLD_APART: usize = 1_000;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All objects were converted.
    Success,
    /// The webhook could not be called.
    Call,
    /// The webhook returned an error, or no valid ConversionReview.
    Malformed,
    /// The webhook returned another number of objects than were sent.
    Partial,
    /// The webhook returned an object that does not match the sent one.
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

/// The durations of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CallTimes {
    /// The upper limit of each bucket in seconds, and the number of calls in this bucket alone; the last limit is
    /// infinite.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of the durations, in seconds.
    pub seconds: f64,
}

/// The calls with the same outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCalls {
    /// `success` or `failure`.
    pub result: &'static str,
    /// The failure type; empty for a success.
    pub failure_type: &'static str,
    /// The durations of the calls.
    pub times: CallTimes,
}

/// The definition and versions of a call, and its success. The names are empty for calls that are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Converted {
    /// The name of the definition: `foos.example.com`.
    pub definition: String,
    /// The version of the sent objects.
    pub from: String,
    /// The requested version.
    pub to: String,
    /// Whether all objects were converted.
    pub succeeded: bool,
}

/// A histogram of call durations.
#[derive(Debug)]
struct Times {
    buckets: [AtomicU64; BUCKETS.len()],
    microseconds: AtomicU64,
}

impl Times {
    const fn new() -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS.len()];
        Self { buckets, microseconds: AtomicU64::new(0) }
    }

    fn add(&self, bounds: &[f64; BUCKETS.len()], took: Duration) {
        let seconds = took.as_secs_f64();
        let mut buckets = bounds.iter().zip(&self.buckets);
        if let Some((_, bucket)) = buckets.find(|(most, _)| seconds <= **most) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(took, Ordering::Relaxed);
    }

    fn read(&self, bounds: &[f64; BUCKETS.len()]) -> CallTimes {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CallTimes {
            buckets: bounds.iter().copied().zip(self.buckets.iter().map(of)).collect(),
            seconds: Duration::from_micros(of(&self.microseconds)).as_secs_f64(),
        }
    }
}

/// The calls by outcome, and by definition.
#[derive(Debug)]
pub(super) struct Counts {
    outcomes: [Times; Outcome::ALL.len()],
    definitions: Mutex<BTreeMap<Converted, Times>>,
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            outcomes: [const { Times::new() }; Outcome::ALL.len()],
            definitions: Mutex::new(BTreeMap::new()),
        }
    }

    /// Counts a finished call for objects of a definition, from one version to another.
    pub(super) fn ended(
        &self,
        outcome: Outcome,
        took: Duration,
        definition: &str,
        (from, to): (&str, &str),
    ) {
        if let Some(times) = self.outcomes.get(outcome as usize) {
            times.add(&BUCKETS, took);
        }
        let succeeded = outcome == Outcome::Success;
        let [definition, from, to] = [definition, from, to].map(str::to_owned);
        let converted = Converted { definition, from, to, succeeded };
        let mut definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let is_told = definitions.len() < TOLD_APART || definitions.contains_key(&converted);
        let together = || Converted { succeeded, ..Converted::default() };
        let converted = if is_told { converted } else { together() };
        definitions.entry(converted).or_insert_with(Times::new).add(&OF_DEFINITIONS, took);
    }

    /// The calls so far, by outcome; outcomes without calls are omitted.
    pub(super) fn outcomes(&self) -> Vec<WebhookCalls> {
        let all = Outcome::ALL.into_iter().zip(&self.outcomes).map(|(outcome, times)| {
            let result = if outcome == Outcome::Success { "success" } else { "failure" };
            WebhookCalls {
                result,
                failure_type: outcome.failure_type(),
                times: times.read(&BUCKETS),
            }
        });
        all.filter(|calls| calls.times.buckets.iter().any(|(_, count)| *count > 0)).collect()
    }

    /// The calls so far, by definition and versions.
    pub(super) fn definitions(&self) -> Vec<(Converted, CallTimes)> {
        let definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let all = definitions.iter();
        all.map(|(converted, times)| (converted.clone(), times.read(&OF_DEFINITIONS))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_webhook_calls_are_counted_by_outcome_and_duration() {
        let counts = Counts::new();
        assert!(counts.outcomes().is_empty() && counts.definitions().is_empty());
        for milliseconds in [5, 6, 61_000] {
            let took = Duration::from_millis(milliseconds);
            counts.ended(Outcome::Partial, took, "foos.example.com", ("v1", "v2"));
        }
        let taken = |times: &CallTimes| {
            let taken = times.buckets.iter().filter(|(_, count)| *count > 0);
            taken.copied().collect::<Vec<_>>()
        };
        let all = counts.outcomes();
        let [partial] = &all[..] else { panic!("{all:?}") };
        assert_eq!(partial.failure_type, "conversion_webhook_partial_response_failure");
        assert_eq!((partial.result, partial.times.seconds), ("failure", 61.011));
        assert_eq!(taken(&partial.times), [(0.005, 1), (0.01, 1), (ENDLESS, 1)]);
        let all = counts.definitions();
        let [(converted, times)] = &all[..] else { panic!("{all:?}") };
        let Converted { definition, from, to, succeeded } = converted;
        assert_eq!(
            (definition.as_str(), from.as_str(), to.as_str()),
            ("foos.example.com", "v1", "v2")
        );
        assert!(!succeeded);
        assert_eq!(taken(times), [(0.008, 2), (ENDLESS, 1)]);
    }

    #[test]
    fn calls_beyond_the_limit_of_definitions_are_counted_together() {
        let counts = Counts::new();
        for number in 0..2 * TOLD_APART {
            let name = format!("kinds-{number}.example.com");
            counts.ended(Outcome::Success, Duration::ZERO, &name, ("v1", "v2"));
        }
        let all = counts.definitions();
        assert_eq!(all.len(), TOLD_APART + 1);
        let together = Converted { succeeded: true, ..Converted::default() };
        let times = &all.iter().find(|(converted, _)| *converted == together).unwrap().1;
        assert_eq!(times.buckets[0].1, TOLD_APART as u64);
    }
}
