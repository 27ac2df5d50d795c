//! The memory of all responses, and the choice of the streams that are reset when it is exhausted.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::time::sleep;

use super::super::stream_reset::StreamReset;
use super::{milliseconds, now};
use crate::quota::{Limiter, Share};

/// The divisor of the per-user limit: the large responses of one user may use a quarter of the memory.
pub(super) const USER_SHARE: usize = 4;
/// The time without progress after which a stream may be reset if other requests need the memory.
pub(super) const STALLED: Duration = Duration::from_millis(300);
/// The time without progress after which a stream is always reset.
const DEADLINE: Duration = Duration::from_secs(60);
/// The maximum number of concurrent responses that are generated while they are sent. Each holds a snapshot, with
/// objects that may have been deleted. Users wait for slots round-robin, and one user may hold a quarter of the slots.
pub(super) const STREAMING: usize = 64;
/// The time after which a streaming response may be reset if other requests wait for a slot, even if it makes progress.
/// It is also the time that a part of a response may take to be created.
pub(super) const SLOW: Duration = Duration::from_secs(5);
/// The time to wait for memory before streams are reset.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// The maximum number of requests of one user that wait for memory.
const WAITING: usize = 200;
/// The interval between checks for stalled responses.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Pool {
    /// The memory limit of all responses, in bytes.
    pub(super) limit: usize,
    /// The memory of all responses. Requests wait for memory, but bytes that are ready are charged in any case.
    pub(super) memory: Limiter,
    pub(super) streaming: Limiter,
    /// The times of the last searches for streams to reset, in milliseconds: among those of one user, or among all.
    searches: Mutex<HashMap<Option<Arc<str>>, u64>>,
    /// Whether a task is freeing memory because the limit is exceeded.
    pub(super) is_relieved: AtomicBool,
    streams: Mutex<Streams>,
}

/// The responses that hold memory, or have held memory.
#[derive(Debug, Default)]
pub(super) struct Streams {
    next: u64,
    pub(super) by_number: HashMap<u64, Weak<Stream>>,
    is_swept: bool,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) pool: Arc<Pool>,
    number: OnceLock<u64>,
    /// The user that the response is charged to.
    pub(super) user: OnceLock<Arc<str>>,
    pub(super) held: AtomicUsize,
    /// The part of `held` that is ready and waits until the client reads it, in bytes.
    pub(super) unsent: AtomicUsize,
    /// The time when a part of the response was last sent, in milliseconds.
    pub(super) moved: AtomicU64,
    /// The time when the response got a streaming slot, in milliseconds.
    pub(super) streaming_since: OnceLock<u64>,
    /// Notified when the response holds no memory any more.
    pub(super) sent: AtomicWaker,
    pub(super) reset: StreamReset,
}

/// The resource that is exhausted.
#[derive(Clone, Copy)]
pub(super) enum Lack {
    Bytes,
    /// Slots for responses that are generated while they are sent.
    Slot,
}

impl Pool {
    pub(super) fn new(limit: usize) -> Self {
        let memory = Limiter::new(limit, Share::Part(USER_SHARE)).with_oversized();
        Self {
            limit,
            memory: memory.with_waiting_of_user(WAITING),
            streaming: Limiter::queued(STREAMING, Share::Part(USER_SHARE)),
            searches: Mutex::default(),
            is_relieved: AtomicBool::new(false),
            streams: Mutex::default(),
        }
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.memory.used().saturating_add(bytes) <= self.limit
    }

    pub(super) fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets streams that block other requests, of one user or of all users. The users with the most memory come
    /// first, then the streams without progress for the longest time. For a slot one stream is reset; for bytes,
    /// streams with a quarter of the memory.
    pub(super) fn make_room(&self, of: Option<&Arc<str>>, lack: Lack) {
        let now = now();
        if !self.may_search(of, now) {
            return;
        }
        let room = if of.is_some() { self.limit / USER_SHARE } else { self.limit };
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

    /// Whether no request has searched for the same memory within the interval, because many requests wait for it. Each
    /// user has a separate interval.
    fn may_search(&self, of: Option<&Arc<str>>, now: u64) -> bool {
        let mut searches = self.searches.lock().unwrap_or_else(PoisonError::into_inner);
        searches.retain(|_, before| now.saturating_sub(*before) < milliseconds(PATIENCE));
        let is_new = !searches.contains_key(&of.cloned());
        if is_new {
            searches.insert(of.cloned(), now);
        }
        is_new
    }

    /// Returns the streams to reset: those of the users with the most memory first, then those without progress for the
    /// longest time. Responses without a user, such as errors, count as one user. A user with less than a fair part of
    /// the bytes does not lose a stream to another user.
    pub(super) fn first_to_give_way(
        &self,
        of: Option<&Arc<str>>,
        lack: Lack,
        is_in_the_way: impl Fn(&Stream) -> bool,
    ) -> Vec<Arc<Stream>> {
        let mut streams = self.all(|stream| stream.held.load(Ordering::Relaxed) > 0);
        let owner = |stream: &Stream| stream.user.get().cloned();
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
                && of.is_none_or(|user| stream.user.get() == Some(user))
                && held.get(&owner(stream)).is_some_and(|&held| held >= least)
        });
        // The keys are cached, because the memory and the time of progress change during the sort.
        streams.sort_by_cached_key(|stream| {
            (Reverse(held.get(&owner(stream)).copied()), stream.moved.load(Ordering::Relaxed))
        });
        streams
    }

    pub(super) fn all(&self, is_wanted: impl Fn(&Stream) -> bool) -> Vec<Arc<Stream>> {
        // Dropping the last reference to a stream takes the lock, so no reference may be dropped under the lock.
        let streams: Vec<_> = self.streams().by_number.values().filter_map(Weak::upgrade).collect();
        streams.into_iter().filter(|stream| is_wanted(stream)).collect()
    }

    /// Resets streams until the memory is within the limit.
    pub(super) async fn relieve(pool: Weak<Self>) {
        loop {
            sleep(PATIENCE).await;
            let Some(pool) = pool.upgrade() else { return };
            if pool.has_room(0) {
                pool.is_relieved.store(false, Ordering::Relaxed);
                return;
            }
            pool.make_room(None, Lack::Bytes);
        }
    }

    /// Resets streams without progress for a long time, until no response holds memory.
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
    /// Creates the stream of a response.
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

    /// Completes when all charged bytes have been sent. The stream stays open until then and can be reset. The bytes of
    /// a finished stream can only be removed together with its connection.
    pub(super) fn poll_sent(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_sent = || self.held.load(Ordering::Acquire) == 0 || !self.reset.has_stream();
        if is_sent() {
            return Poll::Ready(());
        }
        self.sent.register(context.waker());
        if is_sent() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether the stream may be reset if other requests need the memory: its client has not read for `STALLED`, or the
    /// part in progress takes longer than `SLOW`. The second limit is longer, because a busy machine creates a response
    /// in many steps.
    pub(super) fn is_in_the_way(&self, now: u64) -> bool {
        let time = if self.unsent.load(Ordering::Relaxed) > 0 { STALLED } else { SLOW };
        self.is_stalled(now, time)
    }

    /// Whether the stream holds memory and has sent nothing for this time.
    pub(super) fn is_stalled(&self, now: u64, time: Duration) -> bool {
        self.held.load(Ordering::Relaxed) > 0
            && now.saturating_sub(self.moved.load(Ordering::Relaxed)) >= milliseconds(time)
    }

    /// Adds the stream to those that are checked.
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
