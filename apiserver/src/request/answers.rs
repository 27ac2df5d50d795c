//! The memory of answers that have been made and not been sent.
//!
//! A client that asks and does not read holds what it was answered. What all of them hold is
//! bounded: who wants a large answer waits until there is room, and when there is none the
//! streams that have not moved for longest are reset. What is held is counted by its owner, so
//! it counts until HTTP has really sent it, or has dropped it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::task::AtomicWaker;
use http::Response;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::stream_reset::StreamReset;
use crate::error::ApiError;
use crate::quota::{Place, Places, Portion};
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
/// objects that nothing else may hold any more. One user has a quarter.
const STREAMING: usize = 64;
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
    streaming: Places,
    streams: Mutex<Streams>,
    users: Mutex<HashMap<String, Weak<UserShare>>>,
}

/// The answers that hold something, or have held it.
#[derive(Debug, Default)]
struct Streams {
    next: u64,
    by_number: HashMap<u64, Weak<Stream>>,
    is_swept: bool,
    /// When room was made last.
    cut: Option<Instant>,
}

impl Pool {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            held: AtomicUsize::new(0),
            freed: Notify::new(),
            streaming: Places::new(STREAMING),
            streams: Mutex::default(),
            users: Mutex::default(),
        }
    }
}

#[derive(Debug)]
struct UserShare {
    name: String,
    held: AtomicUsize,
    waiting: AtomicUsize,
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

fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
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
            () if !fits(&share.held, limit / USER_SHARE) => Err(Lack::OfOwn),
            () if !fits(&self.0.pool.held, limit) => Err(Lack::OfAny),
            () => Ok(self.charge_length(bytes)),
        })
        .await
    }

    /// Waits for a place among the answers that are made while they are sent; `None` for
    /// `system:masters`, who need none.
    ///
    /// # Errors
    /// As `room`.
    pub(super) async fn begin_streaming(&self, user: &User) -> Result<Option<Place>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let streaming = &self.0.pool.streaming;
        let take = || streaming.take(&user.name, 1).ok_or(Lack::OfAny);
        self.wait_for(user, take).await.map(Some)
    }

    /// Waits for something, and makes room for it.
    async fn wait_for<T>(
        &self,
        user: &User,
        take: impl Fn() -> Result<T, Lack>,
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
            let lack = match take() {
                Ok(taken) => return Ok(taken),
                Err(lack) => lack,
            };
            if timeout(PATIENCE, freed).await.is_err() {
                pool.make_room(match lack {
                    Lack::OfOwn => Some(self.share(user)),
                    Lack::OfAny => None,
                });
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
        let size = versioned.object.size();
        if size > SMALL { self.room(user, size).await.map(Some) } else { Ok(None) }
    }

    /// Counts so many bytes that have been made, as long as the charge is held.
    fn charge_length(&self, bytes: usize) -> Charge {
        self.0.register();
        let pool = &self.0.pool;
        let charge = Charge::new(Arc::clone(&self.0), bytes);
        if pool.held.load(Ordering::Relaxed) > pool.limit {
            pool.make_room(None);
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
    /// where it is made.
    pub fn hold(&self, response: Response<Body>) -> Response<Body> {
        let Some(length) = response.body().size_hint().exact().filter(|&length| length > 0) else {
            return response;
        };
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
        let (held, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let pool = Arc::downgrade(self);
        let share = Arc::new(UserShare { name: name.to_owned(), held, waiting, pool });
        users.insert(name.to_owned(), Arc::downgrade(&share));
        share
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets streams that have not moved for a while, until a quarter of the room is free
    /// again: those of one user, or of users who hold most; the longest first.
    fn make_room(&self, of: Option<&Arc<UserShare>>) {
        let mut streams = self.streams();
        // What was reset a moment ago has not given back yet what it held.
        if streams.cut.is_some_and(|cut| cut.elapsed() < PATIENCE) {
            return;
        }
        streams.cut = Some(Instant::now());
        drop(streams);
        let mut freed = 0;
        for stream in self.first_to_give_way(of, STALLED) {
            if freed > self.limit / 4 {
                break;
            }
            freed += stream.held.load(Ordering::Relaxed);
            tracing::debug!("an answer of which nothing is read gives way");
            stream.reset.reset();
        }
    }

    /// Streams that have not moved for so long: those of users who hold most, the longest first.
    fn first_to_give_way(&self, of: Option<&Arc<UserShare>>, time: Duration) -> Vec<Arc<Stream>> {
        let mut stalled = self.stalled_for(time);
        stalled.retain(|stream| of.is_none_or(|user| stream.is_of(user)));
        // Looked at once: what is held and when it moved changes meanwhile.
        stalled.sort_by_cached_key(|stream| {
            let of_user = stream.user.get().map_or(0, |user| user.held.load(Ordering::Relaxed));
            (Reverse(of_user), stream.moved.load(Ordering::Relaxed))
        });
        stalled
    }

    fn stalled_for(&self, time: Duration) -> Vec<Arc<Stream>> {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        // Whoever drops the last of a stream takes the lock: none is dropped under it.
        let streams: Vec<_> = self.streams().by_number.values().filter_map(Weak::upgrade).collect();
        let now = now();
        let is_stalled = |stream: &Arc<Stream>| {
            stream.held.load(Ordering::Relaxed) > 0
                && now.saturating_sub(stream.moved.load(Ordering::Relaxed)) >= time
        };
        streams.into_iter().filter(is_stalled).collect()
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
            for stream in pool.stalled_for(DEADLINE) {
                tracing::debug!("an answer was not read in time");
                stream.reset.reset();
            }
        }
    }
}

/// What there is too little of.
enum Lack {
    /// The user's own share is taken.
    OfOwn,
    /// All of it is taken.
    OfAny,
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
            return Err(ApiError::too_many_requests());
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
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::Handle;

    use super::*;

    fn user(number: usize) -> User {
        User { name: format!("user-{number}"), ..User::default() }
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
            look(|pool| drop(pool.first_to_give_way(None, Duration::ZERO))),
            // Those that have just begun are not wanted, and dropped.
            look(|pool| drop(pool.stalled_for(DEADLINE))),
            look(|pool| drop(pool.stalled_for(DEADLINE))),
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
        looks.map(|look| look.join().unwrap());
        assert!(pool.upgrade().is_none_or(|pool| pool.streams().by_number.is_empty()));
    }
}
