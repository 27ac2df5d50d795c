//! Limits the requests in flight: reads, writes, watches and bodies.
//!
//! `system:masters` is exempt, so that administrators are always served. Documents and health checks are not counted.
//! Reads and writes have slots for each level of users, and no user has more than a part of the slots of a level. If
//! all slots are taken, requests wait in a queue, round-robin over users: a hundred users with many requests delay a
//! user with few requests by one turn of each. Only a request whose body has arrived takes a slot, so that slow clients
//! do not hold slots. The design is that of kube-apiserver's API Priority and Fairness, with four levels and without
//! configuration.

mod level;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http::request::Parts;

use self::level::Level;
use super::head;
use super::route::Target;
use crate::error::ApiError;
use crate::object::selector::Selector;
use crate::queue::{Busy, Queue, QueuePlace};
use crate::quota::{Account, MemoryScale, Quota, Slot, Slots};
use crate::user::User;
use crate::verb::Verb;
use crate::watch_cache::SLOW_WATCHER;

/// The default number of reads in flight, same as kube-apiserver's `--max-requests-inflight`.
const READS: usize = 400;
/// The default number of writes in flight, same as kube-apiserver's `--max-mutating-requests-inflight`.
const WRITES: usize = 200;
/// The default number of open watches. kube-apiserver opens one for each watch of its clients. A small container has a
/// lower limit.
const WATCHES: usize = 20_000;
const LEAST_WATCHES: usize = WATCHES / 40;
/// The memory of a watch besides its connection, in bytes: its stream, selector and position, as `tests/watch_memory`
/// measures it, and references to changes if its client does not read. The changes themselves are in the window, which
/// all watches share.
const WATCH: usize = (7 << 9) + SMALL_READER + SLOW_WATCHER;
/// The number of costly requests that run concurrently on blocking threads, one for each user. A request is costly if
/// its body, or the object that it changes, has this size in bytes.
const COSTLY: usize = 3;
const COSTLY_SIZE: usize = 128 << 10;
/// A JSON patch is costly from this size in bytes on, because each of its operations may walk through the whole object.
const COSTLY_JSON_PATCH: usize = 16 << 10;
/// An object is costly from a smaller size on, if the validation of each value may take this many steps.
const COSTLY_STEPS: usize = 256;
/// The number of costly requests of one user that may wait. Each of them holds its body in memory.
const COSTLY_WAITING: usize = 50;
/// The limit of request bodies in memory, in bytes, including bodies that arrive slowly or wait for a slot: 32 MiB for
/// bodies larger than 64 KiB, and as much for smaller ones. Most bodies are small, and large ones do not block them.
const BODIES: usize = 32 << 20;
const SMALL_BODY: usize = 64 << 10;
/// The unit in which bodies are counted, in bytes.
const BODY_UNIT: usize = 4 << 10;
const BODY_UNITS: usize = BODIES / BODY_UNIT;
/// The limits in a small container: one body of the largest size for each of four users, and as many small bodies as
/// one user has in a large container.
const LEAST_BODY_UNITS: usize = 4 * LONGEST_BODY / BODY_UNIT;
const LEAST_SMALL_BODY_UNITS: usize = BODY_UNITS / 8;
/// The limit of the heads of requests without a response, in units of 4 KiB. A head takes at least one unit.
const HEAD_UNIT: usize = 4 << 10;
const HEAD_UNITS: usize = 8_192;
/// The limit in a small container: a user can still send a head of 2 MiB, the largest that is accepted.
const LEAST_HEAD_UNITS: usize = HEAD_UNITS / 4;
/// The limits for heads of requests that are not authenticated yet.
const HEAD_UNITS_OF_STRANGERS: usize = 2_048;
const LEAST_HEAD_UNITS_OF_STRANGERS: usize = HEAD_UNITS_OF_STRANGERS / 4;
/// The size in bytes that is charged for a body without `Content-Length`: the largest that is accepted.
const LONGEST_BODY: usize = 3 << 20;

/// The limits of concurrent requests that flags set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflights {
    /// The limit of reads other than watches.
    pub reads: usize,
    /// The limit of writes.
    pub writes: usize,
    /// The limit of watches; `None` derives it from the memory limit.
    pub watches: Option<usize>,
}

impl Default for Inflights {
    fn default() -> Self {
        Self { reads: READS, writes: WRITES, watches: None }
    }
}

/// The limits of requests: slots, and the memory of heads, bodies and selectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    reads: usize,
    writes: usize,
    watches: usize,
    large_body_units: usize,
    small_body_units: usize,
    head_units: usize,
    head_units_of_strangers: usize,
    /// The limit of the selectors and users of watches, in bytes.
    readers: usize,
}

impl Bounds {
    pub(super) fn of(portion: MemoryScale, inflights: Inflights) -> Self {
        let Inflights { reads, writes, watches } = inflights;
        Self {
            reads,
            writes,
            watches: watches.unwrap_or_else(|| portion.between(LEAST_WATCHES, WATCHES)),
            large_body_units: portion.between(LEAST_BODY_UNITS, BODY_UNITS),
            small_body_units: portion.between(LEAST_SMALL_BODY_UNITS, BODY_UNITS),
            head_units: portion.between(LEAST_HEAD_UNITS, HEAD_UNITS),
            head_units_of_strangers: portion
                .between(LEAST_HEAD_UNITS_OF_STRANGERS, HEAD_UNITS_OF_STRANGERS),
            readers: portion.between(LEAST_READERS, READERS),
        }
    }

    /// The largest number of watches.
    pub(super) fn watches(&self) -> usize {
        self.watches
    }

    /// The memory of all watches, in bytes.
    pub(super) fn watches_memory(&self) -> usize {
        self.watches * WATCH
    }

    /// The other memory of all requests, in bytes.
    pub(super) fn memory(&self) -> usize {
        let heads = (self.head_units + self.head_units_of_strangers) * HEAD_UNIT;
        let bodies = (self.large_body_units + self.small_body_units) * BODY_UNIT;
        heads + bodies + self.readers
    }
}

/// A slot of a request in flight, until it is dropped.
#[derive(Default)]
pub(super) struct Permit {
    _place: Option<Slot>,
    _queued: Option<QueuePlace>,
    reader: Option<Account>,
    /// The slot among the costly requests.
    pub turn: Option<QueuePlace>,
    /// How long the request waited for the slot.
    pub waited: Duration,
}

/// The slots of one sort of requests, for each level.
struct Levels(Vec<(Level, Queue)>);

impl Levels {
    fn new(places: usize) -> Self {
        let queue = |level: Level| {
            let places = places * level.percent() / 100;
            // All unauthenticated requests count as one user.
            let is_one = level == Level::Strangers;
            (level, if is_one { Queue::undivided(places) } else { Queue::new(places) })
        };
        Self(Level::ALL.map(queue).into())
    }

    fn of(&self, user: &User) -> Option<&Queue> {
        let level = Level::of(user);
        self.0.iter().find(|(one, _)| *one == level).map(|(_, queue)| queue)
    }

    fn taken(&self) -> usize {
        self.0.iter().map(|(_, queue)| queue.taken()).sum()
    }
}

/// Limits the requests in flight.
pub(super) struct Throttle {
    reads: Arc<Levels>,
    writes: Arc<Levels>,
    watches: Slots,
    costly: Queue,
    large_bodies: Slots,
    small_bodies: Slots,
    heads: Slots,
    heads_of_strangers: Slots,
    /// The memory of users and selectors of watches, except small ones.
    readers: Quota,
}

/// The memory limit for users and selectors of all watches, except small ones, in bytes.
const READERS: usize = 32 << 20;
const LEAST_READERS: usize = READERS / 8;
/// The size in bytes up to which a user and its selector are part of the memory of every watch.
const SMALL_READER: usize = 1 << 10;

impl Throttle {
    /// Creates the limits without requests in flight.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            reads: Arc::new(Levels::new(bounds.reads)),
            writes: Arc::new(Levels::new(bounds.writes)),
            watches: Slots::new(bounds.watches),
            costly: Queue::new(COSTLY).with_waiting_of_user(COSTLY_WAITING),
            large_bodies: Slots::new(bounds.large_body_units),
            small_bodies: Slots::new(bounds.small_body_units),
            heads: Slots::new(bounds.head_units),
            heads_of_strangers: Slots::new(bounds.head_units_of_strangers),
            readers: Quota::new(bounds.readers),
        }
    }

    /// Returns a function that counts the writes, and the reads other than watches, in flight.
    pub(super) fn inflight(&self) -> impl Fn() -> (usize, usize) + Send + Sync + use<> {
        let (writes, reads) = (Arc::clone(&self.writes), Arc::clone(&self.reads));
        move || (writes.taken(), reads.taken())
    }

    /// Charges the head of a request that is not authenticated yet to its network.
    pub(super) fn head_of_stranger(&self, network: &str, head: &Parts) -> Result<Slot, ApiError> {
        let place = self.heads_of_strangers.take(network, head_units(head));
        place.ok_or_else(|| full("heads"))
    }

    /// Charges the head of a request to its user, until the response is sent.
    pub(super) fn head(&self, user: &User, head: &Parts) -> Result<Option<Slot>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let place = self.heads.take(&user.name, head_units(head));
        place.map(Some).ok_or_else(|| full("heads"))
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// 429 if no slot becomes free in time, or if too many requests wait.
    pub(super) async fn throttle(&self, user: &User, target: &Target) -> Result<Permit, ApiError> {
        if user.is_master() {
            return Ok(Permit::default());
        }
        let (levels, bound) = match target.verb {
            Verb::Watch => {
                let place = self.watches.take(&user.name, 1);
                let place = place.ok_or_else(|| full("watches"))?;
                return Ok(Permit { _place: Some(place), ..Permit::default() });
            }
            Verb::Get | Verb::List => (&self.reads, "reads"),
            _ => (&self.writes, "writes"),
        };
        let queue = levels.of(user).ok_or_else(|| full(bound))?;
        let (place, waited) = queue.take(&user.name).await.map_err(|busy| refused(busy, bound))?;
        Ok(Permit { _queued: Some(place), waited, ..Permit::default() })
    }

    /// Waits for a slot among the costly requests, after the body was read; `system:masters` needs none.
    ///
    /// # Errors
    /// 429 if no slot becomes free in time.
    pub(super) async fn turn(&self, user: &User) -> Result<Option<QueuePlace>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let turn = self.costly.take(&user.name).await;
        turn.map(|(place, _)| Some(place)).map_err(|busy| refused(busy, "costly"))
    }

    /// Charges a reader, its selector and the stored part of its head, for as long as it has its slot.
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

    /// Charges the body of a request; `None` if it has none.
    pub(super) fn body(&self, user: &User, body: &Body) -> Result<Option<Slot>, ApiError> {
        if user.is_master() || body.is_end_stream() {
            return Ok(None);
        }
        let announced = body.size_hint().upper().and_then(|length| usize::try_from(length).ok());
        let length = announced.unwrap_or(LONGEST_BODY).min(LONGEST_BODY);
        let units = length.div_ceil(BODY_UNIT).max(1);
        let bodies = if length <= SMALL_BODY { &self.small_bodies } else { &self.large_bodies };
        let place = bodies.take(&user.name, units);
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

/// The memory of the part of a request's head that records hold until the request ends, in bytes: the path, and the
/// fields for the audit log and traces.
fn kept_of_head(head: &Parts) -> usize {
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let kept = ["user-agent", "x-forwarded-for", "audit-id"];
    let headers = kept.iter().filter_map(|name| head.headers.get(*name));
    // The audit log has its own copies.
    2 * (path + headers.map(|value| value.len()).sum::<usize>())
}

/// 429, because no slot became free in time, or too many requests wait.
fn refused(Busy { retry_after }: Busy, bound: &'static str) -> ApiError {
    ApiError::too_many_requests_for(retry_after).bounded_by(bound)
}

/// 429, because a memory limit is reached.
fn full(bound: &'static str) -> ApiError {
    ApiError::too_many_requests().bounded_by(bound)
}

/// The size of a head, in units.
fn head_units(head: &Parts) -> usize {
    head::memory(&head.uri, &head.headers).div_ceil(HEAD_UNIT).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

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
    async fn anonymous_requests_can_use_all_slots_of_their_priority_level() {
        let levels = Levels::new(READS);
        let stranger = User::anonymous();
        let mut held = Vec::new();
        for _ in 0..READS * Level::Strangers.percent() / 100 {
            let place = levels.of(&stranger).unwrap().take(&stranger.name).now_or_never();
            held.push(place.unwrap().unwrap());
        }
        assert_eq!(held.len(), 20);
    }

    #[tokio::test]
    async fn concurrency_limits_follow_the_configured_maximums() {
        let said = Inflights { reads: 20, writes: 40, watches: Some(60) };
        let throttle = Throttle::new(Bounds::of(MemoryScale::ALL, said));
        let stranger = User::anonymous();
        for (levels, places) in [(&throttle.reads, 1), (&throttle.writes, 2)] {
            let queue = levels.of(&stranger).unwrap();
            let mut held = Vec::new();
            while let Some(place) = queue.take(&stranger.name).now_or_never() {
                held.push(place.unwrap());
            }
            assert_eq!(held.len(), places);
        }
        // One user can use a part of the watches.
        let open = (0..60).map_while(|_| throttle.watches.take("jane", 1));
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
