//! What Pods come to: sums that follow each change of a Pod.

use std::collections::BTreeMap;

use aggregated_apiserver::{Quantity, Total};
use jiff::Timestamp;

use crate::farm_pod::resources::{self, Amount};
use crate::farm_pod::status::Summary;
use crate::farm_pod::view::PodView;
use crate::farm_pod::why;

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
        let amount = |text: Option<String>| Amount { request: text, ..Amount::default() };
        (amount(cpu_text(self.cpu)), amount(memory_text(self.memory)))
    }
}

/// Whether a Pod has done what it had to, or has failed to.
pub fn has_ended(pod: &PodView) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Processors, as `250m`; nothing of none.
fn cpu_text(nanos: i128) -> Option<String> {
    let thousandths = nanos.checked_add(999_999)? / 1_000_000;
    let text = || Quantity::parse(&format!("{thousandths}m")).ok();
    (nanos > 0).then(text).flatten().map(|amount| amount.to_string())
}

/// Bytes, as `128Mi`; nothing of none.
fn memory_text(nanos: i128) -> Option<String> {
    let bytes = nanos / 1_000_000_000;
    let text = match bytes % 1024 {
        0 => format!("{}Ki", bytes / 1024),
        _ => bytes.to_string(),
    };
    (bytes > 0).then(|| Quantity::parse(&text).ok()).flatten().map(|amount| amount.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_do() {
        const GIGA: i128 = 1_000_000_000;
        assert_eq!(cpu_text(0), None);
        assert_eq!(cpu_text(1).as_deref(), Some("1m"));
        assert_eq!(cpu_text(1_500_000_000).as_deref(), Some("1500m"));
        assert_eq!(cpu_text(2 * GIGA).as_deref(), Some("2"));
        assert_eq!(memory_text((256 << 20) * GIGA).as_deref(), Some("256Mi"));
        assert_eq!(memory_text(1_000 * GIGA).as_deref(), Some("1k"));
        assert_eq!(memory_text(0), None);
    }

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
