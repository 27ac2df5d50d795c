//! Bounds the requests in flight.
//!
//! Watches are exempt, as in kube-apiserver: they cost nothing while nothing
//! happens. So is `system:masters`, so that an operator gets through.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::route::{Destination, Route};
use crate::error::ApiError;
use crate::user::User;
use crate::verb::Verb;

/// Reads in flight; as kube-apiserver's `--max-requests-inflight`.
const READS: usize = 400;
/// Writes in flight; as kube-apiserver's `--max-mutating-requests-inflight`.
const WRITES: usize = 200;

/// A place among the requests in flight, kept until it is dropped.
pub(super) type Permit = OwnedSemaphorePermit;

/// Bounds the requests in flight.
pub(super) struct Throttle {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { reads: Arc::new(Semaphore::new(READS)), writes: Arc::new(Semaphore::new(WRITES)) }
    }
}

impl Throttle {
    /// A place among the requests in flight; none for those that need none.
    pub(super) fn throttle(&self, user: &User, route: &Route) -> Result<Option<Permit>, ApiError> {
        let Destination::Target(target) = &route.destination else { return Ok(None) };
        let places = match target.verb {
            Verb::Watch => return Ok(None),
            Verb::Get | Verb::List => &self.reads,
            _ => &self.writes,
        };
        if user.is_master() {
            return Ok(None);
        }
        match Arc::clone(places).try_acquire_owned() {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => Err(ApiError::try_again("Too many requests, please try again later.", 1)),
        }
    }
}
