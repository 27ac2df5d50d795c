//! The time of one call, and the part of it that the call has spent in queues of this server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// If queues of this server have used at most one part in [`QUEUED_PART`] of the time, a webhook without a response has
/// failed. Otherwise this server has used the time.
const QUEUED_PART: u32 = 10;

/// The time of a call. It includes the name lookup, the queues of this server, the connection and the response.
#[derive(Debug)]
pub(super) struct CallTime {
    total: Duration,
    ends: Instant,
    queued: Mutex<Duration>,
}

/// The time of the call is over.
#[derive(Debug)]
pub(super) struct Over;

impl CallTime {
    /// The time of a call that starts now.
    pub fn starting(total: Duration) -> Self {
        Self { total, ends: Instant::now() + total, queued: Mutex::default() }
    }

    /// The whole time, which is also the timeout that the webhook receives.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Waits at most until the time is over.
    ///
    /// # Errors
    /// [`Over`] if the time is over.
    pub async fn limit<T>(&self, wait: impl Future<Output = T>) -> Result<T, Over> {
        timeout_at(self.ends, wait).await.map_err(|_| Over)
    }

    /// Waits in a queue of this server, at most until the time is over.
    ///
    /// # Errors
    /// [`Over`] if the time is over.
    pub async fn queue<T>(&self, wait: impl Future<Output = T>) -> Result<T, Over> {
        let began = Instant::now();
        let waited = self.limit(wait).await;
        self.add_queued(began.elapsed());
        waited
    }

    /// Adds time that the call spent in a queue of this server.
    pub fn add_queued(&self, time: Duration) {
        *self.queued.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }

    /// The time in queues, if it left too little time for the webhook.
    pub fn excess_queued(&self) -> Option<Duration> {
        let queued = *self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        (queued > self.total / QUEUED_PART).then_some(queued)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn queues_are_part_of_the_time() {
        let time = CallTime::starting(Duration::from_secs(10));
        time.queue(sleep(Duration::from_secs(1))).await.unwrap();
        assert_eq!(time.excess_queued(), None);
        time.queue(sleep(Duration::from_secs(4))).await.unwrap();
        assert_eq!(time.excess_queued(), Some(Duration::from_secs(5)));
        let began = Instant::now();
        time.limit(pending::<()>()).await.unwrap_err();
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        time.queue(pending::<()>()).await.unwrap_err();
        assert_eq!(began.elapsed(), Duration::from_secs(5));
    }
}
