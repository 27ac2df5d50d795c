//! What Pods come to: sums that follow each change of a Pod.

use std::collections::BTreeMap;

use aggregated_apiserver::{Quantity, Total};
use jiff::Timestamp;

use crate::farm_pod::amounts::{self, Amounts, NANOS};
use crate::farm_pod::resources::{self, Amount};
use crate::farm_pod::status::Summary;
use crate::farm_pod::view::PodView;
use crate::farm_pod::{PodMetricsView, usage, why};

/// What a Pod says while nothing is wrong with it: it begins or ends.
const PROGRESS: &[&str] =
    &["ContainerCreating", "Initializing", "NotScheduled", "NotStarted", "Terminating"];

/// What Pods come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// How many there are that have not ended.
    pub pods: i64,
    /// How often their containers were restarted.
    pub restarts: i64,
    /// When the containers had ended that were restarted last, each so often.
    restarted: BTreeMap<Timestamp, i64>,
    /// What they request, in billionths.
    cpu: i128,
    memory: i128,
    /// Why they do not run well, each so often.
    why: BTreeMap<String, i64>,
    /// Why those have ended that have failed.
    failures: BTreeMap<String, i64>,
}

impl Total for Tally {
    fn add(&mut self, other: &Self) {
        self.pods.add(&other.pods);
        self.restarts.add(&other.restarts);
        self.restarted.add(&other.restarted);
        self.cpu.add(&other.cpu);
        self.memory.add(&other.memory);
        self.why.add(&other.why);
        self.failures.add(&other.failures);
    }

    fn subtract(&mut self, other: &Self) {
        self.pods.subtract(&other.pods);
        self.restarts.subtract(&other.restarts);
        self.restarted.subtract(&other.restarted);
        self.cpu.subtract(&other.cpu);
        self.memory.subtract(&other.memory);
        self.why.subtract(&other.why);
        self.failures.subtract(&other.failures);
    }

    fn size(&self) -> usize {
        self.restarted.size() + self.why.size() + self.failures.size()
    }
}

impl Tally {
    /// What a Pod contributes. One that has ended takes nothing any more.
    pub fn of(pod: &PodView) -> Self {
        let code = why::why(pod, None).map(|why| why.code);
        let code = code.map(|code| (code, 1)).into_iter().collect();
        if has_ended(pod) {
            return Self { failures: code, ..Self::default() };
        }
        let restarts = Summary::of(pod).restarts;
        let requests = resources::requests(pod);
        let nanos = |resource| requests.get(resource).map_or(0, |amount| amount.nanos());
        Self {
            pods: 1,
            restarts: restarts.count,
            restarted: restarts.last.map(|last| (last.0, 1)).into_iter().collect(),
            cpu: nanos("cpu"),
            memory: nanos("memory"),
            why: code,
            failures: BTreeMap::new(),
        }
    }

    /// When the last container had ended that was restarted.
    pub fn last_restart(&self) -> Option<Timestamp> {
        self.restarted.last_key_value().map(|(time, _)| *time)
    }

    /// The worst of what is wrong, and with how many Pods: what more of them say; what is no more than
    /// progress last; and what has failed before, where nothing else is to be said.
    pub fn worst(&self) -> Option<(&str, i64)> {
        let all = if self.why.is_empty() { &self.failures } else { &self.why };
        let weight = |code: &str, count: i64| (!PROGRESS.contains(&code), count);
        let worst = all.iter().rev().max_by_key(|(code, count)| weight(code, **count));
        worst.map(|(code, count)| (code.as_str(), *count))
    }

    /// Whether one of them has trouble that is more than progress.
    pub fn has_trouble(&self) -> bool {
        self.why.keys().any(|code| !PROGRESS.contains(&code.as_str()))
    }

    /// How much processors and memory is requested.
    pub fn requests(&self) -> (Amount, Amount) {
        let amount = |amount: Quantity| Some(amount.to_string()).filter(|text| text != "0");
        let amount = |of| Amount { request: amount(of), ..Amount::default() };
        (amount(amounts::processors(self.cpu)), amount(amounts::bytes(self.memory)))
    }
}

/// What Pods use, as far as it is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// How many Pods are measured.
    pods: i64,
    /// Processors, in billionths.
    cpu: i64,
    /// Memory, in bytes.
    memory: i64,
}

impl Total for Used {
    fn add(&mut self, other: &Self) {
        self.pods.add(&other.pods);
        self.cpu.add(&other.cpu);
        self.memory.add(&other.memory);
    }

    fn subtract(&mut self, other: &Self) {
        self.pods.subtract(&other.pods);
        self.cpu.subtract(&other.cpu);
        self.memory.subtract(&other.memory);
    }
}

impl Used {
    /// What a Pod contributes of which this is measured. What has ended uses nothing any more.
    pub fn of(pod: &PodView, metrics: &PodMetricsView) -> Self {
        if has_ended(pod) {
            return Self::default();
        }
        let mut used = Amounts::default();
        usage::sum(&mut used, metrics);
        let nanos = |resource| used.get(resource).map_or(0, |amount| amount.nanos());
        // More than nine billion processors, or bytes by the exabyte, is no measurement.
        let number = |amount: i128| i64::try_from(amount).unwrap_or_default();
        Self { pods: 1, cpu: number(nanos("cpu")), memory: number(nanos("memory") / NANOS) }
    }

    /// The same as amounts; none, where nothing is measured.
    pub fn amounts(&self) -> Amounts {
        let mut used = Amounts::default();
        if self.pods > 0 {
            used.set("cpu", amounts::processors(i128::from(self.cpu)));
            used.set("memory", amounts::bytes(i128::from(self.memory) * NANOS));
        }
        used
    }
}

/// Whether a Pod has done what it had to, or has failed to.
pub fn has_ended(pod: &PodView) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_no_progress_and_what_most_say() {
        let tally = |why: &[(&str, i64)]| {
            let why = why.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect();
            Tally { why, failures: [("Evicted".to_owned(), 9)].into(), ..Tally::default() }
        };
        let worst =
            |why: &[(&str, i64)]| tally(why).worst().map(|(code, count)| (code.to_owned(), count));
        let some = |code: &str, count| Some((code.to_owned(), count));
        assert_eq!(worst(&[]), some("Evicted", 9));
        assert_eq!(worst(&[("Terminating", 5), ("OOMKilled", 1)]), some("OOMKilled", 1));
        assert_eq!(worst(&[("Error", 2), ("OOMKilled", 3)]), some("OOMKilled", 3));
        assert_eq!(worst(&[("Error", 2), ("OOMKilled", 2)]), some("Error", 2));
        assert_eq!(worst(&[("Terminating", 1)]), some("Terminating", 1));
        assert_eq!(Tally::default().worst(), None);
    }
}
