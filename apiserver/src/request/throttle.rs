//! Bounds what is in flight: reads, writes, watches and bodies.
//!
//! `system:masters` is exempt, so that an operator gets through. No user has more than a part of the places, so that
//! the controllers of the cluster find one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, HttpBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::route::Target;
use crate::error::ApiError;
use crate::object::selector::Selector;
use crate::quota::{Account, Quota};
use crate::record::Inflight;
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
    user: Option<(String, usize, ByUser)>,
    selector: Option<Account>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        drop(self.place.take());
        let Some((user, taken, by_user)) = self.user.take() else { return };
        let mut by_user = by_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_user.get_mut(&user) {
            *count -= taken;
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

    fn take(&self, user: &User, places: usize) -> Option<Permit> {
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_user.get(&user.name).copied().unwrap_or_default();
        if count + places > self.share {
            return None;
        }
        let wanted = u32::try_from(places).ok()?;
        let place = Arc::clone(&self.free).try_acquire_many_owned(wanted).ok()?;
        by_user.insert(user.name.clone(), count + places);
        let user = Some((user.name.clone(), places, Arc::clone(&self.by_user)));
        Some(Permit { place: Some(place), user, selector: None })
    }
}

/// Bounds what is in flight.
pub(super) struct Throttle {
    reads: Places,
    writes: Places,
    watches: Places,
    bodies: Places,
    /// What selectors take, besides those that are small.
    selectors: Quota,
}

/// A selector that takes no more than other parts of a watch, in bytes.
const SMALL_SELECTOR: usize = 4 << 10;

impl Default for Throttle {
    fn default() -> Self {
        Self {
            reads: Places::new(READS),
            writes: Places::new(WRITES),
            watches: Places::new(WATCHES),
            bodies: Places::new(BODY_UNITS),
            selectors: Quota::default(),
        }
    }
}

impl Throttle {
    /// Counts what is in flight: writes, and reads that do not last.
    pub(super) fn inflight(&self) -> Inflight {
        let (writes, reads) = (Arc::clone(&self.writes.free), Arc::clone(&self.reads.free));
        Arc::new(move || {
            let taken =
                |count: usize, free: &Semaphore| count.saturating_sub(free.available_permits());
            (taken(WRITES, &writes), taken(READS, &reads))
        })
    }

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
        places.take(user, 1).ok_or_else(too_many)
    }

    /// Room for the selector of a reader, for as long as it has its place.
    pub(super) fn selector(
        &self,
        user: &User,
        selector: &Selector,
        permit: &mut Permit,
    ) -> Result<(), ApiError> {
        let size = selector.size();
        if size > SMALL_SELECTOR {
            let account = self.selectors.account(&user.name, user.is_master());
            account.take(size)?;
            permit.selector = Some(account);
        }
        Ok(())
    }

    /// Room for the body of a request.
    pub(super) fn body(&self, user: &User, body: &Body) -> Result<Permit, ApiError> {
        if user.is_master() || body.is_end_stream() {
            return Ok(Permit::default());
        }
        let announced = body.size_hint().upper().and_then(|length| usize::try_from(length).ok());
        let length = announced.unwrap_or(LONGEST_BODY).min(LONGEST_BODY);
        self.bodies.take(user, length.div_ceil(BODY_UNIT)).ok_or_else(too_many)
    }
}

fn too_many() -> ApiError {
    ApiError::try_again("Too many requests, please try again later.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_body_needs_no_room_and_an_unknown_one_the_most() {
        let throttle = Throttle::default();
        let user = User { name: "jane".to_owned(), ..User::default() };
        let unknown = || Body::from_stream(futures::stream::pending::<Result<String, String>>());
        let held: Vec<_> = std::iter::from_fn(|| throttle.body(&user, &unknown()).ok()).collect();
        assert_eq!(held.len(), BODY_UNITS / SHARE / LONGEST_BODY.div_ceil(BODY_UNIT));
        assert!(throttle.body(&user, &Body::empty()).is_ok());
        let other = User { name: "joe".to_owned(), ..User::default() };
        assert!(throttle.body(&other, &Body::from("{}")).is_ok());
    }

    #[test]
    fn one_user_leaves_places_for_others() {
        let places = Places::new(8);
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let held: Vec<_> = std::iter::from_fn(|| places.take(&user("greedy"), 1)).collect();
        assert_eq!(held.len(), 2);
        assert!(places.take(&user("modest"), 1).is_some());
        drop(held);
        assert!(places.by_user.lock().unwrap().is_empty());
        let names = ["a", "b", "c", "d", "e"];
        let all = names.map(|name| [places.take(&user(name), 1), places.take(&user(name), 1)]);
        let count = all.iter().flatten().filter(|permit| permit.is_some()).count();
        assert_eq!(count, 8);
    }
}
