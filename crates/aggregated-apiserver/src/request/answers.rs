//! The memory of answers that have been made and not been sent.
//!
//! A client that asks and does not read holds what it was answered. What all of them hold is
//! bounded: who wants a large answer waits until there is room, and when there is none the
//! streams that have not moved for longest are reset. What is held is counted by its owner, so
//! it counts until HTTP has really sent it, or has dropped it.

mod held;
mod pool;
mod waiters;

pub use held::without_body;

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::Response;
use tokio::time::timeout;

use super::stream_reset::StreamReset;
use crate::error::ApiError;
use crate::queue::{Busy, QueuePlace};
use crate::quota::MemoryScale;
use crate::storage::Versioned;
use crate::user::User;
use held::{Held, PIECE, owned};
use pool::{Lack, PATIENCE, Pool, Stream, USER_SHARE, UserShare};

/// What all answers may hold, in bytes.
const LIMIT: usize = 40 << 20;
/// The same in a small container: the part of one user still holds the largest object.
const LEAST: usize = LIMIT / 4;
/// What an answer takes besides its bytes: its stream, the heads of both sides.
const OVERHEAD: usize = 10 << 10;
/// An answer that is not larger is made at once; most are smaller.
const SMALL: usize = 16 << 10;

/// The same in a container of this size.
pub(super) fn limit(portion: MemoryScale) -> usize {
    portion.between(LEAST, LIMIT)
}

/// The answers of a server.
#[derive(Clone, Debug)]
pub struct Answers(Arc<Pool>);

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Answer(Arc<Stream>);

/// Memory that an answer holds, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    stream: Arc<Stream>,
    bytes: usize,
    user: Option<Arc<UserShare>>,
    purpose: Purpose,
}

/// What an answer needs memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Room in which a part of the answer is made. Time passes although the client reads.
    Making,
    /// Bytes that have been made and wait until the client reads them.
    Sending,
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
        Answer(Arc::new(Stream::begin(Arc::clone(&self.0), reset)))
    }
}

impl Answer {
    /// Waits until there is room for so many bytes. Whoever is in `system:masters` does not
    /// wait, so that an operator gets through.
    ///
    /// # Errors
    /// 429 when too many requests of the user wait.
    pub(super) async fn room(&self, user: &User, bytes: usize) -> Result<Charge, ApiError> {
        let share = self.share(user);
        if user.is_master() {
            return Ok(self.charge_length(bytes, Purpose::Making));
        }
        if let Ok(charge) = Charge::take(&self.0, share, bytes) {
            return Ok(charge);
        }
        let pool = &self.0.pool;
        let _counted = share.wait()?;
        let mut waiting = pool.waiters.add(&self.0, share, bytes);
        loop {
            // What was released before it began to wait is handed out here.
            pool.waiters.hand_out();
            match timeout(PATIENCE, &mut waiting.granted).await {
                Ok(Ok(charge)) => return Ok(charge),
                // Its place is given up only with a charge.
                Ok(Err(_)) => return Err(ApiError::too_many_requests().bounded_by("answers")),
                Err(_) => pool.make_room(self.lacks(share, bytes), Lack::Bytes),
            }
        }
    }

    /// The user whose limit does not allow so many bytes; `None`, if that of all answers does not.
    fn lacks<'a>(&self, share: &'a Arc<UserShare>, bytes: usize) -> Option<&'a Arc<UserShare>> {
        let held = share.held.load(Ordering::Relaxed).saturating_add(bytes);
        (held > self.0.pool.limit / USER_SHARE).then_some(share)
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
                    pool.make_room(Some(self.share(user)), Lack::Slot);
                }
                Err(_) => pool.make_room(None, Lack::Slot),
            }
        };
        let refused = |Busy { retry_after }| {
            ApiError::too_many_requests_for(retry_after).bounded_by("streaming")
        };
        let (place, _) = taken.map_err(refused)?;
        let _ = self.0.streaming_since.set(now());
        Ok(Some(place))
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

    /// Counts so many bytes, whatever is held, as long as the charge is held.
    fn charge_length(&self, bytes: usize, purpose: Purpose) -> Charge {
        self.0.register();
        let pool = &self.0.pool;
        let charge = Charge::new(Arc::clone(&self.0), bytes, purpose);
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
        let charge = self.charge_length(bytes.len(), Purpose::Sending);
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
        let charge = self.charge_length(length.saturating_add(OVERHEAD), Purpose::Sending);
        response.map(|body| {
            let stream = Arc::clone(&self.0);
            let is_long = length > PIECE;
            Body::new(Held { body, charge: Some(charge), rest: Bytes::new(), stream, is_long })
        })
    }
}

impl Charge {
    /// Charges bytes, whatever is held.
    fn new(stream: Arc<Stream>, bytes: usize, purpose: Purpose) -> Self {
        let user = stream.user.get().cloned();
        if let Some(user) = &user {
            user.held.fetch_add(bytes, Ordering::SeqCst);
        }
        stream.pool.held.fetch_add(bytes, Ordering::SeqCst);
        Self::of_taken(stream, user, bytes, purpose)
    }

    /// Charges bytes, if the limits of their user and of all answers allow that. Says whose limit does not: `None` stands for that
    /// of all.
    fn take(
        stream: &Arc<Stream>,
        share: &Arc<UserShare>,
        bytes: usize,
    ) -> Result<Self, Option<Arc<UserShare>>> {
        stream.pool.take(share, bytes)?;
        stream.register();
        let (stream, user) = (Arc::clone(stream), Some(Arc::clone(share)));
        Ok(Self::of_taken(stream, user, bytes, Purpose::Making))
    }

    fn of_taken(
        stream: Arc<Stream>,
        user: Option<Arc<UserShare>>,
        bytes: usize,
        purpose: Purpose,
    ) -> Self {
        let unsent = match purpose {
            Purpose::Making => None,
            Purpose::Sending => Some(stream.unsent.fetch_add(bytes, Ordering::Relaxed)),
        };
        let held = stream.held.fetch_add(bytes, Ordering::Relaxed);
        if held == 0 || unsent == Some(0) {
            stream.moved.store(now(), Ordering::Relaxed);
        }
        Self { stream, bytes, user, purpose }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Self { stream, bytes, user, purpose } = self;
        if *purpose == Purpose::Sending {
            stream.unsent.fetch_sub(*bytes, Ordering::Relaxed);
        }
        stream.moved.store(now(), Ordering::Relaxed);
        if stream.held.fetch_sub(*bytes, Ordering::AcqRel) == *bytes {
            stream.sent.wake();
        }
        if let Some(user) = user {
            user.held.fetch_sub(*bytes, Ordering::SeqCst);
        }
        stream.pool.held.fetch_sub(*bytes, Ordering::SeqCst);
        stream.pool.waiters.hand_out();
    }
}

#[cfg(test)]
mod tests;
