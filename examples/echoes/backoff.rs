//! How long to wait before something is tried again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Failures in a row, by the uid of the object.
#[derive(Debug, Default)]
pub struct Backoff(Mutex<HashMap<String, u32>>);

impl Backoff {
    /// Notes a failure; answers with a pause that doubles each time, up to a bound.
    pub fn failed(&self, uid: &str) -> Duration {
        let mut failures = self.failures();
        let count = failures.entry(uid.to_owned()).or_default();
        let pause = SHORTEST.saturating_mul(2_u32.saturating_pow(*count)).min(LONGEST);
        *count = count.saturating_add(1);
        pause
    }

    /// Forgets the failures of an object.
    pub fn succeeded(&self, uid: &str) {
        self.failures().remove(uid);
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
