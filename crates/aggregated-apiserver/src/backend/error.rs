//! The errors of backends.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::error::{FieldError, Reason};

/// The error of a call of a backend.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackendError {
    /// An object of this name exists.
    #[error("an object of this name exists")]
    AlreadyExists,
    /// There is no object of this name.
    #[error("there is no object of this name")]
    NotFound,
    /// Another program has changed the object.
    #[error("the object was changed")]
    Conflict,
    /// The backend rejects the request. Clients get this reason and this message.
    #[error("{message}")]
    Rejected {
        /// The reason, which also determines the HTTP status code.
        reason: Reason,
        /// The message for the client.
        message: String,
    },
    /// Fields have invalid values. Clients get 422 with these errors.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Invalid(Vec<FieldError>),
    /// The backend cannot be reached, and nothing was changed. Clients get 503 without the message, which is logged.
    #[error("{0}")]
    Unavailable(String),
    /// The backend has failed, and it is unknown whether the object was changed. Clients get 500 without the message,
    /// which is logged.
    #[error("{0}")]
    Internal(String),
    /// The call did not end in time, and it is unknown whether the object was changed. Clients get 504.
    #[error("no response within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
}

impl BackendError {
    /// Rejects the request with this reason and this message for the client.
    pub fn rejected(reason: Reason, message: impl Into<String>) -> Self {
        Self::Rejected { reason, message: message.into() }
    }

    /// Rejects the value of a field, such as `spec.copies`.
    pub fn invalid(field: impl Into<String>, detail: &str) -> Self {
        Self::Invalid(vec![FieldError::invalid_unseen(field, detail)])
    }

    /// Whether the write may have happened.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Internal(_) | Self::TimedOut(_))
    }

    /// An error for operators. It is logged, and clients do not see the message.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal(message.into())
    }

    /// Same as [`internal`](Self::internal), for an error of another library.
    pub fn internal_from(error: impl fmt::Display) -> Self {
        Self::Internal(error.to_string())
    }
}
