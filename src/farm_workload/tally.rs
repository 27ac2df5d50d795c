//! Sums over the Pods of a workload. Each change of a Pod updates them.

use std::collections::BTreeMap;

use aggregated_apiserver::computed::Aggregate;
use aggregated_apiserver::types::Quantity;
use jiff::Timestamp;

use crate::farm_pod::amounts::{self, Amounts, NANOS};
use crate::farm_pod::resources::{self, Amount};
use crate::farm_pod::status::Summary;
use crate::farm_pod::view::PodView;
use crate::farm_pod::{PodMetricsView, usage, why};

/// Causes that are not problems, because the Pod starts or ends.
const PROGRESS: &[&str] =
    &["ContainerCreating", "Initializing", "NotScheduled", "NotStarted", "Terminating"];

/// The sums over Pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The number of Pods that have not ended.
    pub pods: i64,
    /// The number of restarts of their containers.
    pub restarts: i64,
    /// The end times of the most recently restarted containers, with the number of Pods for each.
    restarted: BTreeMap<Timestamp, i64>,
    /// The requested processors and bytes of memory, in billionths.
    cpu: i128,
    memory: i128,
    /// The codes of the causes, with the number of Pods for each.
    why: BTreeMap<String, i64>,
    /// The codes of the causes of failed Pods, with the number of Pods for each.
    failures: BTreeMap<String, i64>,
}

impl Aggregate for Tally {
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
    /// The contribution of a Pod. A Pod that has ended requests nothing.
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

    /// The latest end time of a container that was restarted.
    pub fn last_restart(&self) -> Option<Timestamp> {
        self.restarted.last_key_value().map(|(time, _)| *time)
    }

    /// The worst cause, with its number of Pods. A problem precedes mere progress, and the more frequent cause precedes
    /// the rarer one. The causes of failed Pods count only if there is no other cause.
    pub fn worst(&self) -> Option<(&str, i64)> {
        let all = if self.why.is_empty() { &self.failures } else { &self.why };
        let weight = |code: &str, count: i64| (!PROGRESS.contains(&code), count);
        let worst = all.iter().rev().max_by_key(|(code, count)| weight(code, **count));
        worst.map(|(code, count)| (code.as_str(), *count))
    }

    /// Whether a Pod has a problem that is more than progress.
    pub fn has_trouble(&self) -> bool {
        self.why.keys().any(|code| !PROGRESS.contains(&code.as_str()))
    }

    /// The requested processors and memory.
    pub fn requests(&self) -> (Amount, Amount) {
        let amount = |amount: Quantity| Some(amount.to_string()).filter(|text| text != "0");
        let amount = |of| Amount { request: amount(of), ..Amount::default() };
        (amount(amounts::processors(self.cpu)), amount(amounts::bytes(self.memory)))
    }
}

/// The measured usage of Pods.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// The number of Pods with a measurement.
    pods: i64,
    /// Processors, in billionths.
    cpu: i64,
    /// Memory, in bytes.
    memory: i64,
}

impl Aggregate for Used {
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
    /// The contribution of a Pod with these measurements. A Pod that has ended uses nothing.
    pub fn of(pod: &PodView, metrics: &PodMetricsView) -> Self {
        if has_ended(pod) {
            return Self::default();
        }
        let mut used = Amounts::default();
        usage::sum(&mut used, metrics);
        let nanos = |resource| used.get(resource).map_or(0, |amount| amount.nanos());
        // More than nine billion processors, or exabytes of memory, is no valid measurement.
        let number = |amount: i128| i64::try_from(amount).unwrap_or_default();
        Self { pods: 1, cpu: number(nanos("cpu")), memory: number(nanos("memory") / NANOS) }
    }

    /// The usage as amounts; empty if no Pod has a measurement.
    pub fn amounts(&self) -> Amounts {
        let mut used = Amounts::default();
        if self.pods > 0 {
            used.set("cpu", amounts::processors(i128::from(self.cpu)));
            used.set("memory", amounts::bytes(i128::from(self.memory) * NANOS));
        }
        used
    }
}

/// Whether a Pod has succeeded or failed.
pub fn has_ended(pod: &PodView) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_precede_progress_and_frequent_causes_precede_rare_ones() {
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
