//! Limits for requests in flight: reads, writes, watches and bodies.
//!
//! `system:masters` is exempt, so that operators always have access. Documents and health checks are not counted. Reads
//! and writes have slots by the priority level of their user, and each user may hold only a part of these. If all slots
//! of a level are taken, requests wait for a limited time, round-robin over users: a hundred users with too many
//! requests delay another user by one turn each at most. A request needs a slot only after it has been received
//! completely, so a slow client does not occupy one. The scheme corresponds to kube-apiserver's priority and fairness,
//! with four levels and without configuration.

mod level;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;

use self::level::Level;
use super::head;
use super::route::Target;
use crate::error::ApiError;
use crate::object::selector::Selector;
use crate::queue;
use crate::quota::{self, Account, Limiter, MemoryScale, Quota, Share};
use crate::user::User;
use crate::verb::Verb;
use crate::watch_cache::SLOW_WATCHER;

/// The default limit of concurrent reads; same as kube-apiserver's `--max-requests-inflight`.
const READS: usize = 400;
/// The default limit of concurrent writes; same as kube-apiserver's `--max-mutating-requests-inflight`.
const WRITES: usize = 200;
/// The default limit of open watches: kube-apiserver needs one for each watch of its clients. A small container has
/// fewer.
const WATCHES: usize = 20_000;
const LEAST_WATCHES: usize = WATCHES / 40;
/// The memory of a watch besides its connection, in bytes: its stream, its selector and its position, which
/// `tests/watch_memory` measures; and references to changes, if its client does not read. A watch holds no changes
/// itself: they are in the window that all watches share.
const WATCH: usize = (7 << 9) + SMALL_READER + SLOW_WATCHER;
/// The maximum number of upgraded connections and of requests that proxies forward. A small container has fewer.
const UPGRADES: usize = 800;
const LEAST_UPGRADES: usize = UPGRADES / 80;
/// The memory of an upgraded connection besides its TLS, or of the connection of a proxy, in bytes. A hostile client can
/// make it larger.
const UPGRADE: usize = 64 << 10;
/// The part of a body that is in memory at a time if a handler reads it while it arrives, in bytes: the window of a
/// stream.
pub(super) const STREAMED_BODY: usize = 512 << 10;
/// The maximum number of costly requests that run concurrently, outside of the worker threads, one per user. A request
/// is costly if its body, or the object that it changes, is large.
const COSTLY: usize = 3;
const COSTLY_SIZE: usize = 128 << 10;
/// The body size from which a JSON patch is costly, in bytes. It is smaller, because each operation of a patch may
/// process the whole object.
const COSTLY_JSON_PATCH: usize = 16 << 10;
/// The number of validation steps per value that lowers the size limit of costly requests. With each multiple of this
/// number, a smaller object is costly.
const COSTLY_STEPS: usize = 256;
/// The maximum number of waiting costly requests of one user: each holds its body.
const COSTLY_WAITING: usize = 50;
/// The memory limit of bodies larger than 64 KiB, in bytes; smaller bodies have the same limit again. Both include
/// bodies that arrive slowly or wait for a slot. Most bodies are small, and clients that announce large ones do not
/// block them.
const BODIES: usize = 32 << 20;
const SMALL_BODY: usize = 64 << 10;
/// The unit in which the memory of bodies is counted, in bytes.
const BODY_UNIT: usize = 4 << 10;
const BODY_UNITS: usize = BODIES / BODY_UNIT;
/// The limits in a small container: one body of maximum length for each of four users, and as many small bodies as one
/// user may have in a large container.
const LEAST_BODY_UNITS: usize = 4 * LONGEST_BODY / BODY_UNIT;
const LEAST_SMALL_BODY_UNITS: usize = BODY_UNITS / 8;
/// The memory limit of the heads of requests that have not been answered, in units of 4 KiB; each head counts as at
/// least one unit.
const HEAD_UNIT: usize = 4 << 10;
const HEAD_UNITS: usize = 8_192;
/// The limit in a small container: a user can still send a head of 2 MiB, the largest that is read.
const LEAST_HEAD_UNITS: usize = HEAD_UNITS / 4;
/// The memory limit of the heads of unauthenticated requests, in units.
const HEAD_UNITS_OF_STRANGERS: usize = 2_048;
const LEAST_HEAD_UNITS_OF_STRANGERS: usize = HEAD_UNITS_OF_STRANGERS / 4;
/// The maximum length of a body, in bytes. A body of unknown length counts as this long.
const LONGEST_BODY: usize = 3 << 20;

/// One user may hold one in this number of the slots for reads and writes. Of memory and watches, one user may hold one
/// in this number of the part that other users have left.
const SHARE: usize = 4;

/// The limits of concurrent requests that operators can configure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflights {
    /// Reads, except watches.
    pub reads: usize,
    /// Writes.
    pub writes: usize,
    /// Watches; `None` for as many as the memory allows.
    pub watches: Option<usize>,
}

impl Default for Inflights {
    fn default() -> Self {
        Self { reads: READS, writes: WRITES, watches: None }
    }
}

/// The limits of requests: slots, and the memory of their heads, bodies and selectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    reads: usize,
    writes: usize,
    watches: usize,
    upgrades: usize,
    large_body_units: usize,
    small_body_units: usize,
    head_units: usize,
    head_units_of_strangers: usize,
    /// The memory limit of users and selectors of watches, in bytes.
    readers: usize,
}

impl Bounds {
    pub(super) fn of(portion: MemoryScale, inflights: Inflights) -> Self {
        let Inflights { reads, writes, watches } = inflights;
        Self {
            reads,
            writes,
            watches: watches.unwrap_or_else(|| portion.between(LEAST_WATCHES, WATCHES)),
            upgrades: portion.between(LEAST_UPGRADES, UPGRADES),
            large_body_units: portion.between(LEAST_BODY_UNITS, BODY_UNITS),
            small_body_units: portion.between(LEAST_SMALL_BODY_UNITS, BODY_UNITS),
            head_units: portion.between(LEAST_HEAD_UNITS, HEAD_UNITS),
            head_units_of_strangers: portion
                .between(LEAST_HEAD_UNITS_OF_STRANGERS, HEAD_UNITS_OF_STRANGERS),
            readers: portion.between(LEAST_READERS, READERS),
        }
    }

    /// The limit of open watches.
    pub(super) fn watches(&self) -> usize {
        self.watches
    }

    /// The memory of all watches, in bytes.
    pub(super) fn watches_memory(&self) -> usize {
        self.watches * WATCH
    }

    /// The memory of everything else that is limited here, in bytes.
    pub(super) fn memory(&self) -> usize {
        let heads = (self.head_units + self.head_units_of_strangers) * HEAD_UNIT;
        let bodies = (self.large_body_units + self.small_body_units) * BODY_UNIT;
        heads + bodies + self.readers + self.upgrades * UPGRADE
    }
}

/// A slot of a request in flight, until it is dropped.
#[derive(Default)]
pub(super) struct Permit {
    place: Option<quota::Permit>,
    reader: Option<Account>,
    /// The slot of a costly request.
    pub turn: Option<quota::Permit>,
    /// The memory of the objects that a backend has returned for the request.
    pub memory: Option<OwnedSemaphorePermit>,
}

impl Permit {
    fn of(place: quota::Permit) -> Self {
        Self { place: Some(place), ..Self::default() }
    }

    /// The time that the request waited for its slot.
    pub fn waited(&self) -> Duration {
        self.place.as_ref().map_or(Duration::ZERO, quota::Permit::waited)
    }
}

/// The slots for reads or writes, by level.
struct Levels(Vec<(Level, Limiter)>);

impl Levels {
    fn new(places: usize) -> Self {
        let limiter = |level: Level| {
            // All unauthenticated clients are one user.
            let share = if level == Level::Strangers { Share::All } else { Share::Part(SHARE) };
            (level, Limiter::queued(places * level.percent() / 100, share))
        };
        Self(Level::ALL.map(limiter).into())
    }

    fn of(&self, user: &User) -> Option<&Limiter> {
        let level = Level::of(user);
        self.0.iter().find(|(one, _)| *one == level).map(|(_, limiter)| limiter)
    }

    fn used(&self) -> usize {
        self.0.iter().map(|(_, limiter)| limiter.used()).sum()
    }
}

/// Limits requests in flight.
pub(super) struct Throttle {
    reads: Arc<Levels>,
    writes: Arc<Levels>,
    watches: Limiter,
    upgrades: Limiter,
    costly: Limiter,
    large_bodies: Limiter,
    small_bodies: Limiter,
    heads: Limiter,
    heads_of_strangers: Limiter,
    /// The memory of users and selectors, except small ones.
    readers: Quota,
}

/// The memory limit of the users and selectors of all watches, except small ones, in bytes.
const READERS: usize = 32 << 20;
const LEAST_READERS: usize = READERS / 8;
/// The size of a small user and selector, in bytes; it is part of the memory of every watch.
const SMALL_READER: usize = 1 << 10;

impl Throttle {
    /// Creates limits for a server without requests in flight.
    pub(super) fn new(bounds: Bounds) -> Self {
        let limiter = |capacity| Limiter::new(capacity, Share::PartOfRest(SHARE));
        Self {
            reads: Arc::new(Levels::new(bounds.reads)),
            writes: Arc::new(Levels::new(bounds.writes)),
            watches: limiter(bounds.watches),
            upgrades: limiter(bounds.upgrades),
            costly: Limiter::new(COSTLY, Share::Part(SHARE)).with_waiting_of_user(COSTLY_WAITING),
            large_bodies: limiter(bounds.large_body_units),
            small_bodies: limiter(bounds.small_body_units),
            heads: limiter(bounds.head_units),
            heads_of_strangers: limiter(bounds.head_units_of_strangers),
            readers: Quota::new(bounds.readers),
        }
    }

    /// Returns a function that counts the requests in flight: writes, and reads except watches.
    pub(super) fn inflight(&self) -> impl Fn() -> (usize, usize) + Send + Sync + use<> {
        let (writes, reads) = (Arc::clone(&self.writes), Arc::clone(&self.reads));
        move || (writes.used(), reads.used())
    }

    /// Reserves memory for the head of an unauthenticated request from this network.
    pub(super) fn head_of_stranger(
        &self,
        network: &str,
        head: &Parts,
    ) -> Result<quota::Permit, ApiError> {
        let place = self.heads_of_strangers.try_acquire(network, head_units(head));
        place.ok_or_else(|| full("heads"))
    }

    /// Reserves memory for the head of a request, until the request is answered.
    pub(super) fn head(
        &self,
        user: &User,
        head: &Parts,
    ) -> Result<Option<quota::Permit>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let place = self.heads.try_acquire(&user.name, head_units(head));
        place.map(Some).ok_or_else(|| full("heads"))
    }

    /// Waits for a slot for a request with this verb.
    ///
    /// # Errors
    /// 429 if no slot becomes free, or if too many requests wait.
    pub(super) async fn throttle(&self, user: &User, verb: Verb) -> Result<Permit, ApiError> {
        if user.is_master() {
            return Ok(Permit::default());
        }
        let (levels, bound) = match verb {
            Verb::Watch => return self.long_running(user),
            Verb::Get | Verb::List => (&self.reads, "reads"),
            _ => (&self.writes, "writes"),
        };
        let limiter = levels.of(user).ok_or_else(|| full(bound))?;
        queue::acquire(limiter, &user.name, bound).await.map(Permit::of)
    }

    /// Takes a slot for a request that may last long: one of those of watches.
    ///
    /// # Errors
    /// 429 if there is no slot.
    pub(super) fn long_running(&self, user: &User) -> Result<Permit, ApiError> {
        if user.is_master() {
            return Ok(Permit::default());
        }
        let place = self.watches.try_acquire(&user.name, 1);
        place.map(Permit::of).ok_or_else(|| full("watches"))
    }

    /// Takes a slot for a request that upgrades its connection. Such a connection cannot be taken from a user, so each
    /// user may have a part of them. Requests of `system:masters` need none.
    ///
    /// # Errors
    /// 429 if there is no slot.
    pub(super) fn upgrade(&self, user: &User) -> Result<Option<quota::Permit>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let place = self.upgrades.try_acquire(&user.name, 1);
        place.map(Some).ok_or_else(|| full("upgrades"))
    }

    /// Waits for the slot of a costly request whose body has been read. Requests of `system:masters` need none.
    ///
    /// # Errors
    /// 429 if no slot becomes free in time.
    pub(super) async fn turn(&self, user: &User) -> Result<Option<quota::Permit>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        queue::acquire(&self.costly, &user.name, "costly").await.map(Some)
    }

    /// Reserves memory for the user, the selector and the stored parts of the head of a request, as long as the permit
    /// is held.
    pub(super) fn reader(
        &self,
        user: &User,
        selector: &Selector,
        head: &Parts,
        permit: &mut Permit,
    ) -> Result<(), ApiError> {
        let size = selector.size() + user.size() + kept_of_head(head);
        if size > SMALL_READER {
            let account = self.readers.account(&user.name, user.is_master());
            account.take(size - SMALL_READER).map_err(|error| error.bounded_by("readers"))?;
            permit.reader = Some(account);
        }
        Ok(())
    }

    /// Reserves memory for the body of a request. Returns `None` if the body needs none.
    pub(super) fn body(&self, user: &User, body: &Body) -> Result<Option<quota::Permit>, ApiError> {
        self.reserved_body(user, body, LONGEST_BODY)
    }

    /// Reserves memory for a body that a handler reads while it arrives.
    ///
    /// # Errors
    /// 429 if there is not enough memory.
    pub(super) fn streamed_body(
        &self,
        user: &User,
        body: &Body,
    ) -> Result<Option<quota::Permit>, ApiError> {
        self.reserved_body(user, body, STREAMED_BODY)
    }

    /// Reserves memory for a body, at most this number of bytes.
    fn reserved_body(
        &self,
        user: &User,
        body: &Body,
        most: usize,
    ) -> Result<Option<quota::Permit>, ApiError> {
        if user.is_master() || body.is_end_stream() {
            return Ok(None);
        }
        let announced = body.size_hint().upper().and_then(|length| usize::try_from(length).ok());
        let length = announced.unwrap_or(most).min(most);
        let units = length.div_ceil(BODY_UNIT).max(1);
        let bodies = if length <= SMALL_BODY { &self.small_bodies } else { &self.large_bodies };
        let place = bodies.try_acquire(&user.name, units);
        place.map(Some).ok_or_else(|| full("bodies"))
    }
}

/// Whether a request with this body may take long.
pub(super) fn is_costly(target: &Target, body: &Bytes, is_json_patch: bool) -> bool {
    let steps = target.version.schema.root().subtree.steps;
    let size = body.len().max(if body.is_empty() { 0 } else { target.size_of_kept() });
    size.saturating_mul(1 + steps / COSTLY_STEPS) > COSTLY_SIZE
        || (is_json_patch && body.len() > COSTLY_JSON_PATCH)
}

/// The maximum size of the parts of a head that records store until the request has ended, in bytes: the path, and the
/// headers that the audit log and traces contain.
fn kept_of_head(head: &Parts) -> usize {
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let kept = ["user-agent", "x-forwarded-for", "audit-id"];
    let headers = kept.iter().filter_map(|name| head.headers.get(*name));
    // The audit log has copies of its own.
    2 * (path + headers.map(|value| value.len()).sum::<usize>())
}

/// Returns 429, because no slot or no memory is free.
fn full(bound: &'static str) -> ApiError {
    ApiError::too_many_requests().bounded_by(bound)
}

/// The memory of a head, in units.
fn head_units(head: &Parts) -> usize {
    head::memory(&head.uri, &head.headers).div_ceil(HEAD_UNIT).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_header_memory_is_limited_per_user_and_per_network() {
        let throttle = Throttle::new(Bounds::of(MemoryScale::ALL, Inflights::default()));
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
        let of_strangers = std::iter::from_fn(|| throttle.head_of_stranger("a", &small).ok());
        let of_strangers: Vec<_> = of_strangers.collect();
        assert_eq!(of_strangers.len(), HEAD_UNITS_OF_STRANGERS / 4);
        assert!(throttle.head_of_stranger("b", &small).is_ok(), "another network has room");
        let masters = User { groups: vec!["system:masters".to_owned()], ..user("jane") };
        let many: Vec<_> = (0..100).map(|_| throttle.head(&masters, &large)).collect();
        assert!(many.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn requests_of_masters_wait_for_no_permit() {
        let throttle = Throttle::new(Bounds::of(MemoryScale::ALL, Inflights::default()));
        let groups = vec!["system:masters".to_owned()];
        let master = User { name: "jane".to_owned(), groups, ..User::default() };
        for _ in 0..1_000 {
            assert!(matches!(throttle.turn(&master).await, Ok(None)));
            let body = throttle.body(&master, &Body::from(vec![0]));
            assert!(matches!(body, Ok(None)));
        }
        assert_eq!(throttle.costly.used() + throttle.small_bodies.used(), 0);
    }

    #[test]
    fn anonymous_requests_can_use_all_slots_of_their_priority_level() {
        let levels = Levels::new(READS);
        let stranger = User::anonymous();
        let mut held = Vec::new();
        for _ in 0..READS * Level::Strangers.percent() / 100 {
            held.push(levels.of(&stranger).unwrap().try_acquire(&stranger.name, 1).unwrap());
        }
        assert_eq!(held.len(), 20);
    }

    #[test]
    fn concurrency_limits_follow_the_configured_maximums() {
        let said = Inflights { reads: 20, writes: 40, watches: Some(60) };
        let throttle = Throttle::new(Bounds::of(MemoryScale::ALL, said));
        let stranger = User::anonymous();
        for (levels, places) in [(&throttle.reads, 1), (&throttle.writes, 2)] {
            let limiter = levels.of(&stranger).unwrap();
            let held = std::iter::from_fn(|| limiter.try_acquire(&stranger.name, 1));
            assert_eq!(held.collect::<Vec<_>>().len(), places);
        }
        // One user may hold only a part of the watches.
        let open = (0..60).map_while(|_| throttle.watches.try_acquire("jane", 1));
        let open = open.collect::<Vec<_>>().len();
        assert!(open > 0 && open < 60, "{open}");
    }

    #[test]
    fn the_largest_headers_and_bodies_fit_the_smallest_memory_budget() {
        let throttle =
            Throttle::new(Bounds::of(MemoryScale::largest(|_| false), Inflights::default()));
        let largest = http::Request::get("/x").header("x", "x".repeat((2 << 20) - 200));
        let (head, ()) = largest.body(()).unwrap().into_parts();
        let held = ["jane", "joe", "jim", "jill"].map(|name| {
            let user = User { name: name.to_owned(), ..User::default() };
            let body = Body::from(vec![0; LONGEST_BODY]);
            (throttle.head(&user, &head).unwrap(), throttle.body(&user, &body).unwrap())
        });
        assert!(held.iter().all(|(head, body)| head.is_some() && body.is_some()));
        let largest = http::Request::get("/x").header("x", "x".repeat(32 << 10));
        let (head, ()) = largest.body(()).unwrap().into_parts();
        assert!(throttle.head_of_stranger("a", &head).is_ok());
    }

    #[test]
    fn watches_of_users_with_many_groups_are_limited_by_their_size() {
        let throttle = Throttle::new(Bounds::of(MemoryScale::ALL, Inflights::default()));
        let (head, ()) = http::Request::get("/apis").body(()).unwrap().into_parts();
        let watches = |count: usize| {
            let groups = (0..count).map(|number| format!("group-{number}-{}", "x".repeat(40)));
            let user =
                User { name: "jane".to_owned(), groups: groups.collect(), ..User::default() };
            let permit = || {
                let mut permit = Permit::default();
                throttle
                    .reader(&user, &Selector::default(), &head, &mut permit)
                    .ok()
                    .map(|()| permit)
            };
            std::iter::from_fn(permit).take(10_000).collect::<Vec<_>>().len()
        };
        assert_eq!(watches(10), 10_000, "a usual one is not counted");
        assert!((30..60).contains(&watches(3_000)), "{}", watches(3_000));
    }

    #[test]
    fn request_headers_stored_for_watches_are_counted() {
        let throttle = Throttle::new(Bounds::of(MemoryScale::ALL, Inflights::default()));
        let path = format!("/apis?continue={}", "x".repeat(50 << 10));
        let (head, ()) = http::Request::get(path).body(()).unwrap().into_parts();
        let user = User { name: "jane".to_owned(), ..User::default() };
        let open = std::iter::from_fn(|| {
            let mut permit = Permit::default();
            let room = throttle.reader(&user, &Selector::default(), &head, &mut permit);
            room.ok().map(|()| permit)
        });
        assert_eq!(
            open.take(10_000).collect::<Vec<_>>().len(),
            READERS / 4 / ((100 << 10) - SMALL_READER)
        );
    }

    #[test]
    fn a_body_of_unknown_length_reserves_the_maximum_and_an_empty_one_none() {
        let throttle = Throttle::new(Bounds::of(MemoryScale::ALL, Inflights::default()));
        let user = User { name: "jane".to_owned(), ..User::default() };
        let unknown = || Body::from_stream(futures::stream::pending::<Result<String, String>>());
        let held: Vec<_> = std::iter::from_fn(|| throttle.body(&user, &unknown()).ok()).collect();
        assert_eq!(held.len(), BODY_UNITS / 4 / LONGEST_BODY.div_ceil(BODY_UNIT));
        assert!(throttle.body(&user, &Body::empty()).is_ok());
        assert!(throttle.body(&user, &Body::from("{}")).is_ok(), "a small one has other places");
        let other = User { name: "joe".to_owned(), ..User::default() };
        assert!(throttle.body(&other, &Body::from("{}")).is_ok());
    }
}
