//! Turns: slow writes run sequentially, so that other requests find a free worker.

use crate::error::ApiError;
use crate::queue;
use crate::quota::{Limiter, Permit, Share};

/// The largest number of waiting writes of one user.
const WAITING: usize = 1_000;
/// The user name of the queue for the server itself; no client has this name.
const SERVER: &str = "";

/// The queue of the slow writes of one server.
#[derive(Debug)]
pub struct SlowWrites(Limiter);

impl Default for SlowWrites {
    fn default() -> Self {
        Self(Limiter::new(1, Share::All).with_waiting_of_user(WAITING))
    }
}

impl SlowWrites {
    /// Waits until no other slow write runs. Waiting writes take turns round-robin over users.
    ///
    /// # Errors
    /// 429 if too many writes wait, or the wait is too long.
    pub async fn take(&self, user: &str) -> Result<Permit, ApiError> {
        queue::acquire(&self.0, user, "turns").await
    }

    /// Waits for the turn of the server itself. If the queue rejects it, the server continues without a turn.
    pub async fn take_for_server(&self) -> Option<Permit> {
        self.take(SERVER).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::error::Reason;

    #[tokio::test(start_paused = true)]
    async fn slow_writes_of_one_server_do_not_block_another_server() {
        let (one, other) = (SlowWrites::default(), SlowWrites::default());
        let _place = one.take("alice").await.unwrap();
        assert!(one.take("bob").now_or_never().is_none());
        assert!(other.take("bob").now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_continues_without_a_turn_when_slow_writes_are_busy() {
        let turns = SlowWrites::default();
        let _place = turns.take("alice").await.unwrap();
        let gone_on = tokio::time::timeout(Duration::from_secs(60), turns.take_for_server());
        assert!(gone_on.await.unwrap().is_none());
        let refused = turns.take("bob").await.unwrap_err();
        assert_eq!(refused.reason(), Reason::TooManyRequests);
    }
}
