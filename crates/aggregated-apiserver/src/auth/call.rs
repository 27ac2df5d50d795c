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
///
/// ```
/// use aggregated_apiserver::auth::AuthError;
///
/// let invalid = AuthError::new("the signature of the token is invalid");
/// let unavailable = AuthError::unavailable("cannot connect to ldap.example.com");
/// # let _ = (invalid, unavailable);
/// ```
#[derive(Clone, Debug)]
pub struct AuthError {
    why: String,
    is_unavailable: bool,
}

impl AuthError {
    /// An error with this reason for the log. An authenticator returns it for invalid credentials.
    pub fn new(why: impl fmt::Display) -> Self {
        Self { why: why.to_string(), is_unavailable: false }
    }

    /// An error of an authenticator that cannot check credentials now, for example because its backend does not
    /// respond. The request is rejected like one with invalid credentials. But only a client with invalid credentials
    /// loses its precedence over clients without credentials.
    pub fn unavailable(why: impl fmt::Display) -> Self {
        Self { why: why.to_string(), is_unavailable: true }
    }

    /// Whether the credentials could not be checked.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is_unavailable
    }

    /// The same error, with the name of the authenticator or authorizer.
    pub(super) fn of(self, name: &str) -> Self {
        Self { why: format!("{name}: {}", self.why), ..self }
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
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
        Ok(Err(_)) => Err(AuthError::unavailable("it panicked")),
        Err(_) => Err(AuthError::unavailable(format!("it took longer than {DEADLINE:?}"))),
    }
}
