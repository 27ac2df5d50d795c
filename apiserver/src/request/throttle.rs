//! Bounds what is in flight: reads, writes, watches and bodies.
//!
//! `system:masters` is exempt, so that an operator gets through. No user has more than a part of the places, so that
//! the controllers of the cluster find one.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use http::request::Parts;

use super::route::Target;
use crate::error::ApiError;
use crate::object::selector::Selector;
use crate::quota::{Account, Place, Places, Quota};
use crate::record::Inflight;
use crate::user::User;
use crate::verb::Verb;

/// Reads in flight; as kube-apiserver's `--max-requests-inflight`.
const READS: usize = 400;
/// Writes in flight; as kube-apiserver's `--max-mutating-requests-inflight`.
const WRITES: usize = 200;
/// Open watches: kube-apiserver needs one for each of its clients' watches.
const WATCHES: usize = 20_000;
/// Bytes of bodies in memory, in units of 64 KiB.
const BODY_UNIT: usize = 64 << 10;
const BODY_UNITS: usize = 1_024;
/// Heads of requests that have not been answered, in units of 4 KiB; one takes a unit at least.
const HEAD_UNIT: usize = 4 << 10;
const HEAD_UNITS: usize = 8_192;
/// The same of callers that are not known yet.
const HEAD_UNITS_OF_STRANGERS: usize = 2_048;
/// A body whose length is not announced may be as long as any.
const LONGEST_BODY: usize = 3 << 20;

/// A place among what is in flight, kept until it is dropped.
#[derive(Default)]
pub(super) struct Permit {
    _place: Option<Place>,
    selector: Option<Account>,
}

/// Bounds what is in flight.
pub(super) struct Throttle {
    reads: Places,
    writes: Places,
    watches: Places,
    bodies: Places,
    heads: Places,
    heads_of_strangers: Places,
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
            heads: Places::new(HEAD_UNITS),
            heads_of_strangers: Places::undivided(HEAD_UNITS_OF_STRANGERS),
            selectors: Quota::default(),
        }
    }
}

impl Throttle {
    /// Counts what is in flight: writes, and reads that do not last.
    pub(super) fn inflight(&self) -> Inflight {
        let (writes, reads) = (self.writes.clone(), self.reads.clone());
        Arc::new(move || (writes.taken(), reads.taken()))
    }

    /// Room for the head of a request by somebody who is not known yet.
    pub(super) fn head_of_stranger(&self, head: &Parts) -> Result<Place, ApiError> {
        let place = self.heads_of_strangers.take("", head_units(head));
        place.ok_or_else(ApiError::too_many_requests)
    }

    /// Room for the head of a request, until it is answered.
    pub(super) fn head(&self, user: &User, head: &Parts) -> Result<Option<Place>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let place = self.heads.take(&user.name, head_units(head));
        place.map(Some).ok_or_else(ApiError::too_many_requests)
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
        let place = places.take(&user.name, 1).ok_or_else(ApiError::too_many_requests)?;
        Ok(Permit { _place: Some(place), selector: None })
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

    /// Room for the body of a request; `None` if it needs none.
    pub(super) fn body(&self, user: &User, body: &Body) -> Result<Option<Place>, ApiError> {
        if user.is_master() || body.is_end_stream() {
            return Ok(None);
        }
        let announced = body.size_hint().upper().and_then(|length| usize::try_from(length).ok());
        let length = announced.unwrap_or(LONGEST_BODY).min(LONGEST_BODY);
        let place = self.bodies.take(&user.name, length.div_ceil(BODY_UNIT));
        place.map(Some).ok_or_else(ApiError::too_many_requests)
    }
}

/// What a head takes, in units.
fn head_units(head: &Parts) -> usize {
    /// What a header takes besides its name and its value.
    const HEADER: usize = 64;
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    let uri = head.uri.path().len() + head.uri.query().map_or(0, str::len);
    (headers.sum::<usize>() + uri).div_ceil(HEAD_UNIT).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_bounded_by_their_size_and_by_user() {
        let throttle = Throttle::default();
        let head = |length: usize| {
            let request = http::Request::get("/x").header("x", "x".repeat(length));
            request.body(()).unwrap().into_parts().0
        };
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let (small, large) = (head(10), head(1 << 20));
        let held: Vec<_> =
            std::iter::from_fn(|| throttle.head(&user("jane"), &large).ok()).collect();
        assert_eq!(held.len(), 7);
        assert!(throttle.head(&user("joe"), &large).is_ok());
        assert!(throttle.head(&user("jane"), &small).is_ok(), "there is room for a small one");
        let of_strangers = std::iter::from_fn(|| throttle.head_of_stranger(&small).ok());
        assert_eq!(of_strangers.collect::<Vec<_>>().len(), HEAD_UNITS_OF_STRANGERS);
        let masters = User { groups: vec!["system:masters".to_owned()], ..user("jane") };
        let many: Vec<_> = (0..100).map(|_| throttle.head(&masters, &large)).collect();
        assert!(many.iter().all(Result::is_ok));
    }

    #[test]
    fn an_empty_body_needs_no_room_and_an_unknown_one_the_most() {
        let throttle = Throttle::default();
        let user = User { name: "jane".to_owned(), ..User::default() };
        let unknown = || Body::from_stream(futures::stream::pending::<Result<String, String>>());
        let held: Vec<_> = std::iter::from_fn(|| throttle.body(&user, &unknown()).ok()).collect();
        assert_eq!(held.len(), BODY_UNITS / 4 / LONGEST_BODY.div_ceil(BODY_UNIT));
        assert!(throttle.body(&user, &Body::empty()).is_ok());
        let other = User { name: "joe".to_owned(), ..User::default() };
        assert!(throttle.body(&other, &Body::from("{}")).is_ok());
    }
}
