//! Computes the status of ResourceQuotas, same as kube-controller-manager: when a quota is created or its spec changes,
//! and when the usage of the namespace changes in another way than by a create that admission has charged.
//!
//! Not a `kube::runtime::Controller`, because the server counts the usage of each namespace anyway. Without quotas the
//! controller does nothing.

use std::collections::HashMap;
use std::time::Duration;

use aggregated_apiserver::admission::QuotaStatuses;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// The interval between two updates of all quotas; same as in kube-controller-manager.
const RESYNC: Duration = Duration::from_mins(5);
/// The pause before a failed update is retried: it doubles up to the second value.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Runs the controller, if the server stores and enforces quotas.
pub(crate) async fn run(statuses: Option<QuotaStatuses>) {
    let Some(statuses) = statuses else { return };
    let mut resync = interval_at(Instant::now() + RESYNC, RESYNC);
    resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
    statuses.mark_all();
    let mut failed = Failed::default();
    loop {
        let retry = failed.next();
        tokio::select! {
            _ = resync.tick() => statuses.mark_all(),
            () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                failed.due(Instant::now()).iter().for_each(|namespace| statuses.mark(namespace));
            }
            written = statuses.write_next() => match written {
                Ok(namespace) => failed.forget(&namespace),
                Err((namespace, why)) => {
                    tracing::debug!("status of resourcequotas of {namespace}: {why}");
                    failed.record(namespace, Instant::now());
                }
            },
        }
    }
}

/// The namespaces whose quotas could not be updated.
#[derive(Default)]
struct Failed(HashMap<String, Retry>);

struct Retry {
    /// The time of the next attempt; `None` while it is queued.
    at: Option<Instant>,
    pause: Duration,
}

impl Failed {
    /// The time of the next attempt.
    fn next(&self) -> Option<Instant> {
        self.0.values().filter_map(|retry| retry.at).min()
    }

    /// The namespaces whose next attempt is due. The caller queues them.
    fn due(&mut self, now: Instant) -> Vec<String> {
        let due = self.0.iter_mut().filter(|(_, retry)| retry.at.is_some_and(|at| at <= now));
        let due = due.map(|(namespace, retry)| {
            retry.at = None;
            namespace.clone()
        });
        due.collect()
    }

    fn record(&mut self, namespace: String, now: Instant) {
        let first = RETRY_AFTER.0 / 2;
        let retry = self.0.entry(namespace).or_insert(Retry { at: None, pause: first });
        retry.pause = RETRY_AFTER.1.min(retry.pause * 2);
        retry.at = Some(now + retry.pause);
    }

    fn forget(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_failed_updates_double() {
        let (mut failed, now) = (Failed::default(), Instant::now());
        assert_eq!(failed.next(), None);
        for pause in [100, 200, 400] {
            failed.record("a".to_owned(), now);
            let at = now + Duration::from_millis(pause);
            assert_eq!(failed.next(), Some(at));
            assert!(failed.due(now).is_empty());
            assert_eq!(failed.due(at), ["a"]);
            assert_eq!(failed.next(), None);
        }
        (0..20).for_each(|_| failed.record("a".to_owned(), now));
        assert_eq!(failed.next(), Some(now + RETRY_AFTER.1));
        failed.forget("a");
        failed.record("a".to_owned(), now);
        assert_eq!(failed.next(), Some(now + RETRY_AFTER.0));
    }
}
