//! Bounds what is in flight: reads, writes, watches and bodies.
//!
//! `system:masters` is exempt from all but the bound on bodies, so that an
//! operator gets through. No user has more than a part of the places, so that
//! the controllers of the cluster find one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::route::Target;
use crate::error::ApiError;
use crate::user::User;
use crate::verb::Verb;

/// Reads in flight; as kube-apiserver's `--max-requests-inflight`.
const READS: usize = 400;
/// Writes in flight; as kube-apiserver's `--max-mutating-requests-inflight`.
const WRITES: usize = 200;
/// Open watches: kube-apiserver needs one for each of its clients' watches.
const WATCHES: usize = 20_000;
/// One user has at most this part of the places: a quarter.
const SHARE: usize = 4;
/// Bytes of bodies in memory, in units of 64 KiB.
const BODY_UNIT: usize = 64 << 10;
const BODY_UNITS: usize = 1_024;
/// A body whose length is not announced may be as long as any.
const LONGEST_BODY: usize = 3 << 20;

/// How many places each user has.
type ByUser = Arc<Mutex<HashMap<String, usize>>>;

/// Places of one sort.
struct Places {
    free: Arc<Semaphore>,
    share: usize,
    by_user: ByUser,
}

/// A place among what is in flight, kept until it is dropped.
#[derive(Default)]
pub(super) struct Permit {
    place: Option<OwnedSemaphorePermit>,
    user: Option<(String, ByUser)>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        drop(self.place.take());
        let Some((user, by_user)) = self.user.take() else { return };
        let mut by_user = by_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_user.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                by_user.remove(&user);
            }
        }
    }
}

impl Places {
    fn new(count: usize) -> Self {
        let free = Arc::new(Semaphore::new(count));
        Self { free, share: count / SHARE, by_user: Arc::default() }
    }

    fn take(&self, user: &User) -> Option<Permit> {
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_user.get(&user.name).copied().unwrap_or_default();
        if count >= self.share {
            return None;
        }
        let place = Arc::clone(&self.free).try_acquire_owned().ok()?;
        by_user.insert(user.name.clone(), count + 1);
        let user = Some((user.name.clone(), Arc::clone(&self.by_user)));
        Some(Permit { place: Some(place), user })
    }
}

/// Bounds what is in flight.
pub(super) struct Throttle {
    reads: Places,
    writes: Places,
    watches: Places,
    bodies: Arc<Semaphore>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            reads: Places::new(READS),
            writes: Places::new(WRITES),
            watches: Places::new(WATCHES),
            bodies: Arc::new(Semaphore::new(BODY_UNITS)),
        }
    }
}

impl Throttle {
    /// A place among what is in flight.
    pub(super) fn throttle(&self, user: &User, target: &Target) -> Result<Permit, ApiError> {
        if user.is_master() {
            return Ok(Permit::default());
        }
        let places = match target.verb {
            Verb::Watch => &self.watches,
            Verb::Get | Verb::List => &self.reads,
            _ => &self.writes,
        };
        places.take(user).ok_or_else(too_many)
    }

    /// Room for the body of a request that has one.
    pub(super) fn body(
        &self,
        head: &Parts,
        target: &Target,
    ) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        if matches!(target.verb, Verb::Get | Verb::List | Verb::Watch) {
            return Ok(None);
        }
        let announced = head.headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let length = announced.unwrap_or(LONGEST_BODY).min(LONGEST_BODY);
        let units = u32::try_from(length.div_ceil(BODY_UNIT)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bodies).try_acquire_many_owned(units);
        room.map(Some).map_err(|_| too_many())
    }
}

fn too_many() -> ApiError {
    ApiError::try_again("Too many requests, please try again later.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_places_for_others() {
        let places = Places::new(8);
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let held: Vec<_> = std::iter::from_fn(|| places.take(&user("greedy"))).collect();
        assert_eq!(held.len(), 2);
        assert!(places.take(&user("modest")).is_some());
        drop(held);
        assert!(places.by_user.lock().unwrap().is_empty());
        let names = ["a", "b", "c", "d", "e"];
        let all = names.map(|name| [places.take(&user(name)), places.take(&user(name))]);
        let count = all.iter().flatten().filter(|permit| permit.is_some()).count();
        assert_eq!(count, 8);
    }
}
