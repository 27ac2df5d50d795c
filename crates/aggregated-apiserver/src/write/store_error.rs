//! What is said of an object with which a store has not done what it was asked for.

use crate::error::{ApiError, Details, Reason, quote};
use crate::kind::Kind;
use crate::object::Key;
use crate::storage::StoreError;

/// The answer where a store has failed. What a store refuses because somebody else was faster is for
/// its caller to judge.
pub fn store_error(kind: &Kind, key: &Key, error: StoreError) -> ApiError {
    let what = || format!("{} {}: {error}", kind.qualified(), quote(&key.to_string()));
    match error {
        StoreError::Damaged => ApiError::unreadable(&kind.qualified(), key, error),
        // Nothing was done, so clients may ask again by themselves.
        StoreError::Unavailable => unavailable(error),
        // Clients must not ask again by themselves: it may have been done.
        StoreError::Unknown => unknown(what()),
        StoreError::TooLarge => ApiError::new(Reason::RequestEntityTooLarge, what()),
        StoreError::Full { .. } => {
            let why = format!("{error}: objects must be deleted or made smaller first");
            ApiError::new(Reason::InsufficientStorage, why)
        }
        StoreError::NoDiskSpace => {
            let why = format!("{error}: objects must be deleted, or room made on it, first");
            ApiError::new(Reason::InsufficientStorage, why)
        }
        _ => ApiError::internal(error),
    }
}

/// The answer where a store does not answer, and nothing was done.
pub fn unavailable(error: StoreError) -> ApiError {
    ApiError::new(Reason::ServiceUnavailable, error.to_string())
        .with_details(Details { retry_after_seconds: 1, ..Details::default() })
}

/// The answer where nobody knows whether it was done.
fn unknown(what: String) -> ApiError {
    ApiError::new(Reason::Timeout, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_done_is_asked_for_again() {
        assert_eq!(unavailable(StoreError::Unavailable).retry_after_seconds(), Some(1));
        assert_eq!(unknown(StoreError::Unknown.to_string()).retry_after_seconds(), None);
    }
}
