//! The memory of responses until they have been sent.
//!
//! A client that sends requests and does not read keeps the responses in memory. The memory of all responses is
//! limited: a request with a large response waits until enough memory is free. If none becomes free, the streams
//! without progress for the longest time are reset. The owner of the bytes holds the charge, so memory is counted until
//! HTTP has actually sent or dropped the bytes.

mod held;
mod pool;

pub use held::without_body;

use std::future::pending;
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
use pool::{Lack, PATIENCE, Pool, Stream};

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
    permit: Permit,
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
        if user.is_master() {
            self.charged_to(user);
            return Ok(self.charge_length(bytes, Purpose::Making));
        }
        let (pool, name) = (&self.0.pool, self.charged_to(user));
        if let Some(permit) = pool.memory.try_acquire(name, bytes) {
            return Ok(self.made(permit));
        }
        let mut acquiring = pin!(pool.memory.acquire(name, bytes, pending()));
        loop {
            match timeout(PATIENCE, &mut acquiring).await {
                Ok(Ok(permit)) => return Ok(self.made(permit)),
                Ok(Err(_)) => return Err(ApiError::too_many_requests().bounded_by("answers")),
                Err(_) => {
                    // A response may also wait only because an earlier one of the user exceeds the limit of the user.
                    let is_of_user = pool.memory.exceeds_share(name, bytes) || pool.has_room(bytes);
                    pool.make_room(is_of_user.then_some(name), Lack::Bytes);
                }
            }
        }
    }

    fn made(&self, permit: Permit) -> Charge {
        self.0.register();
        Charge::new(Arc::clone(&self.0), permit, Purpose::Making)
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
                    pool.make_room(Some(self.charged_to(user)), Lack::Slot);
                }
                Err(_) => pool.make_room(None, Lack::Slot),
            }
        };
        let _ = self.0.streaming_since.set(now());
        Ok(Some(place))
    }

    /// Sets the user that the response is charged to.
    pub(super) fn charged_to(&self, user: &User) -> &Arc<str> {
        self.0.user.get_or_init(|| user.name.as_str().into())
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
        // Responses without a user, such as errors, are charged to one user.
        let permit = pool.memory.charge(self.0.user.get().map_or("", |user| user), bytes);
        let charge = Charge::new(Arc::clone(&self.0), permit, purpose);
        if !pool.has_room(0) {
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

    /// The stream or connection that sends the response.
    pub(super) fn reset(&self) -> &StreamReset {
        &self.0.reset
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
        if is_refusal && !self.0.pool.has_room(0) {
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
    fn new(stream: Arc<Stream>, permit: Permit, purpose: Purpose) -> Self {
        let bytes = permit.weight();
        let unsent = match purpose {
            Purpose::Making => None,
            Purpose::Sending => Some(stream.unsent.fetch_add(bytes, Ordering::Relaxed)),
        };
        let held = stream.held.fetch_add(bytes, Ordering::Relaxed);
        if held == 0 || unsent == Some(0) {
            stream.moved.store(now(), Ordering::Relaxed);
        }
        Self { stream, permit, purpose }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Self { stream, permit, purpose } = self;
        let bytes = permit.weight();
        if *purpose == Purpose::Sending {
            stream.unsent.fetch_sub(bytes, Ordering::Relaxed);
        }
        stream.moved.store(now(), Ordering::Relaxed);
        if stream.held.fetch_sub(bytes, Ordering::AcqRel) == bytes {
            stream.sent.wake();
        }
    }
}

#[cfg(test)]
mod tests;
