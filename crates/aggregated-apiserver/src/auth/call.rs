//! Calls of authenticators and authorizers: their errors, their deadline, and their panics.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

/// The longest time of a call; same as that of a review by the cluster.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// The reason for which an authenticator or an authorizer has no result. It is logged. Clients never receive it, so it
/// may contain details.
#[derive(Clone, Debug)]
pub struct AuthError(String);

impl AuthError {
    /// An error with this reason for the log.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuthError {}

/// Waits for a call of user code, at most until the deadline.
///
/// # Errors
/// The error of the call; an error for a call that panics or takes too long.
pub(super) async fn caught<'a, T>(
    call: impl FnOnce() -> BoxFuture<'a, Result<T, AuthError>>,
) -> Result<T, AuthError> {
    // The function itself may panic before it returns a future.
    let call = AssertUnwindSafe(async { call().await }).catch_unwind();
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(AuthError::new("it panicked")),
        Err(_) => Err(AuthError(format!("it took longer than {DEADLINE:?}"))),
    }
}
