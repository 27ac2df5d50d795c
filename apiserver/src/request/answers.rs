//! The memory of answers that have been made and not been sent.
//!
//! A client that asks and does not read holds what it was answered. What all of them hold is
//! bounded: who wants a large answer waits until there is room, and when there is none the
//! streams that have not moved for longest are reset. What is held is counted by its owner, so
//! it counts until HTTP has really sent it, or has dropped it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::task::AtomicWaker;
use http::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::stream_reset::StreamReset;
use crate::error::ApiError;
use crate::queue::{Busy, Queue, QueuePlace};
use crate::quota::Portion;
use crate::storage::Versioned;
use crate::user::User;

/// What all answers may hold, in bytes.
const LIMIT: usize = 40 << 20;
/// The same in a small container: the part of one user still holds the largest object.
const LEAST: usize = LIMIT / 4;
/// The large answers of one user may hold a quarter.
const USER_SHARE: usize = 4;
/// What an answer takes besides its bytes: its stream, the heads of both sides.
const OVERHEAD: usize = 10 << 10;
/// An answer that is not larger is made at once; most are smaller.
const SMALL: usize = 16 << 10;
/// What is handed to HTTP at a time: of the rest of an answer nothing is copied into buffers.
const PIECE: usize = 64 << 10;
/// What has not moved for so long may be reset when others need the room.
const STALLED: Duration = Duration::from_millis(300);
/// What has not moved for so long is reset.
const DEADLINE: Duration = Duration::from_secs(60);
/// Answers that are made while they are sent, at the same time: each holds a moment of the past, with
/// objects that nothing else may hold any more. Users wait for them in turns, and one has a quarter.
const STREAMING: usize = 64;
/// How long one may take before it may be reset when others wait: that it moves is not enough.
const SLOW: Duration = Duration::from_secs(5);
/// How long to wait for room before somebody has to make it.
const PATIENCE: Duration = Duration::from_millis(100);
/// Requests of one user that wait for room.
const WAITING: usize = 200;
/// How often answers are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// What all answers may hold, in bytes.
pub(super) fn limit(portion: Portion) -> usize {
    portion.between(LEAST, LIMIT)
}

/// The answers of a server.
#[derive(Clone, Debug)]
pub struct Answers(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// What all of them may hold.
    limit: usize,
    held: AtomicUsize,
    freed: Notify,
    streaming: Queue,
    /// When it was looked last for what gives way, in milliseconds.
    looked: AtomicU64,
    /// Whether room is being made because more is held than may be.
    is_relieved: AtomicBool,
    streams: Mutex<Streams>,
    users: Mutex<HashMap<String, Weak<UserShare>>>,
}

/// The answers that hold something, or have held it.
#[derive(Debug, Default)]
struct Streams {
    next: u64,
    by_number: HashMap<u64, Weak<Stream>>,
    is_swept: bool,
}

impl Pool {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            held: AtomicUsize::new(0),
            freed: Notify::new(),
            streaming: Queue::new(STREAMING),
            looked: AtomicU64::new(0),
            is_relieved: AtomicBool::new(false),
            streams: Mutex::default(),
            users: Mutex::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit
    }
}

#[derive(Debug)]
struct UserShare {
    name: String,
    held: AtomicUsize,
    waiting: AtomicUsize,
    /// As the pool's, among what is the user's own.
    looked: AtomicU64,
    pool: Weak<Pool>,
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Answer(Arc<Stream>);

#[derive(Debug)]
struct Stream {
    pool: Arc<Pool>,
    number: OnceLock<u64>,
    user: OnceLock<Arc<UserShare>>,
    held: AtomicUsize,
    /// When something of it was sent last, in milliseconds.
    moved: AtomicU64,
    /// Since when it has a place among those that are made while they are sent, in milliseconds.
    streaming_since: OnceLock<u64>,
    /// Told when nothing is held any more.
    sent: AtomicWaker,
    reset: StreamReset,
}

/// Memory that an answer holds, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    stream: Arc<Stream>,
    bytes: usize,
    user: Option<Arc<UserShare>>,
}

/// Whether an answer with this object waits until there is memory for it.
pub(super) fn is_large(versioned: &Versioned) -> bool {
    versioned.object.size() > SMALL
}

fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    milliseconds(START.elapsed())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Answers {
    /// Answers that may hold so many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Pool::new(limit)))
    }

    /// An answer that has not been made. It ends by `reset` when it is not read.
    pub fn begin(&self, reset: StreamReset) -> Answer {
        Answer(Arc::new(Stream {
            pool: Arc::clone(&self.0),
            number: OnceLock::new(),
            user: OnceLock::new(),
            held: AtomicUsize::new(0),
            moved: AtomicU64::new(now()),
            streaming_since: OnceLock::new(),
            sent: AtomicWaker::new(),
            reset,
        }))
    }
}

impl Answer {
    /// Waits until there is room for so many bytes. Whoever is in `system:masters` does not
    /// wait, so that an operator gets through.
    ///
    /// # Errors
    /// 429 when too many requests of the user wait.
    pub(super) async fn room(&self, user: &User, bytes: usize) -> Result<Charge, ApiError> {
        let (share, limit) = (self.share(user), self.0.pool.limit);
        let fits = |held: &AtomicUsize, limit: usize| {
            let held = held.load(Ordering::Relaxed);
            // What is larger than all there may be needs to be alone.
            held == 0 || held.saturating_add(bytes) <= limit
        };
        self.wait_for(user, || match () {
            () if user.is_master() => Ok(self.charge_length(bytes)),
            () if !fits(&share.held, limit / USER_SHARE) => Err(Some(Arc::clone(share))),
            () if !fits(&self.0.pool.held, limit) => Err(None),
            () => Ok(self.charge_length(bytes)),
        })
        .await
    }

    /// Waits for a place among the answers that are made while they are sent; `None` for
    /// `system:masters`, who need none.
    ///
    /// # Errors
    /// 429 when none becomes free, or too many wait.
    pub(super) async fn begin_streaming(
        &self,
        user: &User,
    ) -> Result<Option<QueuePlace>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let pool = &self.0.pool;
        let mut turn = pin!(pool.streaming.take(&user.name));
        let taken = loop {
            match timeout(PATIENCE, &mut turn).await {
                Ok(taken) => break taken,
                Err(_) if pool.streaming.is_share_taken(&user.name) => {
                    pool.make_room(Some(self.share(user)), Lack::Place);
                }
                Err(_) => pool.make_room(None, Lack::Place),
            }
        };
        let refused = |Busy { retry_after }| {
            ApiError::too_many_requests_for(retry_after).bounded_by("streaming")
        };
        let (place, _) = taken.map_err(refused)?;
        let _ = self.0.streaming_since.set(now());
        Ok(Some(place))
    }

    /// Waits until `take` succeeds, and makes room for it: it says whose is what there is too
    /// little of, `None` if everybody's.
    async fn wait_for<T>(
        &self,
        user: &User,
        take: impl Fn() -> Result<T, Option<Arc<UserShare>>>,
    ) -> Result<T, ApiError> {
        if let Ok(taken) = take() {
            return Ok(taken);
        }
        let pool = &self.0.pool;
        let _waiting = self.share(user).wait()?;
        loop {
            let freed = pool.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let of = match take() {
                Ok(taken) => return Ok(taken),
                Err(of) => of,
            };
            if timeout(PATIENCE, freed).await.is_err() {
                pool.make_room(of.as_ref(), Lack::Bytes);
            }
        }
    }

    fn share(&self, user: &User) -> &Arc<UserShare> {
        self.0.user.get_or_init(|| self.0.pool.user(&user.name))
    }

    /// Waits until there is room to answer with this object; one that is small does not wait.
    ///
    /// # Errors
    /// As `room`.
    pub(super) async fn room_for(
        &self,
        user: &User,
        versioned: &Versioned,
    ) -> Result<Option<Charge>, ApiError> {
        match is_large(versioned) {
            true => self.room(user, versioned.object.size()).await.map(Some),
            false => Ok(None),
        }
    }

    /// Counts so many bytes that have been made, as long as the charge is held.
    fn charge_length(&self, bytes: usize) -> Charge {
        self.0.register();
        let pool = &self.0.pool;
        let charge = Charge::new(Arc::clone(&self.0), bytes);
        if pool.is_full() {
            pool.make_room(None, Lack::Bytes);
            // What has come at once has not stood still for long enough yet, and nothing may follow.
            if !pool.is_relieved.swap(true, Ordering::Relaxed) {
                tokio::spawn(Pool::relieve(Arc::downgrade(pool)));
            }
        }
        charge
    }

    /// Counts a part of the answer that has been made, until HTTP has sent it.
    pub(super) fn charge(&self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        let charge = self.charge_length(bytes.len());
        owned(bytes, charge)
    }

    /// Returns when all that was made has been sent, if it is sent on a stream of its own.
    pub(super) async fn sent(self) {
        std::future::poll_fn(|context| self.0.poll_sent(context)).await;
    }

    /// Counts a whole answer until HTTP has sent it. What is made while it is sent is counted
    /// where it is made. When there is no room a refusal is told by its head alone.
    pub fn hold(&self, response: Response<Body>) -> Response<Body> {
        let Some(length) = response.body().size_hint().exact().filter(|&length| length > 0) else {
            return response;
        };
        let is_refusal = response.status().is_client_error() || response.status().is_server_error();
        if is_refusal && self.0.pool.is_full() {
            return without_body(response);
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let charge = self.charge_length(length.saturating_add(OVERHEAD));
        response.map(|body| {
            let stream = Arc::clone(&self.0);
            let is_long = length > PIECE;
            Body::new(Held { body, charge: Some(charge), rest: Bytes::new(), stream, is_long })
        })
    }
}

impl Pool {
    fn user(self: &Arc<Self>, name: &str) -> Arc<UserShare> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = users.get(name).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(UserShare {
            name: name.to_owned(),
            held: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            looked: AtomicU64::new(0),
            pool: Arc::downgrade(self),
        });
        users.insert(name.to_owned(), Arc::downgrade(&share));
        share
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets streams that are in the way, of one user or of anybody: those of users who hold most,
    /// the longest first. For a place one is enough; of bytes a quarter of the room.
    fn make_room(&self, of: Option<&Arc<UserShare>>, lack: Lack) {
        let (looked, room) = match of {
            Some(user) => (&user.looked, self.limit / USER_SHARE),
            None => (&self.looked, self.limit),
        };
        // Many wait for the same, but not for what is another's.
        let (before, now) = (looked.load(Ordering::Relaxed), now());
        if now.saturating_sub(before) < milliseconds(PATIENCE)
            || looked.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let is_in_the_way = |stream: &Stream| match lack {
            Lack::Bytes => stream.is_stalled(now, STALLED),
            Lack::Place => stream.streaming_since.get().is_some_and(|since| {
                stream.is_stalled(now, STALLED) || now.saturating_sub(*since) >= milliseconds(SLOW)
            }),
        };
        let mut freed = 0;
        for stream in self.first_to_give_way(of, lack, is_in_the_way) {
            tracing::debug!("an answer of which nothing is read gives way");
            stream.reset.reset();
            freed += stream.held.load(Ordering::Relaxed);
            if matches!(lack, Lack::Place) || freed > room / 4 {
                break;
            }
        }
    }

    /// Those of the streams whose users hold most, the longest first. Refusals are one user's. Nobody
    /// who holds less than a fair part of the bytes gives way to somebody else.
    fn first_to_give_way(
        &self,
        of: Option<&Arc<UserShare>>,
        lack: Lack,
        is_in_the_way: impl Fn(&Stream) -> bool,
    ) -> Vec<Arc<Stream>> {
        let mut streams = self.all(|stream| stream.held.load(Ordering::Relaxed) > 0);
        let owner = |stream: &Stream| stream.user.get().map(Arc::as_ptr);
        let mut held: HashMap<_, usize> = HashMap::new();
        for stream in &streams {
            *held.entry(owner(stream)).or_default() += stream.held.load(Ordering::Relaxed);
        }
        let least = match (of, lack) {
            (None, Lack::Bytes) => self.limit / (held.len() + 1),
            _ => 0,
        };
        streams.retain(|stream| {
            is_in_the_way(stream)
                && of.is_none_or(|user| stream.is_of(user))
                && held.get(&owner(stream)).is_some_and(|&held| held >= least)
        });
        // Looked at once: what is held and when it moved changes meanwhile.
        streams.sort_by_cached_key(|stream| {
            (Reverse(held.get(&owner(stream)).copied()), stream.moved.load(Ordering::Relaxed))
        });
        streams
    }

    fn all(&self, is_wanted: impl Fn(&Stream) -> bool) -> Vec<Arc<Stream>> {
        // Whoever drops the last of a stream takes the lock: none is dropped under it.
        let streams: Vec<_> = self.streams().by_number.values().filter_map(Weak::upgrade).collect();
        streams.into_iter().filter(|stream| is_wanted(stream)).collect()
    }

    /// Makes room until no more is held than may be.
    async fn relieve(pool: Weak<Self>) {
        loop {
            sleep(PATIENCE).await;
            let Some(pool) = pool.upgrade() else { return };
            if !pool.is_full() {
                pool.is_relieved.store(false, Ordering::Relaxed);
                return;
            }
            pool.make_room(None, Lack::Bytes);
        }
    }

    /// Resets what nobody has read for long, as long as anything is held.
    async fn sweep(pool: Weak<Self>) {
        loop {
            sleep(SWEEP_EVERY).await;
            let Some(pool) = pool.upgrade() else { return };
            let mut streams = pool.streams();
            if streams.by_number.is_empty() {
                streams.is_swept = false;
                return;
            }
            drop(streams);
            let now = now();
            for stream in pool.all(|stream| stream.is_stalled(now, DEADLINE)) {
                tracing::debug!("an answer was not read in time");
                stream.reset.reset();
            }
        }
    }
}

/// What there is too little of.
#[derive(Clone, Copy)]
enum Lack {
    Bytes,
    /// Places among the answers that are made while they are sent.
    Place,
}

impl Stream {
    fn is_of(&self, user: &Arc<UserShare>) -> bool {
        self.user.get().is_some_and(|own| Arc::ptr_eq(own, user))
    }

    /// Ready when all that was made has been sent. Until then the stream is not over and can be
    /// reset; what is left of one that is over can only be taken from its connection.
    fn poll_sent(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_sent = || self.held.load(Ordering::Acquire) == 0 || !self.reset.has_stream();
        if is_sent() {
            return Poll::Ready(());
        }
        self.sent.register(context.waker());
        if is_sent() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether it holds something of which nothing was sent for so long.
    fn is_stalled(&self, now: u64, time: Duration) -> bool {
        self.held.load(Ordering::Relaxed) > 0
            && now.saturating_sub(self.moved.load(Ordering::Relaxed)) >= milliseconds(time)
    }

    /// Puts it among those that are looked at.
    fn register(self: &Arc<Self>) {
        self.number.get_or_init(|| {
            let mut streams = self.pool.streams();
            let number = streams.next;
            streams.next += 1;
            streams.by_number.insert(number, Arc::downgrade(self));
            if !std::mem::replace(&mut streams.is_swept, true) {
                tokio::spawn(Pool::sweep(Arc::downgrade(&self.pool)));
            }
            number
        });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            self.pool.streams().by_number.remove(number);
        }
    }
}

/// A request that waits for room, until it is dropped.
struct Waiting<'a>(&'a UserShare);

impl UserShare {
    fn wait(&self) -> Result<Waiting<'_>, ApiError> {
        let waiting = Waiting(self);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            return Err(ApiError::too_many_requests().bounded_by("answers"));
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for UserShare {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut users = pool.users.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have begun anew under this name.
        if users.get(&self.name).is_some_and(|share| share.strong_count() == 0) {
            users.remove(&self.name);
        }
    }
}

impl Charge {
    fn new(stream: Arc<Stream>, bytes: usize) -> Self {
        let user = stream.user.get().cloned();
        if stream.held.fetch_add(bytes, Ordering::Relaxed) == 0 {
            stream.moved.store(now(), Ordering::Relaxed);
        }
        if let Some(user) = &user {
            user.held.fetch_add(bytes, Ordering::Relaxed);
        }
        stream.pool.held.fetch_add(bytes, Ordering::Relaxed);
        Self { stream, bytes, user }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Self { stream, bytes, user } = self;
        stream.moved.store(now(), Ordering::Relaxed);
        if stream.held.fetch_sub(*bytes, Ordering::AcqRel) == *bytes {
            stream.sent.wake();
        }
        if let Some(user) = user {
            user.held.fetch_sub(*bytes, Ordering::Relaxed);
        }
        stream.pool.held.fetch_sub(*bytes, Ordering::Relaxed);
        stream.pool.freed.notify_waiters();
    }
}

/// Bytes that are counted as long as anybody holds a part of them.
fn owned(bytes: Bytes, charge: Charge) -> Bytes {
    struct Owner(Bytes, #[allow(dead_code)] Charge);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(bytes, charge))
}

/// An answer without its body: no client can leave it unread, because a head waits for no window.
pub fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, _) = response.into_parts();
    head.headers.remove(CONTENT_TYPE);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::empty())
}

/// A whole answer, handed on in pieces.
struct Held {
    body: Body,
    /// Until its bytes hold it.
    charge: Option<Charge>,
    rest: Bytes,
    stream: Arc<Stream>,
    /// Longer than what every client takes at once.
    is_long: bool,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(context);
            if self.is_long && matches!(polled, Poll::Ready(None)) {
                return self.stream.poll_sent(context).map(|()| None);
            }
            let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            self.rest = match self.charge.take() {
                Some(charge) => owned(data, charge),
                None => data,
            };
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        // Whoever asks for a piece has sent the one before.
        self.stream.moved.store(now(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// A long one ends when all of it was sent.
    fn is_end_stream(&self) -> bool {
        !self.is_long && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint().exact();
        body.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length + rest))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::Handle;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn user(number: usize) -> User {
        User { name: format!("user-{number}"), ..User::default() }
    }

    /// An answer of a user, and whether it had to give way.
    fn begin(answers: &Answers, user: &User) -> (Answer, CancellationToken) {
        let reset = CancellationToken::new();
        let answer = answers.begin(StreamReset::of_connection(reset.clone()));
        answer.share(user);
        (answer, reset)
    }

    #[tokio::test]
    async fn whoever_has_all_places_of_its_own_is_no_reason_to_reset_others() {
        let (eve, joe) = (user(0), user(1));
        let answers = Answers::new(LIMIT);
        let (honest, reset) = begin(&answers, &joe);
        let _place = honest.begin_streaming(&joe).await.unwrap();
        let _held = honest.charge_length(PIECE);
        let mut greedy = Vec::new();
        for _ in 0..STREAMING / 4 {
            let (answer, reset) = begin(&answers, &eve);
            let place = answer.begin_streaming(&eve).await.unwrap();
            greedy.push((answer.charge_length(PIECE), place, reset));
        }
        let (more, _) = begin(&answers, &eve);
        let hers_gives_way = async { join_any(&greedy).await };
        tokio::select! {
            _ = more.begin_streaming(&eve) => unreachable!("nothing is given back"),
            () = hers_gives_way => {}
        }
        assert!(!reset.is_cancelled());
    }

    async fn join_any<A, B>(answers: &[(A, B, CancellationToken)]) {
        let ends = answers.iter().map(|(.., reset)| Box::pin(reset.cancelled()));
        futures::future::select_all(ends).await;
    }

    #[tokio::test]
    async fn whoever_holds_little_does_not_give_way_to_refusals() {
        let answers = Answers::new(LIMIT);
        let (honest, reset) = begin(&answers, &user(0));
        let _held = honest.charge_length(PIECE);
        let refusals: Vec<_> = (0..1_000)
            .map(|_| {
                let reset = CancellationToken::new();
                let answer = answers.begin(StreamReset::of_connection(reset.clone()));
                (answer.charge_length((LIMIT - PIECE) / 1_000), reset)
            })
            .collect();
        while refusals.iter().any(|(charge, _)| !charge.stream.is_stalled(now(), STALLED)) {
            tokio::task::yield_now().await;
        }
        answers.0.make_room(None, Lack::Bytes);
        assert!(!reset.is_cancelled());
        let cancelled = refusals.iter().filter(|(_, reset)| reset.is_cancelled()).count();
        assert!((200..300).contains(&cancelled), "a quarter: {cancelled}");
    }

    #[tokio::test]
    async fn whoever_looks_among_its_own_keeps_nobody_from_looking_among_all() {
        let (eve, joe) = (user(0), user(1));
        let answers = Answers::new(LIMIT);
        let (unread, reset) = begin(&answers, &joe);
        let _held = unread.charge_length(LIMIT / 2);
        let (waiting, _) = begin(&answers, &eve);
        while !unread.0.is_stalled(now(), STALLED) {
            tokio::task::yield_now().await;
        }
        answers.0.make_room(Some(waiting.share(&eve)), Lack::Bytes);
        assert!(!reset.is_cancelled());
        answers.0.make_room(None, Lack::Bytes);
        assert!(reset.is_cancelled());
    }

    /// Threads that answer, and some that look for what may give way, all at once. A lock that is
    /// taken twice would stop them, and an order that changes while it is sorted by would end them.
    #[tokio::test(flavor = "multi_thread")]
    async fn room_is_made_while_answers_come_and_go() {
        const ROUNDS: usize = 30_000;
        let answers = Answers::new(LIMIT);
        let look = |look: fn(&Pool)| {
            let pool = Arc::downgrade(&answers.0);
            thread::spawn(move || while pool.upgrade().is_some_and(|pool| (look(&pool), true).1) {})
        };
        let looks = [
            look(|pool| drop(pool.first_to_give_way(None, Lack::Bytes, |_| true))),
            // Those that have just begun are not wanted, and dropped.
            look(|pool| drop(pool.all(|_| false))),
            look(|pool| drop(pool.all(|_| false))),
        ];
        let (done, all_done) = mpsc::channel();
        for number in 0..8 {
            let (answers, done, runtime) = (answers.clone(), done.clone(), Handle::current());
            thread::spawn(move || {
                let _runtime = runtime.enter();
                let begin = |number| {
                    let answer = answers.begin(StreamReset::default());
                    answer.share(&user(number));
                    let charge = answer.charge_length(1);
                    (answer, charge)
                };
                let mut held: Vec<_> = (0..20).map(|_| begin(number)).collect();
                for round in 0..ROUNDS {
                    let place = round % held.len();
                    held[place].1 = held[place].0.charge_length(1 + round % 100);
                    drop(begin(round % 20));
                }
                drop(held);
                done.send(()).unwrap();
            });
        }
        for _ in 0..8 {
            all_done.recv_timeout(Duration::from_secs(120)).unwrap();
        }
        let pool = Arc::downgrade(&answers.0);
        assert_eq!(answers.0.held.load(Ordering::Relaxed), 0);
        drop(answers);
        for look in looks {
            look.join().unwrap();
        }
        assert!(pool.upgrade().is_none_or(|pool| pool.streams().by_number.is_empty()));
    }

    #[tokio::test]
    async fn what_is_held_beyond_the_limit_gives_way_though_nobody_asks_for_more() {
        let answers = Answers::new(100_000);
        let resets: Vec<StreamReset> =
            (0..20).map(|_| StreamReset::new(CancellationToken::new())).collect();
        let answered = |reset: &StreamReset, status: u16| {
            let response = Response::builder().status(status).body(Body::from(vec![7; 5_000]));
            answers.begin(reset.clone()).hold(response.unwrap())
        };
        let held: Vec<_> = resets.iter().map(|reset| answered(reset, 200)).collect();
        let length = |response: &Response<Body>| response.body().size_hint().exact();
        assert!(held.iter().all(|response| length(response) == Some(5_000)));
        assert!(answers.0.is_full());
        // Until then a refusal is told without words.
        assert_eq!(length(&answered(&resets[0], 404)), Some(0));
        // One that nobody reads ends.
        let ends = resets.iter().map(|reset| Box::pin(reset.clone().guard(pending())));
        futures::future::select_all(ends).await;
        drop(held);
        assert_eq!(length(&answered(&resets[0], 404)), Some(5_000));
    }
}
