//! API errors for the errors of a store.

use crate::error::{ApiError, Details, Reason, quote};
use crate::kind::Kind;
use crate::object::Key;
use crate::storage::StoreError;

/// The API error for an error of the store. The caller handles conflicts with concurrent writes.
pub fn store_error(kind: &Kind, key: &Key, error: StoreError) -> ApiError {
    let what = || format!("{} {}: {error}", kind.qualified(), quote(&key.to_string()));
    match error {
        StoreError::Damaged => ApiError::unreadable(&kind.qualified(), key, error),
        // Nothing was committed, so clients may retry automatically.
        StoreError::Unavailable => unavailable(error),
        // Clients must not retry automatically, because the write may have been committed.
        StoreError::Unknown => unknown(what()),
        StoreError::TooLarge => ApiError::new(Reason::RequestEntityTooLarge, what()),
        StoreError::Full { .. } => {
            let why = format!("{error}: objects must be deleted or made smaller first");
            ApiError::new(Reason::InsufficientStorage, why)
        }
        StoreError::NoDiskSpace => {
            let why =
                format!("{error}: objects must be deleted, or disk space must be freed, first");
            ApiError::new(Reason::InsufficientStorage, why)
        }
        _ => ApiError::internal(error),
    }
}

/// The error if a store does not respond and nothing was committed: 503.
pub fn unavailable(error: StoreError) -> ApiError {
    ApiError::new(Reason::ServiceUnavailable, error.to_string())
        .with_details(Details { retry_after_seconds: 1, ..Details::default() })
}

/// The error if the outcome of a write is unknown: 504.
fn unknown(what: String) -> ApiError {
    ApiError::new(Reason::Timeout, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_errors_have_retry_after_and_unknown_outcomes_do_not() {
        assert_eq!(unavailable(StoreError::Unavailable).retry_after_seconds(), Some(1));
        assert_eq!(unknown(StoreError::Unknown.to_string()).retry_after_seconds(), None);
    }
}
