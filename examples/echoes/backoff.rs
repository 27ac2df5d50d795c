//! The pause before a retry.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// The number of consecutive failures, by the uid of the object.
#[derive(Debug, Default)]
pub struct Backoff(Mutex<HashMap<String, u32>>);

impl Backoff {
    /// Counts a failure. Returns a pause that doubles with each failure, up to a limit.
    pub fn failed(&self, uid: &str) -> Duration {
        let mut failures = self.failures();
        let count = failures.entry(uid.to_owned()).or_default();
        let pause = SHORTEST.saturating_mul(2_u32.saturating_pow(*count)).min(LONGEST);
        *count = count.saturating_add(1);
        pause
    }

    /// Removes the failures of an object.
    pub fn succeeded(&self, uid: &str) {
        self.failures().remove(uid);
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
