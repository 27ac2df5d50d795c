//! The errors of writes to a backend.

use super::BackendError;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::log_throttle::{LogThrottle, shown};
use crate::object::Key;
use crate::storage::StoreError;

/// Throttles the log about failed calls.
static FAILED: LogThrottle = LogThrottle::at_most(5);

/// The reason why a write did not happen.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The error of a store.
    Store(StoreError),
    /// The error of the backend, for the client.
    Refused(ApiError),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl WriteError {
    /// The error for the client if a call of the backend has failed. The messages that clients must not see are
    /// logged.
    pub(super) fn of_backend(kind: &Kind, key: &Key, error: BackendError) -> Self {
        let (group, plural) = (&kind.group, &kind.names.plural);
        match error {
            BackendError::AlreadyExists => {
                Self::Refused(ApiError::already_exists(group, plural, key.name()))
            }
            BackendError::NotFound => Self::Refused(ApiError::not_found(group, plural, key.name())),
            BackendError::Conflict => {
                let why = error.to_string();
                Self::Refused(ApiError::conflict(group, plural, key.name(), &why))
            }
            BackendError::Rejected { reason, message } => {
                Self::Refused(ApiError::new(reason, message))
            }
            BackendError::Invalid(errors) => {
                Self::Refused(ApiError::invalid(group, &kind.names.kind, key.name(), errors))
            }
            BackendError::Unavailable(_) => {
                log(kind, key, &error);
                StoreError::Unavailable.into()
            }
            BackendError::TimedOut(_) => {
                log(kind, key, &error);
                StoreError::Unknown.into()
            }
            BackendError::Internal(why) => Self::unusable(kind, key, &why),
        }
    }

    /// A read or a dry run that timed out has changed nothing, so the client may retry: 503 instead of 504.
    pub(super) fn of_read(self) -> Self {
        match self {
            Self::Store(StoreError::Unknown) => Self::Store(StoreError::Unavailable),
            other => other,
        }
    }

    /// This message, followed by that of the error.
    pub(crate) fn message_after(&self, what: &str) -> String {
        match self {
            Self::Store(error) => format!("{what}: {error}"),
            Self::Refused(error) => format!("{what}: {error}"),
        }
    }

    /// The error for code that knows only stores.
    pub(super) fn of_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            // The backend will not accept it later, either.
            Self::Refused(_) => StoreError::Failed,
        }
    }

    /// The error for a client if the backend returns something that cannot be used. The reason is logged.
    pub(super) fn unusable(kind: &Kind, key: &Key, why: &str) -> Self {
        log(kind, key, &BackendError::internal(why));
        let kind = kind.qualified();
        Self::Refused(ApiError::internal(format!("the backend of {kind} has failed")))
    }
}

fn log(kind: &Kind, key: &Key, error: &BackendError) {
    FAILED.log(|suppressed| {
        let (kind, object, error) = (kind.qualified(), shown(key), shown(error));
        tracing::error!(suppressed, kind, object, error, "the backend has failed");
    });
}
