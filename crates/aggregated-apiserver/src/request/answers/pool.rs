//! What all answers hold, and which of them give way when others need the room.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::time::sleep;

use super::super::stream_reset::StreamReset;
use super::waiters::Waiters;
use super::{milliseconds, now};
use crate::error::ApiError;
use crate::queue::Queue;

/// The large answers of one user may hold a quarter.
pub(super) const USER_SHARE: usize = 4;
/// What has not moved for so long may be reset when others need the room.
pub(super) const STALLED: Duration = Duration::from_millis(300);
/// What has not moved for so long is reset.
const DEADLINE: Duration = Duration::from_secs(60);
/// Answers that are made while they are sent, at the same time: each holds a moment of the past, with
/// objects that nothing else may hold any more. Users wait for them in turns, and one has a quarter.
pub(super) const STREAMING: usize = 64;
/// How long one may take before it may be reset when others wait, although it moves; and how long a part of an answer may
/// take to be made.
pub(super) const SLOW: Duration = Duration::from_secs(5);
/// How long to wait for room before somebody has to make it.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// Requests of one user that wait for room.
const WAITING: usize = 200;
/// How often answers are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Pool {
    /// What all of them may hold.
    pub(super) limit: usize,
    pub(super) held: AtomicUsize,
    pub(super) waiters: Waiters,
    pub(super) streaming: Queue,
    /// When it was looked last for what gives way, in milliseconds.
    looked: AtomicU64,
    /// Whether room is being made because more is held than may be.
    pub(super) is_relieved: AtomicBool,
    streams: Mutex<Streams>,
    users: Mutex<HashMap<String, Weak<UserShare>>>,
}

/// The answers that hold something, or have held it.
#[derive(Debug, Default)]
pub(super) struct Streams {
    next: u64,
    pub(super) by_number: HashMap<u64, Weak<Stream>>,
    is_swept: bool,
}

#[derive(Debug)]
pub(super) struct UserShare {
    name: String,
    pub(super) held: AtomicUsize,
    waiting: AtomicUsize,
    /// As the pool's, among what is the user's own.
    looked: AtomicU64,
    pool: Weak<Pool>,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) pool: Arc<Pool>,
    number: OnceLock<u64>,
    pub(super) user: OnceLock<Arc<UserShare>>,
    pub(super) held: AtomicUsize,
    /// The part of `held` that has been made, and waits until the client reads it.
    pub(super) unsent: AtomicUsize,
    /// When something of it was sent last, in milliseconds.
    pub(super) moved: AtomicU64,
    /// Since when it has a place among those that are made while they are sent, in milliseconds.
    pub(super) streaming_since: OnceLock<u64>,
    /// Told when nothing is held any more.
    pub(super) sent: AtomicWaker,
    reset: StreamReset,
}

/// What there is too little of.
#[derive(Clone, Copy)]
pub(super) enum Lack {
    Bytes,
    /// Places among the answers that are made while they are sent.
    Slot,
}

impl Pool {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: AtomicUsize::new(0),
            waiters: Waiters::default(),
            streaming: Queue::new(STREAMING),
            looked: AtomicU64::new(0),
            is_relieved: AtomicBool::new(false),
            streams: Mutex::default(),
            users: Mutex::default(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit
    }

    pub(super) fn user(self: &Arc<Self>, name: &str) -> Arc<UserShare> {
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

    pub(super) fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets streams that are in the way, of one user or of anybody: those of users who hold most,
    /// the longest first. For a place one is enough; of bytes a quarter of the room.
    pub(super) fn make_room(&self, of: Option<&Arc<UserShare>>, lack: Lack) {
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
            Lack::Bytes => stream.is_in_the_way(now),
            Lack::Slot => stream.streaming_since.get().is_some_and(|since| {
                stream.is_in_the_way(now) || now.saturating_sub(*since) >= milliseconds(SLOW)
            }),
        };
        let mut freed = 0;
        for stream in self.first_to_give_way(of, lack, is_in_the_way) {
            tracing::debug!(
                "closed a response that the client stopped reading, because memory is needed"
            );
            stream.reset.reset();
            freed += stream.held.load(Ordering::Relaxed);
            if matches!(lack, Lack::Slot) || freed > room / 4 {
                break;
            }
        }
    }

    /// Those of the streams whose users hold most, the longest first. Refusals are one user's. Nobody
    /// who holds less than a fair part of the bytes gives way to somebody else.
    pub(super) fn first_to_give_way(
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

    pub(super) fn all(&self, is_wanted: impl Fn(&Stream) -> bool) -> Vec<Arc<Stream>> {
        // Whoever drops the last of a stream takes the lock: none is dropped under it.
        let streams: Vec<_> = self.streams().by_number.values().filter_map(Weak::upgrade).collect();
        streams.into_iter().filter(|stream| is_wanted(stream)).collect()
    }

    /// Makes room until no more is held than may be.
    pub(super) async fn relieve(pool: Weak<Self>) {
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
                tracing::debug!("closed a response that the client did not read in time");
                stream.reset.reset();
            }
        }
    }
}

impl Stream {
    /// One of an answer that has not been made.
    pub(super) fn begin(pool: Arc<Pool>, reset: StreamReset) -> Self {
        Self {
            pool,
            number: OnceLock::new(),
            user: OnceLock::new(),
            held: AtomicUsize::new(0),
            unsent: AtomicUsize::new(0),
            moved: AtomicU64::new(now()),
            streaming_since: OnceLock::new(),
            sent: AtomicWaker::new(),
            reset,
        }
    }

    fn is_of(&self, user: &Arc<UserShare>) -> bool {
        self.user.get().is_some_and(|own| Arc::ptr_eq(own, user))
    }

    /// Ready when all that was made has been sent. Until then the stream is not over and can be
    /// reset; what is left of one that is over can only be taken from its connection.
    pub(super) fn poll_sent(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_sent = || self.held.load(Ordering::Acquire) == 0 || !self.reset.has_stream();
        if is_sent() {
            return Poll::Ready(());
        }
        self.sent.register(context.waker());
        if is_sent() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether it may be reset when others need the room: its client has read nothing for a while, or what holds the
    /// room takes long to be made. On a busy machine an answer is made in many turns.
    pub(super) fn is_in_the_way(&self, now: u64) -> bool {
        let time = if self.unsent.load(Ordering::Relaxed) > 0 { STALLED } else { SLOW };
        self.is_stalled(now, time)
    }

    /// Whether it holds something of which nothing was sent for so long.
    pub(super) fn is_stalled(&self, now: u64, time: Duration) -> bool {
        self.held.load(Ordering::Relaxed) > 0
            && now.saturating_sub(self.moved.load(Ordering::Relaxed)) >= milliseconds(time)
    }

    /// Puts it among those that are looked at.
    pub(super) fn register(self: &Arc<Self>) {
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
pub(super) struct CountedWaiter<'a>(&'a UserShare);

impl UserShare {
    pub(super) fn wait(&self) -> Result<CountedWaiter<'_>, ApiError> {
        let waiting = CountedWaiter(self);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            return Err(ApiError::too_many_requests().bounded_by("answers"));
        }
        Ok(waiting)
    }
}

impl Drop for CountedWaiter<'_> {
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
