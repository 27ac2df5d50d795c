//! The wait for a permit of a limiter.

use std::time::Duration;

use tokio::time::sleep;

use crate::error::ApiError;
use crate::quota::{Busy, Limiter, Permit};

/// The longest time that a request waits for a permit.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Acquires a permit of weight one. The error contains the name of the limit.
///
/// # Errors
/// 429 if too many requests wait, or no permit was free within ten seconds.
pub async fn acquire(
    limiter: &Limiter,
    user: &str,
    limit: &'static str,
) -> Result<Permit, ApiError> {
    // The timer is created only if the request waits.
    let deadline = async { sleep(LONGEST_WAIT).await };
    limiter.acquire(user, 1, deadline).await.map_err(|Busy { retry_after }| {
        ApiError::too_many_requests_for(retry_after).bounded_by(limit)
    })
}
