//! The memory of responses until they have been sent.
//!
//! A client that sends requests and does not read keeps the responses in memory. The memory of all responses is
//! limited: a request with a large response waits until enough memory is free. If none becomes free, the streams
//! without progress for the longest time are reset. The owner of the bytes holds the charge, so memory is counted until
//! HTTP has actually sent or dropped the bytes.

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
use crate::queue;
use crate::quota::{MemoryScale, Permit};
use crate::storage::Versioned;
use crate::user::User;
use held::{Held, PIECE, owned};
use pool::{Lack, PATIENCE, Pool, Stream, USER_SHARE, UserShare};

/// The memory limit of all responses, in bytes.
const LIMIT: usize = 40 << 20;
/// The memory limit in a small container, in bytes: the limit of one user still allows the largest object.
const LEAST: usize = LIMIT / 4;
/// The memory of a response besides its bytes: its stream, and the headers of both sides.
const OVERHEAD: usize = 10 << 10;
/// The size up to which a response is created without waiting, in bytes; most responses are smaller.
const SMALL: usize = 16 << 10;

/// The memory limit of all responses in a container of this size, in bytes.
pub(super) fn limit(portion: MemoryScale) -> usize {
    portion.between(LEAST, LIMIT)
}

/// The responses of a server.
#[derive(Clone, Debug)]
pub struct Answers(Arc<Pool>);

/// The response to one request.
#[derive(Clone, Debug)]
pub struct Answer(Arc<Stream>);

/// Memory that is charged to a response, until the charge is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    stream: Arc<Stream>,
    bytes: usize,
    user: Option<Arc<UserShare>>,
    purpose: Purpose,
}

/// The purpose of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Memory to create a part of the response. No bytes may be sent for a while, even if the client reads.
    Making,
    /// Bytes that are ready and wait until the client reads them.
    Sending,
}

/// Whether a response with this object waits until enough memory is free.
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
    /// Creates the accounting of responses, with this memory limit in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Pool::new(limit)))
    }

    /// Begins a response. If the client does not read it, `reset` resets its stream.
    pub fn begin(&self, reset: StreamReset) -> Answer {
        Answer(Arc::new(Stream::begin(Arc::clone(&self.0), reset)))
    }
}

impl Answer {
    /// Waits until this many bytes of memory are free. Requests of `system:masters` do not wait, so that operators
    /// always have access.
    ///
    /// # Errors
    /// 429 if too many requests of the user wait.
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
            // Memory that was released before this request was added to the waiters is distributed here.
            pool.waiters.hand_out();
            match timeout(PATIENCE, &mut waiting.granted).await {
                Ok(Ok(charge)) => return Ok(charge),
                // A waiter is removed only together with a charge, so this does not happen.
                Ok(Err(_)) => return Err(ApiError::too_many_requests().bounded_by("answers")),
                Err(_) => pool.make_room(self.lacks(share, bytes), Lack::Bytes),
            }
        }
    }

    /// Returns the user, if this many bytes exceed the per-user limit. Returns `None` if they exceed only the limit of
    /// all responses.
    fn lacks<'a>(&self, share: &'a Arc<UserShare>, bytes: usize) -> Option<&'a Arc<UserShare>> {
        let held = share.held.load(Ordering::Relaxed).saturating_add(bytes);
        (held > self.0.pool.limit / USER_SHARE).then_some(share)
    }

    /// Waits for a slot to send a response while it is generated. Returns `None` for `system:masters`, whose responses
    /// need no slot.
    ///
    /// # Errors
    /// 429 if no slot becomes free, or if too many requests wait.
    pub(super) async fn begin_streaming(&self, user: &User) -> Result<Option<Permit>, ApiError> {
        if user.is_master() {
            return Ok(None);
        }
        let pool = &self.0.pool;
        let mut turn = pin!(queue::acquire(&pool.streaming, &user.name, "streaming"));
        let place = loop {
            match timeout(PATIENCE, &mut turn).await {
                Ok(place) => break place?,
                Err(_) if pool.streaming.exceeds_share(&user.name, 1) => {
                    pool.make_room(Some(self.share(user)), Lack::Slot);
                }
                Err(_) => pool.make_room(None, Lack::Slot),
            }
        };
        let _ = self.0.streaming_since.set(now());
        Ok(Some(place))
    }

    fn share(&self, user: &User) -> &Arc<UserShare> {
        self.0.user.get_or_init(|| self.0.pool.user(&user.name))
    }

    /// Waits until there is enough memory for a response with this object. Small objects do not wait.
    ///
    /// # Errors
    /// The errors of `room`.
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

    /// Charges bytes, even if the limit is exceeded, until the charge is dropped.
    fn charge_length(&self, bytes: usize, purpose: Purpose) -> Charge {
        self.0.register();
        let pool = &self.0.pool;
        let charge = Charge::new(Arc::clone(&self.0), bytes, purpose);
        if pool.is_full() {
            pool.make_room(None, Lack::Bytes);
            // Responses that arrive at once are not stalled yet, and there may be no later charge that resets them. A
            // task therefore continues to free memory.
            if !pool.is_relieved.swap(true, Ordering::Relaxed) {
                tokio::spawn(Pool::relieve(Arc::downgrade(pool)));
            }
        }
        charge
    }

    /// Charges a part of the response until HTTP has sent it.
    pub(super) fn charge(&self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        let charge = self.charge_length(bytes.len(), Purpose::Sending);
        owned(bytes, charge)
    }

    /// Returns when all charged bytes have been sent, if the response has a stream of its own.
    pub(super) async fn sent(self) {
        std::future::poll_fn(|context| self.0.poll_sent(context)).await;
    }

    /// Charges a whole response until HTTP has sent it. A response that is generated while it is sent is charged where
    /// its chunks are made. If the limit is exceeded, an error response is sent without its body.
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
    /// Charges bytes, even if the limit is exceeded.
    fn new(stream: Arc<Stream>, bytes: usize, purpose: Purpose) -> Self {
        let user = stream.user.get().cloned();
        if let Some(user) = &user {
            user.held.fetch_add(bytes, Ordering::SeqCst);
        }
        stream.pool.held.fetch_add(bytes, Ordering::SeqCst);
        Self::of_taken(stream, user, bytes, purpose)
    }

    /// Charges bytes, if the limits of the user and of all responses allow it. The error is the user if the per-user
    /// limit is exceeded, and `None` if the limit of all responses is.
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
